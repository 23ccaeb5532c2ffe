import API
import ByteStreams
import HTTPCodec
import HTTPServer
import ProxyCodec

/// Limits for clients.
extension SettingSection {
  static func http(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let http = gateway.section("http", \.http)
    let api = gateway.section("http", \.api)
    return SettingSection(
      settings: [
        api(
          "hosts", \.hosts, .hosts, "names accepted in Host, besides localhost and loopback addresses; others get 403"),
        http(
          "trusted_proxies", \.trustedProxies, .trustedProxies,
          "reverse proxies that name the client: addresses, blocks (10.0.0.0/8) or unix"),
        http(
          "proxy_protocol", \.proxyProtocol, .choice,
          "required: trusted proxies begin each connection with a PROXY protocol header, version 1 or 2; or off"),
        api(
          "origins", \.origins, .origins,
          "origins whose web pages may send requests, besides the gateway's own; others get 403"
        ),
        http(
          "request_line_bytes", \.limits.requestLineBytes, .size(256...(1 << 20)),
          "maximum length of the request line; above it 414"),
        http("head_bytes", \.limits.headBytes, .size(1024...(1 << 20)), "maximum size of a request head; above it 431"),
        http("fields", \.limits.fieldCount, .count(8...10_000), "maximum number of header fields; above it 431"),
        http(
          "empty_lines", \.limits.leadingEmptyLines, .count(1...1000),
          "maximum number of empty lines before a request line; above it 400"),
        http("body_bytes", \.limits.bodyBytes, .size(1...(1 << 30)), "maximum size of a request body; above it 413"),
        http(
          "pending_body_bytes", \.pendingBodyBytes, .size((64 << 10)...(1 << 40)),
          "maximum memory for partially received bodies of all clients; above it 503"),
        api(
          "inflation_ratio", \.inflationRatio, .count(10...100_000),
          "maximum ratio of decompressed to compressed size of a gzip body; above it 413"),
        api(
          "batch_messages", \.batchMessages, .count(1...1_000_000),
          "maximum number of messages in one batch; above it 413"),
        api(
          "idempotency_keys", \.idempotencyKeys, .count(1...16_777_216),
          "maximum number of remembered idempotency keys; above it keyed requests get 503"),
        http(
          "chunk_extension_bytes", \.limits.chunkExtensionBytes, .size(0...(64 << 10)),
          "maximum length of a chunk extension; above it 413"),
        http(
          "chunk_overhead_bytes", \.limits.chunkOverheadBytes, .size(0...(1 << 20)),
          "maximum chunk framing in excess of 16 bytes per chunk plus twice the data; above it 413"),
        http(
          "trailer_bytes", \.limits.trailerBytes, .size(0...(1 << 20)),
          "maximum size of a trailer section; above it 431"),
        http(
          "trailers", \.limits.trailerCount, .count(0...10_000),
          "maximum number of fields in a trailer section; above it 431"),
        http(
          "pipelined_bytes", \.limits.pipelinedBytes, .size(1024...(16 << 20)),
          "maximum number of bytes read ahead of a pending response"),
        http(
          "head_timeout", \.headTimeout, .duration(millisecond...day),
          "deadline for the whole request head; after it 408"),
        http(
          "body_timeout", \.bodyTimeout, .duration(millisecond...day),
          "maximum pause within a body, and time before body_minimum_rate applies; after it 408"),
        http(
          "body_minimum_rate", \.bodyMinimumRate, .count(0...1_000_000_000),
          "minimum average rate of a body in bytes per second; below it 408; 0: no minimum"),
        http(
          "idle_timeout", \.idleTimeout, .duration(millisecond...day), "maximum idle time between two requests"),
        http(
          "write_timeout", \.writeTimeout, .duration(millisecond...day),
          "maximum time without an acknowledged byte of a response, and before write_minimum_rate applies"),
        http(
          "write_minimum_rate", \.writeMinimumRate, .count(0...1_000_000_000),
          "minimum average rate at which a client must read, in bytes per second; 0: no minimum"),
        http(
          "unsent_bytes", \.unsentBytes, .size((64 << 10)...(1 << 40)),
          "maximum memory for unsent responses of all clients; above it the slowest clients are reset"),
        http(
          "linger_timeout", \.lingerTimeout, .duration(millisecond...(.minutes(1))),
          "time to continue reading after an error response, so that the client receives it"),
        http(
          "linger_bytes", \.lingerBytes, .size(0...(64 << 20)),
          "maximum number of bytes to read and discard after an error response"),
        http(
          "requests_per_connection", \.limits.requestsPerConnection, .count(1...1_000_000_000),
          "requests per connection, then it closes"),
        http("connections", \.connections, .count(1...1_000_000), "maximum number of client connections"),
        http(
          "connections_per_address", \.connectionsPerAddress, .count(1...1_000_000),
          "maximum number of client connections per IPv4 address or IPv6 /64"),
        http(
          "management_connections", \.managementConnections, .count(1...1_000_000),
          "maximum number of connections to the management listeners"),
      ],
      orders: [
        http.order(
          "request_line_bytes", \.limits.requestLineBytes, "head_bytes", \.limits.headBytes,
          "the request line is a part of the head"),
        http.order(
          "body_bytes", \.limits.bodyBytes, "pending_body_bytes", \.pendingBodyBytes,
          "a body of that size could never be accepted"),
      ], rules: [http.rule(proxyProblems)])
  }

  private static func proxyProblems(_ http: HTTPServerSettings) -> [SettingProblem] {
    guard http.proxyProtocol == .required, http.trustedProxies.isEmpty else { return [] }
    return [
      SettingProblem(
        "trusted_proxies", .missing, "'http.proxy_protocol' is required: set the addresses of the proxies that send it")
    ]
  }
}
