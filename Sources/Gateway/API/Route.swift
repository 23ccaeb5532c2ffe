import ByteStreams
import HTTPCodec

/// What a request is for.
enum Route {
  case sendMessage
  case receiveMessages
  case delivery(sequence: UInt64)
  case session
  case changeSession
  case describe
  case live, ready, started, metrics, status
  /// It has been decided already what to answer.
  case problem(Problem)
  case options(StaticString)

  /// Finds the route of a request. A path means the same however its unreserved characters are written (RFC 9110 §4.2.3).
  static func find(_ request: borrowing HTTPRequestHead, for role: HTTPConnection.Role, epoch: String) -> Route {
    guard request.path.firstIndex(of: UInt8(ascii: "%")) != nil else {
      return find(request, at: request.path, for: role, epoch: epoch)
    }
    var path = ByteQueue()
    PercentDecoder.decodeUnreserved(request.path, into: &path)
    return find(request, at: path.bytes, for: role, epoch: epoch)
  }

  private static func find(
    _ request: borrowing HTTPRequestHead, at path: Span<UInt8>, for role: HTTPConnection.Role, epoch: String
  ) -> Route {
    switch role {
    case .client: client(request, at: path, epoch: epoch)
    case .management: management(request, at: path)
    }
  }

  /// Of a client's request. The default session is also to be had under its name.
  private static func client(_ request: borrowing HTTPRequestHead, at path: Span<UInt8>, epoch: String) -> Route {
    // Of the server as a whole, which `OPTIONS http://host` asks for as well (RFC 9112 §3.2.4).
    if request.targetForm == .asterisk || request.method == .options && path.isEmpty {
      return .options("GET, HEAD, POST, PATCH, OPTIONS")
    }
    let prefix: StaticString = "/v1/sessions/default/"
    let isNamed = path.starts(with: prefix)
    let name = path.extracting(min(path.count, isNamed ? prefix.utf8CodeUnitCount : 4)..<path.count)
    if isNamed || path.starts(with: "/v1/") {
      if name.equals("messages") {
        switch request.method {
        case .post: return .sendMessage
        case .get, .head: return .receiveMessages
        default: return reject(request, allowing: "GET, HEAD, POST, OPTIONS")
        }
      }
      if name.equals("session") || isNamed && name.isEmpty {
        switch request.method {
        case .get, .head: return .session
        case .patch: return .changeSession
        default: return reject(request, allowing: "GET, HEAD, PATCH, OPTIONS")
        }
      }
      if name.starts(with: "deliveries/") {
        guard let sequence = sequence(in: name.extracting(11..<name.count), epoch: epoch) else {
          return .problem(
            Problem(.notFound, detail: "no delivery has this id; take it from the answer to POST /v1/messages"))
        }
        return reading(request, .delivery(sequence: sequence))
      }
    }
    if path.equals("/openapi.yaml") { return reading(request, .describe) }
    return .problem(
      Problem(
        .notFound,
        detail: "no such path; there are /v1/messages, /v1/session, /v1/deliveries/{id} and /openapi.yaml"))
  }

  /// Of a request to the management listener.
  private static func management(_ request: borrowing HTTPRequestHead, at path: Span<UInt8>) -> Route {
    if path.equals("/livez") { return reading(request, .live) }
    if path.equals("/readyz") { return reading(request, .ready) }
    if path.equals("/startupz") { return reading(request, .started) }
    if path.equals("/metrics") { return reading(request, .metrics) }
    if path.equals("/") || path.isEmpty { return reading(request, .status) }
    return .problem(
      Problem(.notFound, detail: "no such path; there are /, /livez, /readyz, /startupz and /metrics"))
  }

  private static func reading(_ request: borrowing HTTPRequestHead, _ route: Route) -> Route {
    switch request.method {
    case .get, .head: route
    default: reject(request, allowing: "GET, HEAD, OPTIONS")
    }
  }

  private static func reject(_ request: borrowing HTTPRequestHead, allowing methods: StaticString) -> Route {
    if request.method == .options { return .options(methods) }
    return .problem(Problem(.methodNotAllowed, detail: "this path takes \(methods)", allow: methods))
  }

  /// An id is `epoch.sequence`, as the answer to the POST said.
  private static func sequence(in id: Span<UInt8>, epoch: String) -> UInt64? {
    let prefix = Array((epoch + ".").utf8)
    guard id.count > prefix.count, id.extracting(first: prefix.count).equals(prefix.span) else { return nil }
    return id.extracting(prefix.count..<id.count).decimalValue().map(UInt64.init)
  }
}
