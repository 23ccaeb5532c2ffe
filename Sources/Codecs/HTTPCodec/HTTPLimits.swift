/// How much of everything a peer may send, in bytes unless it says otherwise.
///
/// Each limit names what other servers do (its precedent) and the attack it stops. A limit of zero allows none.
package struct HTTPLimits: Sendable, Equatable {
  /// The request line without its CRLF; above it 414. Precedent: nginx `large_client_header_buffers` 8k, Apache
  /// `LimitRequestLine` 8190; RFC 9112 §3 asks for at least 8000. Stops: one endless line that fills memory.
  package var requestLineBytes = 8 * 1024

  /// Start line and fields together; above it 431. Precedent: nginx 4 × 8k, Envoy 60 KiB, h11 and Node 16 KiB.
  /// Stops: a head without end, and the buffer per connection that it costs.
  package var headBytes = 32 * 1024

  /// Field lines in a head; above it 431. Precedent: Apache `LimitRequestFields` 100, Envoy 100, hyper 100.
  /// Stops: thousands of tiny fields that each cost a slot.
  package var fieldCount = 100

  /// Content of one request after its framing is removed; above it 413. Precedent: nginx `client_max_body_size` 1m;
  /// 16 MiB here because it is the WebSocket message limit. Stops: a body that fills memory.
  package var bodyBytes = 16 * 1024 * 1024

  /// What chunk framing may weigh beyond 16 bytes a chunk and twice the data; above it 413. Precedent: Go's
  /// `chunkedReader` (same rule, same 16 KiB). Stops: a byte of content per kilobyte of chunk extensions.
  package var chunkOverheadBytes = 16 * 1024

  /// Extensions in one chunk-size line; above it 413. Precedent: nginx and Node drop or bound them; hyper 16 KiB a body; less here
  /// because no client that anybody knows sends one.
  /// Stops: an endless extension, which is no content and so escapes `bodyBytes`.
  package var chunkExtensionBytes = 256

  /// Digits in a chunk size, leading zeros counted; above it 400. Sixteen hexadecimal digits write any 64-bit number.
  /// Stops: an endless run of zeros, and overflow read differently by the next server.
  package var chunkSizeDigits = 16

  /// Trailer section; above it 431. Precedent: Go and Node count trailers against the head limit; smaller here because
  /// nothing reads them. Stops: a second, unbounded head after the body.
  package var trailerBytes = 8 * 1024

  /// Field lines in a trailer section; above it 431. Stops: as `fieldCount`.
  package var trailerCount = 32

  /// Empty lines before a request line; above it 400. RFC 9112 §2.2 asks for at least one. Precedent: llhttp and h11 skip any
  /// number. Stops: a connection kept alive for nothing by CRLF after CRLF.
  package var leadingEmptyLines = 4

  /// Requests on one connection; the answer to the last says `Connection: close`. Precedent: nginx `keepalive_requests`
  /// 1000 (since 1.19.10). Far higher here because a bridge's clients poll. Stops: a connection that never moves to another process.
  package var requestsPerConnection = 1_000_000

  /// Bytes that may wait unparsed behind a request that is being answered: the driver stops reading beyond it. Precedent:
  /// Envoy's per-connection buffer limit (1 MiB). Stops: pipelining without reading the answers.
  package var pipelinedBytes = 64 * 1024

  package init() {}
}
