import ByteStreams
import HTTPCodec

/// The templates of paths, for the access log. They are the templates of `openapi.yaml`, which a test verifies.
extension Router {
  /// Returns the template of a client's path, for any method and whether or not the session, delivery or problem type
  /// exists. Returns `-` for other paths, since such a path is text of the client.
  static func template(of request: borrowing HTTPRequestHead) -> StaticString {
    guard request.path.firstIndex(of: UInt8(ascii: "%")) != nil else { return template(of: request.path) }
    var path = ByteQueue()
    PercentDecoder.decodeUnreserved(request.path, into: &path)
    return template(of: path.bytes)
  }

  private static func template(of path: Span<UInt8>) -> StaticString {
    if path.equals("/openapi.yaml") { return "/openapi.yaml" }
    if path.isItem(below: "/errors/") { return "/errors/{type}" }
    guard path.starts(with: "/v1/") else { return "-" }
    let rest = path.extracting(4..<path.count)
    if rest.equals("messages") { return "/v1/messages" }
    if rest.equals("call") { return "/v1/call" }
    if rest.equals("session") { return "/v1/session" }
    if rest.equals("sessions") { return "/v1/sessions" }
    if rest.equals("reload") { return "/v1/reload" }
    if rest.isItem(below: "deliveries/") { return "/v1/deliveries/{id}" }
    if rest.starts(with: "consumers") { return consumerTemplate(of: rest, isNamed: false) }
    if rest.isItem(below: "sessions/") { return "/v1/sessions/{name}" }
    guard rest.starts(with: "sessions/") else { return "-" }
    let named = rest.extracting(9..<rest.count)
    guard let slash = named.firstIndex(of: UInt8(ascii: "/")), slash > 0 else { return "-" }
    let part = named.extracting((slash + 1)..<named.count)
    if part.equals("messages") { return "/v1/sessions/{name}/messages" }
    if part.equals("call") { return "/v1/sessions/{name}/call" }
    if part.starts(with: "consumers") { return consumerTemplate(of: part, isNamed: true) }
    return part.isItem(below: "deliveries/") ? "/v1/sessions/{name}/deliveries/{id}" : "-"
  }

  /// - Parameter isNamed: whether the path has the name of a session.
  private static func consumerTemplate(of path: Span<UInt8>, isNamed: Bool) -> StaticString {
    if path.equals("consumers") { return isNamed ? "/v1/sessions/{name}/consumers" : "/v1/consumers" }
    if path.isItem(below: "consumers/") {
      return isNamed ? "/v1/sessions/{name}/consumers/{consumer}" : "/v1/consumers/{consumer}"
    }
    guard path.starts(with: "consumers/") else { return "-" }
    let rest = path.extracting(10..<path.count)
    guard let slash = rest.firstIndex(of: UInt8(ascii: "/")), slash > 0 else { return "-" }
    let part = rest.extracting(slash..<rest.count)
    if part.equals("/receive") {
      return isNamed ? "/v1/sessions/{name}/consumers/{consumer}/receive" : "/v1/consumers/{consumer}/receive"
    }
    if part.equals("/settle") {
      return isNamed ? "/v1/sessions/{name}/consumers/{consumer}/settle" : "/v1/consumers/{consumer}/settle"
    }
    if part.equals("/dead") {
      return isNamed ? "/v1/sessions/{name}/consumers/{consumer}/dead" : "/v1/consumers/{consumer}/dead"
    }
    guard part.equals("/dead/retry") else { return "-" }
    return isNamed ? "/v1/sessions/{name}/consumers/{consumer}/dead/retry" : "/v1/consumers/{consumer}/dead/retry"
  }
}

extension Span where Element == UInt8 {
  /// Whether this is `prefix` and one more segment.
  fileprivate func isItem(below prefix: StaticString) -> Bool {
    guard count > prefix.utf8CodeUnitCount, starts(with: prefix) else { return false }
    return extracting(prefix.utf8CodeUnitCount..<count).firstIndex(of: UInt8(ascii: "/")) == nil
  }
}
