import ByteStreams
import UpstreamProtocol

extension Setting {
  /// Every setting, in the order of the file. (Worked out when asked for: key paths cannot be shared between threads.)
  package static var all: [Setting] { general + http + upstream + conventions + queue + delivery + rest }

  static let day = TimeSpan.hours(24)
  static let millisecond = TimeSpan.milliseconds(1)

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
