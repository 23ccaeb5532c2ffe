import ByteStreams
import UpstreamProtocol

/// The connection to the upstream, and the queue in front of it.
extension Setting {
  static var upstream: [Setting] {
    [
      Setting(
        "upstream.url", .webSocketURL(\.upstream.url), "the WebSocket to bridge to: ws:// or wss://", flag: "upstream"),
      Setting(
        "upstream.fallback_urls", .webSocketURLs(\.upstream.fallbackURLs),
        "further URLs of the same upstream, tried in this order when the first fails"),
      Setting(
        "upstream.url_order", .choice(\.upstream.urlOrder, ["priority", "round-robin"]),
        "priority: the first that works; round-robin: each dial takes the next"),
      Setting(
        "upstream.fail_back_after", .duration(\.upstream.failBackAfter, .zero...day),
        "time a fallback must have been ready before a redial begins with the first URL again"),
      Setting(
        "upstream.on_demand", .flag(\.upstream.onDemand),
        "whether to connect only when there is something to send"),
      Setting(
        "upstream.idle_after", .duration(\.upstream.idleAfter, millisecond...day),
        "time without sending after which an on-demand session closes"),
      Setting(
        "upstream.maximum_age", .duration(\.upstream.maximumAge, .zero...(day * 365)),
        "age at which a connection is replaced by a new one, ± 5 %; 0s: never"),
      Setting(
        "upstream.overlap", .duration(\.upstream.overlap, .zero...(.minutes(1))),
        "time for which a replaced connection is still listened to"),
      Setting(
        "upstream.close_codes", .closeCodes(\.upstream.closeCodes),
        "what close codes mean to this upstream: backoff, refresh-credential, park or stop"),
      Setting(
        "upstream.subprotocols", .list(\.upstream.subprotocols), "subprotocols to offer, best first",
        flag: "subprotocol"),
      Setting(
        "upstream.headers", .fields(\.upstream.headers), "fields to send with the opening request", flag: "header",
        isSecret: true),
      Setting(
        "upstream.message_bytes", .size(\.upstream.messageBytes, 1...(1 << 30)),
        "largest message accepted, fragments together"),
      Setting("upstream.fragments", .count(\.upstream.fragments, 1...1_000_000), "most frames of one message"),
      Setting(
        "upstream.inflation_ratio", .count(\.upstream.inflationRatio, 10...100_000),
        "how many times larger a compressed message may become"),
      Setting(
        "upstream.proxy", .text(\.upstream.proxy), "proxy on the way: http://, socks5:// or socks5h://", flag: "proxy",
        isSecret: true),
      Setting(
        "upstream.no_proxy", .list(\.upstream.noProxy), "hosts, domains, addresses and blocks dialled without it"),
      Setting("upstream.tls.ca_file", .text(\.upstream.tls.caFile), "certificates to trust (PEM)", flag: "ca-file"),
      Setting(
        "upstream.tls.system_ca", .flag(\.upstream.tls.systemCA), "whether to trust the system's certificates too"),
      Setting(
        "upstream.tls.verify", .flag(\.upstream.tls.verify),
        "whether the upstream must prove who it is; false is for tests only"),
      Setting("upstream.tls.server_name", .text(\.upstream.tls.serverName), "name to expect instead of the URL's host"),
      Setting(
        "upstream.tls.pins", .list(\.upstream.tls.pins), "SHA-256 of public keys accepted, base64; none: any"),
      Setting(
        "upstream.tls.client_certificate", .text(\.upstream.tls.clientCertificate), "our own certificate (PEM file)"),
      Setting("upstream.tls.client_key", .text(\.upstream.tls.clientKey), "its private key (PEM file)"),
      Setting(
        "upstream.tls.minimum_version", .choice(\.upstream.tls.minimumVersion, ["1.2", "1.3"]),
        "oldest TLS version accepted"),
      Setting("upstream.compression.offer", .flag(\.upstream.compression.offer), "whether to offer permessage-deflate"),
      Setting("upstream.compression.level", .count(\.upstream.compression.level, 1...9), "effort, 1 fast to 9 small"),
      Setting(
        "upstream.compression.window_bits", .count(\.upstream.compression.windowBits, 9...15), "history, 2^n bytes"),
      Setting(
        "upstream.compression.memory_level", .count(\.upstream.compression.memoryLevel, 1...9), "zlib's memory level"),
      Setting(
        "upstream.compression.threshold", .size(\.upstream.compression.threshold, 0...(1 << 20)),
        "messages smaller than this go uncompressed"),
      Setting(
        "upstream.heartbeat.ping", .flag(\.upstream.heartbeat.ping),
        "whether to send WebSocket pings; without them nothing is confirmed"),
      Setting(
        "upstream.heartbeat.interval", .duration(\.upstream.heartbeat.interval, millisecond * 10...day),
        "time between pings, ± 10 %"),
      Setting(
        "upstream.heartbeat.timeout", .duration(\.upstream.heartbeat.timeout, millisecond * 10...day),
        "time within which anything must arrive after a ping"),
      Setting(
        "upstream.reconnect.strategy",
        .choice(
          \.upstream.reconnect.strategy,
          ["fixed", "exponential", "random", "full-jitter", "decorrelated-jitter", "doubling"]),
        "how the waits between redials grow"),
      Setting(
        "upstream.reconnect.minimum", .duration(\.upstream.reconnect.minimum, millisecond...day),
        "shortest wait before a redial"),
      Setting(
        "upstream.reconnect.base", .duration(\.upstream.reconnect.base, millisecond...day),
        "first bound, doubled each time"),
      Setting(
        "upstream.reconnect.maximum", .duration(\.upstream.reconnect.maximum, millisecond...day), "largest bound"),
      Setting(
        "upstream.reconnect.factor", .fraction(\.upstream.reconnect.factor, 1...100),
        "by which an exponential wait grows each time"),
      Setting(
        "upstream.reconnect.when_exhausted", .choice(\.upstream.reconnect.whenExhausted, ["stop", "reset", "hold"]),
        "what doubling does past the maximum"),
      Setting(
        "upstream.reconnect.maximum_attempts", .count(\.upstream.reconnect.maximumAttempts, 0...1_000_000),
        "failures in a row after which the session waits for an operator; 0: never"),
      Setting(
        "upstream.reconnect.quick_redial", .duration(\.upstream.reconnect.quickRedial, .zero...(.minutes(1))),
        "longest wait before the first redial after a stable connection"),
      Setting(
        "upstream.reconnect.reset_after", .duration(\.upstream.reconnect.resetAfter, .zero...day),
        "time ready before failures are forgotten"),
      Setting(
        "upstream.dials.per_second", .count(\.upstream.dials.perSecond, 1...1_000_000),
        "dials of one host a second, of all sessions together"),
      Setting(
        "upstream.dials.burst", .count(\.upstream.dials.burst, 1...1_000_000), "dials of one host after a quiet time"),
      Setting(
        "upstream.dials.at_once", .count(\.upstream.dials.atOnce, 1...1_000_000), "dials of one host under way at once"),
      Setting(
        "upstream.network.changes", .choice(\.upstream.network.changes, ["watch", "ignore"]),
        "whether changes of this machine's network end a wait and probe a connection"),
      Setting(
        "upstream.network.settle", .duration(\.upstream.network.settle, .zero...(.minutes(1))),
        "time the network must have been at rest before that"),
      Setting(
        "upstream.timeouts.files", .duration(\.upstream.timeouts.files, millisecond...day),
        "for reading secrets and certificates"),
      Setting(
        "upstream.timeouts.resolve", .duration(\.upstream.timeouts.resolve, millisecond...day), "for the name look-up"),
      Setting(
        "upstream.timeouts.connect", .duration(\.upstream.timeouts.connect, millisecond...day), "for the TCP connect"),
      Setting(
        "upstream.timeouts.proxy", .duration(\.upstream.timeouts.proxy, millisecond...day),
        "for a proxy to open the tunnel"),
      Setting("upstream.timeouts.tls", .duration(\.upstream.timeouts.tls, millisecond...day), "for the TLS handshake"),
      Setting(
        "upstream.timeouts.upgrade", .duration(\.upstream.timeouts.upgrade, millisecond...day),
        "for the response to the opening request"),
      Setting(
        "upstream.timeouts.opening", .duration(\.upstream.timeouts.opening, millisecond...day),
        "for all of it, to the 101"),
      Setting(
        "upstream.timeouts.on_open", .duration(\.upstream.timeouts.onOpen, millisecond...day),
        "for all of upstream.on_open together"),
      Setting(
        "upstream.timeouts.closing", .duration(\.upstream.timeouts.closing, millisecond...day),
        "for the closing handshake"),
      Setting(
        "upstream.timeouts.user", .duration(\.upstream.timeouts.user, millisecond...day),
        "that sent bytes may stay unacknowledged (TCP_USER_TIMEOUT)"),
    ]
  }

  static var queue: [Setting] {
    [
      Setting(
        "upstream.queue.messages", .count(\.upstream.queue.messages, 1...10_000_000),
        "messages that may wait for the upstream"
      ),
      Setting(
        "upstream.queue.bytes", .size(\.upstream.queue.bytes, 1024...(16 << 30)), "bytes that may wait for the upstream"
      ),
      Setting(
        "upstream.queue.ttl", .duration(\.upstream.queue.ttl, .zero...day),
        "how long a message may wait, unless it says (TTL)"),
      Setting(
        "upstream.queue.overflow", .choice(\.upstream.queue.overflow, ["refuse", "drop-oldest"]),
        "what a full queue does with a new message"),
      Setting(
        "upstream.queue.redeliver", .choice(\.upstream.queue.redeliver, ["never", "unconfirmed"]),
        "what goes again after a lost connection"),
      Setting(
        "upstream.queue.max_attempts", .count(\.upstream.queue.maximumAttempts, 1...255),
        "connections that may be lost over one message"),
      Setting(
        "upstream.queue.confirm", .flag(\.upstream.queue.confirm), "whether pings find out what has arrived"),
      Setting(
        "upstream.queue.confirm_messages", .count(\.upstream.queue.confirmMessages, 1...65_536),
        "messages behind which such a ping goes out"),
      Setting(
        "upstream.queue.confirm_delay", .duration(\.upstream.queue.confirmDelay, millisecond...(.minutes(1))),
        "time after which it does anyway"),
      Setting(
        "upstream.queue.rate", .count(\.upstream.queue.rate, 0...1_000_000), "messages per rate_interval; 0: no limit"),
      Setting(
        "upstream.queue.rate_interval", .duration(\.upstream.queue.rateInterval, millisecond...day),
        "the time that rate counts in"),
      Setting(
        "upstream.queue.burst", .count(\.upstream.queue.burst, 1...1_000_000), "messages at once after a pause"),
      Setting(
        "upstream.queue.high_water", .size(\.upstream.queue.highWater, 1024...(1 << 30)),
        "unsent bytes at which the queue is held"),
      Setting(
        "upstream.queue.low_water", .size(\.upstream.queue.lowWater, 0...(1 << 30)),
        "unsent bytes at which it flows again"),
    ]
  }
}
