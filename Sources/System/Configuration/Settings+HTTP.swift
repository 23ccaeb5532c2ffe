import ByteStreams
import HTTPCodec

/// What clients may do.
extension SettingSection {
  static func http(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let http = gateway.section("http", \.http)
    return SettingSection(
      settings: [
        http(
          "hosts", \.hosts, .hosts, "host names accepted in Host, besides localhost and loopback addresses, else 403"),
        http(
          "origins", \.origins, .origins,
          "origins whose web pages may send requests, besides the gateway's own, else 403"
        ),
        http("request_line_bytes", \.limits.requestLineBytes, .size(256...(1 << 20)), "longest request line, else 414"),
        http("head_bytes", \.limits.headBytes, .size(1024...(1 << 20)), "largest request head, else 431"),
        http("fields", \.limits.fieldCount, .count(8...10_000), "most fields in a head, else 431"),
        http(
          "empty_lines", \.limits.leadingEmptyLines, .count(1...1000),
          "most empty lines before a request line, else 400"),
        http("body_bytes", \.limits.bodyBytes, .size(1...(1 << 30)), "largest request body, else 413"),
        http(
          "pending_body_bytes", \.pendingBodyBytes, .size((64 << 10)...(1 << 40)),
          "memory for partially received bodies, of all clients, else 503"),
        http("batch_messages", \.batchMessages, .count(1...1_000_000), "messages in one batch of a POST, else 413"),
        http(
          "chunk_extension_bytes", \.limits.chunkExtensionBytes, .size(0...(64 << 10)),
          "longest extension of a chunk, else 413"),
        http(
          "chunk_overhead_bytes", \.limits.chunkOverheadBytes, .size(0...(1 << 20)),
          "chunk framing beyond 16 bytes a chunk and twice the data, else 413"),
        http("trailer_bytes", \.limits.trailerBytes, .size(0...(1 << 20)), "largest trailer section, else 431"),
        http("trailers", \.limits.trailerCount, .count(0...10_000), "most fields in a trailer section, else 431"),
        http(
          "pipelined_bytes", \.limits.pipelinedBytes, .size(1024...(16 << 20)),
          "bytes read ahead of the answer that is owed"),
        http("head_timeout", \.headTimeout, .duration(millisecond...day), "time for a whole request head, else 408"),
        http(
          "body_timeout", \.bodyTimeout, .duration(millisecond...day),
          "longest pause in a body, and time before body_minimum_rate counts, else 408"),
        http(
          "body_minimum_rate", \.bodyMinimumRate, .count(0...1_000_000_000),
          "bytes a second that a body must keep up after body_timeout; 0: none"),
        http(
          "idle_timeout", \.idleTimeout, .duration(millisecond...day), "time a connection may wait between requests"),
        http(
          "write_timeout", \.writeTimeout, .duration(millisecond...day),
          "time a client may take to accept any byte, and before write_minimum_rate counts"),
        http(
          "write_minimum_rate", \.writeMinimumRate, .count(0...1_000_000_000),
          "bytes a second that a client must take after write_timeout; 0: none"),
        http(
          "unsent_bytes", \.unsentBytes, .size((64 << 10)...(1 << 40)),
          "memory for unsent responses, of all clients; above it the slowest are reset"),
        http(
          "linger_timeout", \.lingerTimeout, .duration(millisecond...(.minutes(1))),
          "time to read on after an error answer, so that the client gets to see it"),
        http("linger_bytes", \.lingerBytes, .size(0...(64 << 20)), "bytes to read on after an error answer"),
        http(
          "requests_per_connection", \.limits.requestsPerConnection, .count(1...1_000_000_000),
          "requests answered on one connection before it is closed"),
        http("connections", \.connections, .count(1...1_000_000), "client connections open at once"),
        http(
          "connections_per_address", \.connectionsPerAddress, .count(1...1_000_000),
          "client connections open at once from one IPv4 address or IPv6 /64"),
        http(
          "management_connections", \.managementConnections, .count(1...1_000_000),
          "connections open at once to the management listeners"),
      ],
      orders: [
        http.order(
          "request_line_bytes", \.limits.requestLineBytes, "head_bytes", \.limits.headBytes,
          "the request line is a part of the head"),
        http.order(
          "body_bytes", \.limits.bodyBytes, "pending_body_bytes", \.pendingBodyBytes,
          "no body of this size would ever be accepted"),
      ])
  }
}
