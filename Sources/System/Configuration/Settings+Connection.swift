import ByteStreams
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// Where a session connects, with what, and within what times.
extension SettingSection {
  static func connection(_ upstream: SettingScope<UpstreamSettings>) -> SettingSection {
    SettingSection(
      settings: addresses(upstream) + timeouts(upstream) + reconnect(upstream),
      orders: withinOpening(upstream) + reconnectOrders(upstream),
      rules: [upstream.rule(requestProblems)])
  }

  private static func addresses(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    [
      upstream("url", \.url, .webSocketURL, "the WebSocket to bridge to: ws:// or wss://", flag: "upstream"),
      upstream(
        "fallback_urls", \.fallbackURLs, .webSocketURLs,
        "further URLs of the same upstream, tried in this order when the first fails"),
      upstream(
        "url_order", \.session.endpoints.order, .choice,
        "priority: the first that works; round-robin: each dial takes the next"),
      upstream(
        "fail_back_after", \.session.endpoints.failBackAfter, .duration(.zero...day),
        "time a fallback must have been ready before a redial begins with the first URL again"),
      upstream("on_demand", \.session.onDemand, .flag, "whether to connect only when there is something to send"),
      upstream(
        "idle_after", \.session.idleAfter, .duration(millisecond...day),
        "time without sending after which an on-demand session closes"),
      upstream(
        "maximum_age", \.session.maximumAge, .durationOrNone(.zero...(day * 365)),
        "age at which a connection is replaced by a new one, ± 5 %; 0s: never"),
      upstream(
        "overlap", \.session.overlap, .duration(.zero...(.minutes(1))),
        "time for which a replaced connection is still listened to"),
      upstream(
        "close_codes", \.session.closing.ranges, .closeRules,
        "what close codes mean to this upstream: backoff, refresh-credential, park or stop"),
      upstream("subprotocols", \.subprotocols, .texts, "subprotocols to offer, best first", flag: "subprotocol"),
      upstream("headers", \.fields, .fields, "fields to send with the opening request", flag: "header", isSecret: true),
      upstream(
        "message_bytes", \.limits.messageBytes, .size(1...(1 << 30)), "largest message accepted, fragments together"),
      upstream("fragments", \.limits.fragments, .count(1...1_000_000), "most frames of one message"),
      upstream(
        "inflation_ratio", \.limits.inflationRatio, .count(10...100_000),
        "how many times larger a compressed message may become"),
      upstream(
        "proxy", \.proxy, .proxyURL, "proxy on the way: http://, socks5:// or socks5h://", flag: "proxy", isSecret: true
      ),
      upstream("no_proxy", \.proxyBypass, .proxyBypass, "hosts, domains, addresses and blocks dialled without it"),
    ]
  }

  private static func timeouts(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    [
      upstream("timeouts.files", \.fileTimeout, .duration(millisecond...day), "for reading secrets and certificates"),
      upstream("timeouts.resolve", \.session.limits.resolving, .duration(millisecond...day), "for the name look-up"),
      upstream("timeouts.connect", \.session.limits.connecting, .duration(millisecond...day), "for the TCP connect"),
      upstream(
        "timeouts.proxy", \.session.limits.proxying, .duration(millisecond...day), "for a proxy to open the tunnel"),
      upstream("timeouts.tls", \.session.limits.securing, .duration(millisecond...day), "for the TLS handshake"),
      upstream(
        "timeouts.upgrade", \.session.limits.upgrading, .duration(millisecond...day),
        "for the response to the opening request"),
      upstream(
        "timeouts.opening", \.session.limits.wholeAttempt, .duration(millisecond...day), "for all of it, to the 101"),
      upstream(
        "timeouts.on_open", \.session.limits.setup, .duration(millisecond...day),
        "for all of upstream.on_open together"),
      upstream("timeouts.closing", \.session.limits.closing, .duration(millisecond...day), "for the closing handshake"),
      upstream(
        "timeouts.user", \.userTimeout, .duration(millisecond...day),
        "that sent bytes may stay unacknowledged (TCP_USER_TIMEOUT)"),
    ]
  }

  /// The phases of a connection attempt: `timeouts.opening` limits them all together.
  private static func withinOpening(_ upstream: SettingScope<UpstreamSettings>) -> [SettingOrder] {
    let phases: [(String, WritableKeyPath<UpstreamSettings, TimeSpan>)] = [
      ("resolve", \.session.limits.resolving), ("connect", \.session.limits.connecting),
      ("proxy", \.session.limits.proxying), ("tls", \.session.limits.securing),
      ("upgrade", \.session.limits.upgrading),
    ]
    return phases.map { name, value in
      upstream.order(
        "timeouts." + name, value, "timeouts.opening", \.session.limits.wholeAttempt,
        "the connection attempt ends before", isWarning: true)
    }
  }

  private static func reconnect(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    let reconnect = upstream.section("reconnect", \.session.backoff)
    return [
      reconnect("strategy", \.kind, .choice, "how the waits between redials grow"),
      reconnect("minimum", \.minimum, .duration(millisecond...day), "shortest wait before a redial"),
      reconnect("base", \.base, .duration(millisecond...day), "first bound, doubled each time"),
      reconnect("maximum", \.maximum, .duration(millisecond...day), "largest bound"),
      reconnect("factor", \.factor, .fraction(1...100), "by which an exponential wait grows each time"),
      reconnect("when_exhausted", \.whenExhausted, .choice, "what doubling does past the maximum"),
      reconnect(
        "maximum_attempts", \.maximumAttempts, .countOrNone(0...1_000_000),
        "failures in a row after which the session waits for an operator; 0: never"),
      reconnect(
        "quick_redial", \.quickReconnect, .duration(.zero...(.minutes(1))),
        "longest wait before the first redial after a stable connection"),
      reconnect("reset_after", \.stableAfter, .duration(.zero...day), "time ready before failures are forgotten"),
    ]
  }

  /// Only the bounds that a strategy uses are compared.
  private static func reconnectOrders(_ upstream: SettingScope<UpstreamSettings>) -> [SettingOrder] {
    let reconnect = upstream.section("reconnect", \.session.backoff)
    return [
      reconnect.order(
        "minimum", \.minimum, "maximum", \.maximum, "lower the minimum or raise the maximum",
        where: { $0.kind == .random || $0.kind == .fullJitter }),
      reconnect.order(
        "base", \.base, "maximum", \.maximum, "lower the base or raise the maximum",
        where: { $0.kind != .random && $0.kind != .fixed }),
    ]
  }

  /// Subprotocols and fields, judged as the handshake judges them: each with those before it.
  private static func requestProblems(_ upstream: UpstreamSettings) -> [SettingProblem] {
    var problems: [SettingProblem] = []
    var request = ClientHandshake.Request(target: "/", host: "localhost")
    for (index, name) in upstream.subprotocols.enumerated() {
      request.subprotocols.append(name)
      guard let problem = request.problem else { continue }
      problems.append(SettingProblem("subprotocols", .item(index), problem))
      request.subprotocols.removeLast()
    }
    for (index, field) in upstream.fields.enumerated() {
      request.fields.append((field.name, field.value))
      guard let problem = request.problem else { continue }
      problems.append(SettingProblem("headers", .item(index), problem))
      request.fields.removeLast()
    }
    guard let name = upstream.conventions.credential.header?.fieldName else { return problems }
    request.fields.append((name, ""))
    if let problem = request.problem { problems.append(SettingProblem("credential.header", .none, problem)) }
    return problems
  }
}
