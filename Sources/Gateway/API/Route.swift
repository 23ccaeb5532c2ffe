import ByteStreams
import Inbox
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

  /// What some path takes.
  static let allMethods: StaticString = "GET, HEAD, POST, PATCH, OPTIONS"

  /// Finds the route of a request. A path means the same however its unreserved characters are written (RFC 9110 §4.2.3).
  static func find(_ request: borrowing HTTPRequestHead, for role: HTTPConnection.Role, deliveries: String) -> Route {
    guard request.path.firstIndex(of: UInt8(ascii: "%")) != nil else {
      return find(request, at: request.path, for: role, deliveries: deliveries)
    }
    var path = ByteQueue()
    PercentDecoder.decodeUnreserved(request.path, into: &path)
    return find(request, at: path.bytes, for: role, deliveries: deliveries)
  }

  private static func find(
    _ request: borrowing HTTPRequestHead, at path: Span<UInt8>, for role: HTTPConnection.Role, deliveries: String
  ) -> Route {
    let route =
      switch role {
      case .client: client(request, at: path, deliveries: deliveries)
      case .management: management(request, at: path)
      }
    if request.query.isEmpty || route.readsQuery { return route }
    return refusedParameter(of: request).map { .problem($0) } ?? route
  }

  /// Whether the query is judged elsewhere, or does not matter. `OPTIONS` is for the path as a whole, whatever its methods take.
  private var readsQuery: Bool {
    switch self {
    case .receiveMessages, .options, .problem: true
    case .sendMessage, .delivery, .session, .changeSession, .describe, .live, .ready, .started, .metrics, .status: false
    }
  }

  /// A query parameter is never ignored silently. That includes probes: `/readyz?exclude=x` expects what it does not get.
  /// Nothing needs a parameter to get past a cache, since no response may be stored.
  private static func refusedParameter(of request: borrowing HTTPRequestHead) -> Problem? {
    var query = HTTPQueryReader(request.query)
    let name: String
    do throws(HTTPQueryError) {
      guard try query.next() else { return nil }
      name = query.name.excerpt()
    } catch {
      name = String(error.parameter.prefix(64))
    }
    return Problem(
      .invalidParameter,
      detail:
        "the query parameter '\(name)' is not known: \(request.methodBytes.text()) \(request.path.excerpt()) takes no parameters"
    )
  }

  /// Of a client's request. `/v1/sessions/default` is `/v1/session`, and `/v1/sessions/default/X` is `/v1/X`.
  private static func client(_ request: borrowing HTTPRequestHead, at path: Span<UInt8>, deliveries: String) -> Route {
    // Of the server as a whole, which `OPTIONS http://host` asks for as well (RFC 9112 §3.2.4).
    if request.targetForm == .asterisk || request.method == .options && path.isEmpty {
      return .options(allMethods)
    }
    if path.equals("/v1/session") || path.equals("/v1/sessions/default") {
      switch request.method {
      case .get, .head: return .session
      case .patch: return .changeSession
      default: return reject(request, allowing: "GET, HEAD, PATCH, OPTIONS")
      }
    }
    let prefix: StaticString = "/v1/sessions/default/"
    let isNamed = path.starts(with: prefix)
    if isNamed || path.starts(with: "/v1/") {
      let name = path.extracting((isNamed ? prefix.utf8CodeUnitCount : 4)..<path.count)
      if name.equals("messages") {
        switch request.method {
        case .post: return .sendMessage
        case .get, .head: return .receiveMessages
        default: return reject(request, allowing: "GET, HEAD, POST, OPTIONS")
        }
      }
      if name.starts(with: "deliveries/") {
        let id = name.extracting(11..<name.count)
        guard let sequence = sequence(in: id, after: deliveries) else {
          let kind = id.starts(with: Cursor.prefix) ? "this is a cursor or the id of a push" : "no delivery has this id"
          return .problem(
            Problem(
              .notFound, detail: "\(kind): use the 'id' of a response to POST /v1/messages, which begins with 'd-'"))
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

  /// An id is the prefix and a number, as the response to the POST said.
  private static func sequence(in id: Span<UInt8>, after prefix: String) -> UInt64? {
    let prefix = Array(prefix.utf8)
    guard id.count > prefix.count, id.extracting(first: prefix.count).equals(prefix.span) else { return nil }
    return id.extracting(prefix.count..<id.count).decimalValue().map(UInt64.init)
  }
}
