import ByteStreams

/// The head of one request: the received bytes and the position of each part. Valid until the next head begins.
///
/// One `HTTPRequestHead` can be used for one head after another. When its memory has grown to the usual size of heads,
/// a further head needs no allocation.
package struct HTTPRequestHead: ~Copyable {
  /// The form of a request target (RFC 9112 §3.2).
  package enum TargetForm: UInt8, Sendable {
    /// `/path?query`
    case origin
    /// `http://host/path?query`. Its authority overrides the Host field.
    case absolute
    /// `*`, only with OPTIONS: the server as a whole.
    case asterisk
  }

  /// How the content of the request is delimited (RFC 9112 §6).
  package enum Framing: Equatable, Sendable {
    case none
    case length(Int)
    case chunked
  }

  package internal(set) var method = HTTPMethod.other
  package internal(set) var targetForm = TargetForm.origin
  /// Whether the path or query contains `%`.
  package internal(set) var hasEscapes = false
  /// Whether the request is HTTP/1.0. Later 1.x versions are treated as 1.1.
  package internal(set) var isHTTP10 = false
  package internal(set) var framing = Framing.none
  /// Whether the client waits for `100 Continue` before it sends its content (RFC 9110 §10.1.1).
  package internal(set) var expectsContinue = false
  /// Whether the client allows another request on this connection.
  package internal(set) var keepsAlive = true

  /// The header fields.
  package internal(set) var fields = HTTPFields()
  /// The trailer fields. Complete from the `.trailers` event on.
  package internal(set) var trailers = HTTPFields()

  var methodRange = 0..<0
  var targetRange = 0..<0
  var pathRange = 0..<0
  /// The range of the query. If the target has no `?`, it is an empty range at the end of the path.
  var queryRange = 0..<0
  var authorityRange = 0..<0

  package init() {}

  /// The method as received.
  package var methodBytes: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes.extracting(methodRange) }
  }

  /// The request target as received.
  package var target: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes.extracting(targetRange) }
  }

  /// The path, percent-encoded. Empty for `http://host` (which means `/`) and for `*`.
  package var path: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes.extracting(pathRange) }
  }

  /// The query after `?`, percent-encoded. Empty if there is none.
  package var query: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes.extracting(queryRange) }
  }

  /// `host` or `host:port`. It is the authority of an absolute target. For other targets it is the value of the Host
  /// field, or empty if an HTTP/1.0 request has no Host field.
  package var authority: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes.extracting(authorityRange) }
  }

  /// Allocated memory in bytes.
  package var allocatedBytes: Int { fields.allocatedBytes + trailers.allocatedBytes }

  mutating func removeAll() {
    fields.removeAll()
    trailers.removeAll()
    method = .other
    targetForm = .origin
    isHTTP10 = false
    framing = .none
    expectsContinue = false
    keepsAlive = true
  }
}
