import ByteStreams
import HTTPCodec

/// The id that the client has chosen for a request (`X-Request-Id`). Proxies such as nginx and Envoy send such an id,
/// so that the logs of all hops can be correlated.
enum RequestID {
  /// Maximum length. Common ids (UUID, 32 hexadecimal digits) are shorter.
  private static var limit: Int { 128 }

  /// Returns the id. Returns nil if there is no id, or if the id cannot be written to a response and a log unchanged.
  @_lifetime(borrow request)
  static func read(_ request: borrowing HTTPRequestHead) -> Span<UInt8>? {
    guard let id = request.fields.first(.xRequestID), !id.isEmpty, id.count <= limit else { return nil }
    for index in id.indices where !isAllowed(id[index]) { return nil }
    return id
  }

  /// Sets `id` to the id of the request, or makes it empty if there is none.
  static func copy(from request: borrowing HTTPRequestHead, to id: inout ByteQueue) {
    id.removeAll()
    if let found = read(request) { id.append(found) }
  }

  private static func isAllowed(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "+"), UInt8(ascii: "/"), UInt8(ascii: ":"), UInt8(ascii: "="), UInt8(ascii: "@"): true
    default: ASCII.isUnreserved(byte)
    }
  }
}
