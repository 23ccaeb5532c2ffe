import ByteStreams
import Conventions

extension Setting {
  /// Every setting, in the order of the file. (Worked out when asked for: key paths cannot be shared between threads.)
  package static var all: [Setting] { general + http + upstream + conventions + queue + delivery + rest }

  private static let day = TimeSpan.hours(24)
  private static let millisecond = TimeSpan.milliseconds(1)

  private static var general: [Setting] {
    [
      Setting(
        "listeners.http", .list(\.listeners.http),
        "where clients connect: host:port, [v6]:port or unix:/path; port 0 picks one",
        flag: "listen"),
      Setting(
        "listeners.management", .list(\.listeners.management), "where probes and metrics are served", flag: "management"
      ),
      Setting(
        "loops", .automaticCount(\.loops, 0...1024), "event loops; auto is one a usable processor", flag: "loops"),
    ]
  }

  private static var http: [Setting] {
    [
      Setting(
        "http.hosts", .list(\.http.hosts),
        "host names accepted in Host, besides localhost and loopback addresses, else 403"),
      Setting(
        "http.origins", .list(\.http.origins),
        "origins whose web pages may send requests, besides the gateway's own, else 403"),
      Setting(
        "http.request_line_bytes", .size(\.http.requestLineBytes, 256...(1 << 20)), "longest request line, else 414"),
      Setting("http.head_bytes", .size(\.http.headBytes, 1024...(1 << 20)), "largest request head, else 431"),
      Setting("http.fields", .count(\.http.fields, 8...10_000), "most fields in a head, else 431"),
      Setting(
        "http.empty_lines", .count(\.http.emptyLines, 1...1000), "most empty lines before a request line, else 400"),
      Setting("http.body_bytes", .size(\.http.bodyBytes, 1...(1 << 30)), "largest request body, else 413"),
      Setting(
        "http.pending_body_bytes", .size(\.http.pendingBodyBytes, (64 << 10)...(1 << 40)),
        "memory for partially received bodies, of all clients, else 503"),
      Setting(
        "http.batch_messages", .count(\.http.batchMessages, 1...1_000_000), "messages in one batch of a POST, else 413"),
      Setting(
        "http.chunk_extension_bytes", .size(\.http.chunkExtensionBytes, 0...(64 << 10)),
        "longest extension of a chunk, else 413"),
      Setting(
        "http.chunk_overhead_bytes", .size(\.http.chunkOverheadBytes, 0...(1 << 20)),
        "chunk framing beyond 16 bytes a chunk and twice the data, else 413"),
      Setting("http.trailer_bytes", .size(\.http.trailerBytes, 0...(1 << 20)), "largest trailer section, else 431"),
      Setting("http.trailers", .count(\.http.trailers, 0...10_000), "most fields in a trailer section, else 431"),
      Setting(
        "http.pipelined_bytes", .size(\.http.pipelinedBytes, 1024...(16 << 20)),
        "bytes read ahead of the answer that is owed"),
      Setting(
        "http.head_timeout", .duration(\.http.headTimeout, millisecond...day), "time for a whole request head, else 408"
      ),
      Setting(
        "http.body_timeout", .duration(\.http.bodyTimeout, millisecond...day),
        "longest pause in a body, and time before body_minimum_rate counts, else 408"),
      Setting(
        "http.body_minimum_rate", .count(\.http.bodyMinimumRate, 0...1_000_000_000),
        "bytes a second that a body must keep up after body_timeout; 0: none"),
      Setting(
        "http.idle_timeout", .duration(\.http.idleTimeout, millisecond...day),
        "time a connection may wait between requests"),
      Setting(
        "http.write_timeout", .duration(\.http.writeTimeout, millisecond...day),
        "time a client may take to accept any byte, and before write_minimum_rate counts"),
      Setting(
        "http.write_minimum_rate", .count(\.http.writeMinimumRate, 0...1_000_000_000),
        "bytes a second that a client must take after write_timeout; 0: none"),
      Setting(
        "http.unsent_bytes", .size(\.http.unsentBytes, (64 << 10)...(1 << 40)),
        "memory for unsent responses, of all clients; above it the slowest are reset"),
      Setting(
        "http.linger_timeout", .duration(\.http.lingerTimeout, millisecond...(.minutes(1))),
        "time to read on after an error answer, so that the client gets to see it"),
      Setting(
        "http.linger_bytes", .size(\.http.lingerBytes, 0...(64 << 20)), "bytes to read on after an error answer"),
      Setting(
        "http.requests_per_connection", .count(\.http.requestsPerConnection, 1...1_000_000_000),
        "requests answered on one connection before it is closed"),
      Setting("http.connections", .count(\.http.connections, 1...1_000_000), "client connections open at once"),
      Setting(
        "http.connections_per_address", .count(\.http.connectionsPerAddress, 1...1_000_000),
        "client connections open at once from one IPv4 address or IPv6 /64"),
      Setting(
        "http.management_connections", .count(\.http.managementConnections, 1...1_000_000),
        "connections open at once to the management listeners"),
    ]
  }

  private static var upstream: [Setting] {
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

  private static var queue: [Setting] {
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

  private static var conventions: [Setting] {
    [
      Setting(
        "upstream.on_open", .opening(\.upstream.conventions.onOpen),
        "messages to send and answers to await before the session is ready", isSecret: true),
      Setting(
        "upstream.heartbeat.client.message", .template(\.upstream.conventions.client.message, .heartbeat),
        "a heartbeat to send", isSecret: true),
      Setting(
        "upstream.heartbeat.client.interval",
        .duration(\.upstream.conventions.client.interval, millisecond * 10...day), "time between two of them"),
      Setting(
        "upstream.heartbeat.client.expect", .matcher(\.upstream.conventions.client.expect),
        "the answer that each must get"),
      Setting(
        "upstream.heartbeat.client.timeout", .duration(\.upstream.conventions.client.timeout, millisecond * 10...day),
        "time within which it must come"),
      Setting(
        "upstream.heartbeat.server.match", .matcher(\.upstream.conventions.server.match),
        "what a heartbeat of the upstream looks like"),
      Setting(
        "upstream.heartbeat.server.reply", .template(\.upstream.conventions.server.reply, .reply),
        "the answer to it", isSecret: true),
      Setting(
        "upstream.heartbeat.server.within", .duration(\.upstream.conventions.server.within, .zero...day),
        "how often one must come at least; 0 is not watched"),
      Setting(
        "upstream.payload_codec", .choice(\.upstream.payloadCodec, PayloadCodec.allCases.map(\.rawValue)),
        "how the upstream packs its binary messages"),
      Setting(
        "upstream.cursor.pointer", .pointer(\.upstream.conventions.cursor.pointer),
        "where in a push the value of ${cursor} stands"),
      Setting(
        "upstream.cursor.match", .matcher(\.upstream.conventions.cursor.match), "which pushes carry it; none: all"),
      Setting(
        "upstream.cursor.initial", .template(\.upstream.conventions.cursor.initial, .value),
        "the cursor before the first push", isSecret: true),
      Setting(
        "upstream.subscriptions.add.match", .matcher(\.upstream.conventions.subscriptions.add.match),
        "what a client's message looks like that makes a subscription"),
      Setting(
        "upstream.subscriptions.add.key", .pointer(\.upstream.conventions.subscriptions.add.key),
        "where in it the key stands"),
      Setting(
        "upstream.subscriptions.remove.match", .matcher(\.upstream.conventions.subscriptions.remove.match),
        "what a client's message looks like that ends one"),
      Setting(
        "upstream.subscriptions.remove.key", .pointer(\.upstream.conventions.subscriptions.remove.key),
        "where in it the key stands"),
      Setting(
        "upstream.subscriptions.ended.match", .matcher(\.upstream.conventions.subscriptions.ended.match),
        "what a push looks like that says a subscription has ended"),
      Setting(
        "upstream.subscriptions.ended.key", .pointer(\.upstream.conventions.subscriptions.ended.key),
        "where in it the key stands"),
      Setting(
        "upstream.subscriptions.entries", .count(\.upstream.conventions.subscriptions.entries, 1...1_000_000),
        "subscriptions that are made again on a new connection"),
      Setting(
        "upstream.subscriptions.bytes", .size(\.upstream.conventions.subscriptions.bytes, 1024...(1 << 30)),
        "bytes of their messages and keys"),
      Setting(
        "upstream.credential.env", .text(\.upstream.conventions.credential.environmentVariable),
        "the environment's variable that holds the credential"),
      Setting(
        "upstream.credential.file", .text(\.upstream.conventions.credential.file),
        "the file that holds it, read at each dial"),
      Setting(
        "upstream.credential.command", .list(\.upstream.conventions.credential.command),
        "the program, and its arguments, that prints it", isSecret: true),
      Setting(
        "upstream.credential.timeout",
        .duration(\.upstream.conventions.credential.timeout, millisecond * 10...(.minutes(10))),
        "time the command may take"),
      Setting(
        "upstream.credential.header", .template(\.upstream.conventions.credential.header, .field),
        "the field of the opening request it goes into", isSecret: true),
      Setting(
        "upstream.credential.query", .text(\.upstream.conventions.credential.query),
        "the parameter of the URL's query it goes into"),
    ]
  }

  private static var delivery: [Setting] {
    [
      Setting("delivery.messages", .count(\.delivery.messages, 1...100_000_000), "pushes kept for readers"),
      Setting("delivery.bytes", .size(\.delivery.bytes, 1024...(1 << 40)), "bytes of pushes kept"),
      Setting("delivery.age", .duration(\.delivery.age, .seconds(1)...(day * 365)), "how long pushes are kept"),
      Setting("delivery.wait", .duration(\.delivery.wait, .zero...day), "how long a poll is held, unless it says"),
      Setting(
        "delivery.maximum_wait", .duration(\.delivery.maximumWait, .zero...day), "how long a poll may ask to be held"),
      Setting(
        "delivery.limit", .count(\.delivery.limit, 1...1_000_000), "messages in one answer, unless the poll says"),
      Setting(
        "delivery.maximum_limit", .count(\.delivery.maximumLimit, 1...1_000_000),
        "messages in one answer that a poll may ask for"),
      Setting(
        "delivery.answer_bytes", .size(\.delivery.answerBytes, 1...(1 << 30)),
        "bytes in one answer, unless the poll says"),
      Setting(
        "delivery.maximum_answer_bytes", .size(\.delivery.maximumAnswerBytes, 1...(1 << 30)),
        "bytes in one answer that a poll may ask for"),
    ]
  }

  private static var rest: [Setting] {
    [
      Setting(
        "shutdown.flush", .duration(\.shutdown.flush, .zero...(.minutes(10))), "time to send what is queued at the end"),
      Setting(
        "shutdown.drain", .duration(\.shutdown.drain, .zero...(.minutes(10))),
        "time for clients to take their answers at the end"),
      Setting(
        "log.level", .choice(\.log.level, ["trace", "debug", "info", "warning", "error"]),
        "least level that is written",
        flag: "log-level"),
      Setting(
        "log.format", .choice(\.log.format, ["auto", "text", "json"]), "auto: text on a terminal, JSON elsewhere",
        flag: "log-format"),
    ]
  }
}
