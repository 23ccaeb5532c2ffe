/// Limits on what a peer may send, in bytes unless stated otherwise.
///
/// Each comment says what is limited, which status code a request above the limit gets, which limits other servers have
/// ('Precedent'), and which attack the limit prevents ('Stops'). If a limit is zero, none is allowed.
package struct HTTPLimits: Sendable, Equatable {
  /// The request line without its CRLF; above it 414. Precedent: nginx `large_client_header_buffers` 8k, Apache
  /// `LimitRequestLine` 8190; RFC 9112 §3 recommends at least 8000. Stops: an endless line that fills memory.
  package var requestLineBytes = 8 * 1024

  /// Start line and fields together; above it 431. Precedent: nginx 4 × 8k, Envoy 60 KiB, h11 and Node 16 KiB. Stops:
  /// an endless head, and the buffer it costs per connection.
  package var headBytes = 32 * 1024

  /// Number of field lines in a head; above it 431. Precedent: Apache `LimitRequestFields` 100, Envoy 100, hyper 100.
  /// Stops: thousands of tiny fields, each of which needs memory for its position.
  package var fieldCount = 100

  /// Content of one request without its framing; above it 413. Precedent: nginx `client_max_body_size` 1m. 16 MiB here,
  /// to match the WebSocket message limit. Stops: a body that fills memory.
  package var bodyBytes = 16 * 1024 * 1024

  /// Chunk framing in excess of 16 bytes per chunk plus twice the data; above it 413. Precedent: Go's `chunkedReader`
  /// (same rule, same 16 KiB). Stops: a kilobyte of chunk extensions for each byte of content.
  package var chunkOverheadBytes = 16 * 1024

  /// Extensions in one chunk-size line; above it 413. Precedent: nginx and Node drop or limit them, hyper allows 16 KiB
  /// per body. The limit is lower here because no known client sends extensions. Stops: an endless extension, which
  /// `bodyBytes` does not count.
  package var chunkExtensionBytes = 256

  /// Number of digits in a chunk size, including leading zeros; above it 400. Sixteen hexadecimal digits express any
  /// 64-bit number. Stops: an endless run of zeros, and an overflow that the next server reads differently.
  package var chunkSizeDigits = 16

  /// Trailer section; above it 431. Precedent: Go and Node count trailers against the head limit. Smaller here because
  /// the gateway does not use trailers. Stops: a second, unlimited head after the body.
  package var trailerBytes = 8 * 1024

  /// Number of field lines in a trailer section; above it 431. Stops: the same as `fieldCount`.
  package var trailerCount = 32

  /// Number of empty lines before a request line; above it 400. RFC 9112 §2.2 recommends skipping at least one.
  /// Precedent: llhttp and h11 skip any number. Stops: a client that keeps a connection open with CRLFs.
  package var leadingEmptyLines = 4

  /// Number of requests per connection. The response to the last request has `Connection: close`. Precedent: nginx
  /// `keepalive_requests` 1000 (since 1.19.10). Much higher here because clients of the gateway poll. Stops: a
  /// connection that never moves to another instance.
  package var requestsPerConnection = 1_000_000

  /// Unparsed bytes after a request whose response is pending. Above it the driver stops reading. Precedent: Envoy's
  /// buffer limit per connection (1 MiB). Stops: pipelining without reading the responses.
  package var pipelinedBytes = 64 * 1024

  package init() {}

  /// The limits for requests that another gateway has accepted under the limits in `self`, and then forwards. A
  /// forwarded request has the target and the accepted fields of the client's request, and a few fields that the
  /// gateway adds. One of the added fields describes the client, in base64. It repeats claims of the token that the
  /// head contains, and has two lists of names of at most 1 KiB each.
  package var forPeers: HTTPLimits {
    var limits = self
    limits.headBytes = 2 * headBytes + 8 * 1024
    limits.fieldCount += 8
    limits.requestsPerConnection = .max
    return limits
  }
}
