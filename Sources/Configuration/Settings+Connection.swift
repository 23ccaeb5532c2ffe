import ByteStreams
import Upstream
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// Addresses, opening request, timeouts and reconnects of a session.
extension SettingSection {
  static func connection(_ upstream: SettingScope<UpstreamSettings>) -> SettingSection {
    SettingSection(
      settings: addresses(upstream) + urlSource(upstream) + timeouts(upstream) + reconnect(upstream),
      orders: openingTimeoutOrders(upstream) + reconnectOrders(upstream),
      rules: [upstream.rule(requestProblems), upstream.rule(urlProblems)])
  }

  private static func addresses(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    [
      upstream("url", \.url, .webSocketURL, "URL of the WebSocket service: ws:// or wss://", flag: "upstream"),
      upstream(
        "fallback_urls", \.fallbackURLs, .webSocketURLs,
        "further URLs of the same upstream, tried in this order when the first fails"),
      upstream(
        "url_from", \.capturedURL, .captureName, "name of the captured value that is the URL of the next attempt"),
      upstream(
        "captured_hosts", \.capturedHosts, .hostPatterns, "hosts that such a URL may have, besides the configured ones"),
      upstream(
        "url_order", \.session.endpoints.order, .choice,
        "priority: the first URL that works; round-robin: each connection attempt uses the next"),
      upstream(
        "fail_back_after", \.session.endpoints.failBackAfter, .duration(.zero...day),
        "how long a fallback must have been ready before a reconnect starts with the first URL again"),
      upstream("on_demand", \.session.onDemand, .boolean, "connect only to send a message, or for a poll or a stream"),
      upstream(
        "idle_after", \.session.idleAfter, .duration(millisecond...day),
        "how long an on-demand session may be idle before it closes its connection"),
      upstream(
        "maximum_age", \.session.maximumAge, .durationOrNone(.zero...(day * 365)),
        "age at which a connection is replaced by a new one, +/- 5 %; 0s: never"),
      upstream(
        "exclusive", \.session.isExclusive, .boolean,
        "close a connection before a new one replaces it, for upstreams that accept only one"),
      upstream(
        "overlap", \.session.overlap, .duration(.zero...(.minutes(1))),
        "how long a replaced connection is still read"),
      upstream(
        "close_codes", \.session.closing.ranges, .closeRules,
        "reactions to close codes: reconnect, backoff, forget, refresh-credential, park or stop"),
      upstream(
        "close_code", \.session.closeCode, .closeCode,
        "code of the Close frames that Drawbridge sends although the session continues"),
      upstream(
        "subprotocols", \.subprotocols, .texts, "subprotocols to offer, in order of preference (repeatable)",
        flag: "subprotocol"),
      upstream(
        "headers", \.fields, .fields, "header fields of the opening request (repeatable)", flag: "header",
        isSecret: true),
      upstream(
        "message_bytes", \.limits.messageBytes, .size(1...(1 << 30)),
        "maximum size of an incoming message, all fragments together"),
      upstream("fragments", \.limits.fragments, .count(1...1_000_000), "maximum number of frames per message"),
      upstream(
        "inflation_ratio", \.limits.inflationRatio, .count(10...100_000),
        "maximum ratio of decompressed to compressed size"),
      upstream(
        "proxy", \.proxy, .proxyURL, "proxy for the connection: http://, socks5:// or socks5h://", flag: "proxy",
        isSecret: true
      ),
      upstream(
        "no_proxy", \.proxyBypass, .proxyBypass, "hosts, domains, addresses and blocks to connect to without the proxy"),
    ]
  }

  /// Keys of `upstream.url`, in place of a URL.
  private static func urlSource(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    let url = upstream.section("url", \.urlSource)
    return [
      url("file", \.file, .path, "file with the URL, read for each connection attempt"),
      url(
        "command", \.command, .texts, "program and arguments; its standard output is the URL of the connection attempt",
        isSecret: true),
      url("timeout", \.timeout, .duration(millisecond * 10...(.minutes(10))), "maximum run time of the command"),
      url("pointer", \.pointer, .pointer, "JSON pointer of the URL in the file or output; empty: it is the URL itself"),
      url(
        "error", \.errorPointer, .pointer, "JSON pointer of an error to show if there is no URL; empty: none is shown"),
    ]
  }

  private static func urlProblems(_ upstream: UpstreamSettings) -> [SettingProblem] {
    let source = upstream.urlSource
    guard source.isSet else {
      guard source != URLSource() else { return [] }
      return [SettingProblem("url", .none, "it needs 'command' or 'file', which return the URL")]
    }
    var problems: [SettingProblem] = []
    if !source.file.isEmpty, !source.command.isEmpty {
      problems.append(SettingProblem("url", .none, "set only one of 'command' and 'file'"))
    }
    if upstream.url != nil {
      problems.append(SettingProblem("url", .none, "set either a URL, or 'command' or 'file', which return the URL"))
    }
    if !upstream.fallbackURLs.isEmpty {
      problems.append(
        SettingProblem(
          "fallback_urls", .none,
          "it cannot be combined with 'upstream.url.command' or 'upstream.url.file', which return the only URL"))
    }
    return problems
  }

  private static func timeouts(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    [
      upstream(
        "timeouts.files", \.fileTimeout, .duration(millisecond...day), "timeout for reading secrets and certificates"),
      upstream(
        "timeouts.resolve", \.session.limits.resolving, .duration(millisecond...day), "timeout for name resolution"),
      upstream(
        "timeouts.connect", \.session.limits.connecting, .duration(millisecond...day), "timeout for the TCP connect"),
      upstream(
        "timeouts.proxy", \.session.limits.proxying, .duration(millisecond...day),
        "timeout for opening the tunnel through a proxy"),
      upstream(
        "timeouts.tls", \.session.limits.securing, .duration(millisecond...day), "timeout for the TLS handshake"),
      upstream(
        "timeouts.upgrade", \.session.limits.upgrading, .duration(millisecond...day),
        "timeout for the response to the opening request"),
      upstream(
        "timeouts.opening", \.session.limits.wholeAttempt, .duration(millisecond...day),
        "timeout for all steps of a connection attempt together"),
      upstream(
        "timeouts.on_open", \.session.limits.setup, .duration(millisecond...day),
        "timeout for all of upstream.on_open together"),
      upstream(
        "timeouts.closing", \.session.limits.closing, .duration(millisecond...day), "timeout for the closing handshake"),
      upstream(
        "timeouts.user", \.userTimeout, .duration(millisecond...day),
        "maximum time that sent bytes may stay unacknowledged (TCP_USER_TIMEOUT)"),
    ]
  }

  /// `timeouts.opening` limits all phases of a connection attempt together.
  private static func openingTimeoutOrders(_ upstream: SettingScope<UpstreamSettings>) -> [SettingOrder] {
    let phases: [(String, WritableKeyPath<UpstreamSettings, TimeSpan>)] = [
      ("resolve", \.session.limits.resolving), ("connect", \.session.limits.connecting),
      ("proxy", \.session.limits.proxying), ("tls", \.session.limits.securing),
      ("upgrade", \.session.limits.upgrading),
    ]
    return phases.map { name, value in
      upstream.order(
        "timeouts." + name, value, "timeouts.opening", \.session.limits.wholeAttempt,
        "the connection attempt times out first", isWarning: true)
    }
  }

  private static func reconnect(_ upstream: SettingScope<UpstreamSettings>) -> [Setting] {
    let reconnect = upstream.section("reconnect", \.session.backoff)
    return [
      reconnect("strategy", \.kind, .choice, "how the waits between connection attempts grow"),
      reconnect("minimum", \.minimum, .duration(millisecond...day), "shortest wait"),
      reconnect(
        "base", \.base, .duration(millisecond...day), "wait from which later waits grow, or every wait of fixed"),
      reconnect("maximum", \.maximum, .duration(millisecond...day), "longest wait"),
      reconnect("factor", \.factor, .fraction(1...100), "growth factor of exponential waits"),
      reconnect(
        "when_exhausted", \.whenExhausted, .choice, "what follows after the maximum: hold, reset or stop"),
      reconnect(
        "maximum_attempts", \.maximumAttempts, .countOrNone(0...1_000_000),
        "consecutive failures after which the session waits for an operator; 0: no limit"),
      reconnect(
        "quick_redial", \.quickReconnect, .duration(.zero...(.minutes(1))),
        "maximum wait before the first reconnect after a stable connection"),
      reconnect(
        "reset_after", \.stableAfter, .duration(.zero...day),
        "how long a connection must be ready before failures are forgotten"),
    ]
  }

  /// Compares only the limits that the strategy for reconnects uses.
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

  /// Validates subprotocols and header fields by the rules of the handshake. Each value is validated together with the
  /// values before it, so that the problem names the value that causes it.
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
