import ByteStreams

/// The head of one request, as bytes and where its parts lie in them. Valid until the next head begins.
///
/// One of these is used again for request after request; reading a head into it allocates nothing once it has grown to the
/// size of its connection's heads.
package struct HTTPRequestHead: ~Copyable {
  /// The form of a request target (RFC 9112 §3.2).
  package enum TargetForm: UInt8, Sendable {
    /// `/path?query`
    case origin
    /// `http://host/path?query`: its authority replaces the Host field's.
    case absolute
    /// `*`, for OPTIONS: the server as a whole.
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
  /// HTTP/1.0 in place of 1.1 (or of a later 1.x, which is treated as 1.1).
  package internal(set) var isHTTP10 = false
  package internal(set) var framing = Framing.none
  /// Whether the client waits for `100 Continue` before it sends its content (RFC 9110 §10.1.1).
  package internal(set) var expectsContinue = false
  /// Whether the client wishes to send another request after this one.
  package internal(set) var keepsAlive = true

  /// The header fields.
  package internal(set) var fields = HTTPFields()
  /// The trailer fields, once `.trailers` has been told.
  package internal(set) var trailers = HTTPFields()

  var methodRange = 0..<0
  var targetRange = 0..<0
  var pathRange = 0..<0
  /// Empty and at the end of the path when the target has no `?`.
  var queryRange = 0..<0
  var authorityRange = 0..<0

  package init() {}

  /// The method as it was sent.
  package var methodBytes: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes.extracting(methodRange) }
  }

  /// The whole request target as it was sent.
  package var target: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes.extracting(targetRange) }
  }

  /// The path, still percent-encoded. Empty for `http://host` (which means `/`) and for `*`.
  package var path: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes.extracting(pathRange) }
  }

  /// The query after the `?`, still percent-encoded; empty when there is none.
  package var query: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes.extracting(queryRange) }
  }

  /// `host` or `host:port`: of an absolute target where there is one, else of the Host field. Empty in HTTP/1.0 without one.
  package var authority: Span<UInt8> {
    @_lifetime(borrow self)
    get { fields.section.bytes.extracting(authorityRange) }
  }

  /// Bytes of memory held.
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
