import ByteStreams

/// A request method (RFC 9110 §9). Methods are case-sensitive: `get` is `other`.
package enum HTTPMethod: UInt8, CaseIterable, Sendable {
  case get, head, post, put, delete, options, patch
  /// Rejected while the head is read, since this server is not a proxy.
  case connect
  /// Never supported, since a TRACE response repeats the request's fields and so would expose credentials to scripts
  /// (RFC 9110 §9.3.8).
  case trace
  /// Any other token. `HTTPRequestHead.methodBytes` has its bytes.
  case other

  /// The method as sent on the wire; empty for `other`.
  package var name: StaticString {
    switch self {
    case .get: "GET"
    case .head: "HEAD"
    case .post: "POST"
    case .put: "PUT"
    case .delete: "DELETE"
    case .options: "OPTIONS"
    case .patch: "PATCH"
    case .connect: "CONNECT"
    case .trace: "TRACE"
    case .other: ""
    }
  }

  @inline(__always)
  static func classify(_ bytes: Span<UInt8>) -> HTTPMethod {
    switch bytes.count {
    case 3: bytes.equals("GET") ? .get : bytes.equals("PUT") ? .put : .other
    case 4: bytes.equals("POST") ? .post : bytes.equals("HEAD") ? .head : .other
    case 5: bytes.equals("PATCH") ? .patch : bytes.equals("TRACE") ? .trace : .other
    case 6: bytes.equals("DELETE") ? .delete : .other
    case 7: bytes.equals("OPTIONS") ? .options : bytes.equals("CONNECT") ? .connect : .other
    default: .other
    }
  }
}
