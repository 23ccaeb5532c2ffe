import Access
import ByteStreams
import Configuration
import HTTPCodec
import HTTPServer
import Sessions

/// The target of a request, determined by its method and path.
enum Route {
  case send(to: Session)
  case receive(from: Session)
  case delivery(DeliveryTerms.Issued, of: Session)
  /// A delivery of a remote session. Only the holder has the states of deliveries.
  case distantDelivery(of: Session)
  case call(of: Session)
  case session(Session)
  case changeSession(Session)
  case putSession(String)
  case closeSession(Session)
  case sessions
  /// `isRequest`: whether the method is `POST`, which requests a reload. Other methods read the outcome of the last
  /// reload.
  case reload(isRequest: Bool)
  indirect case consumer(ConsumerTarget)
  case document
  case errorPage(Problem.Kind)
  case live, started, metrics, history, status
  /// With `excludingUpstream`, the gateway is ready if it serves requests, whatever the state of the upstream.
  case ready(excludingUpstream: Bool)
  /// `OPTIONS`, with the value of `Allow`.
  case options(StaticString)

  /// Whether Accept-Encoding is read. It is not read for probes, whose clients read only the status code.
  var readsAcceptEncoding: Bool {
    switch self {
    case .live, .ready, .started, .options: false
    default: true
    }
  }

  /// Whether Idempotency-Key has an effect. `OPTIONS` applies to all methods of the path.
  var allowsIdempotencyKey: Bool {
    switch self {
    case .send, .options: true
    default: false
    }
  }

  /// Whether the request may have a query. The handler validates the query, or the query does not matter. `OPTIONS`
  /// applies to all methods of the path.
  fileprivate var readsQuery: Bool {
    switch self {
    case .send, .receive, .delivery, .distantDelivery, .call, .sessions, .closeSession, .ready, .options: true
    case .consumer(let target): target.action == .receive || target.action == .list
    case .session, .changeSession, .putSession, .reload, .document, .errorPage, .live, .started, .metrics, .history,
      .status:
      false
    }
  }
}

/// Maps a request to its route. No other type parses paths.
struct Router {
  /// Every method that any path accepts.
  static let allMethods: StaticString = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

  private let sessions: SessionDirectory

  init(_ sessions: SessionDirectory) { self.sessions = sessions }

  /// Throws the problem of the response if there is no route. Percent-encoded unreserved characters are equivalent to
  /// plain characters (RFC 9110 §4.2.3).
  ///
  /// - Parameter grant: decides which sessions exist for the client. nil for a request that needs no credentials
  ///   (`needsNoCredentials`), whose response does not depend on which sessions exist.
  func route(
    _ request: borrowing HTTPRequestHead, on role: HTTPListener.Role, for grant: Grant?
  ) throws(Problem) -> Route {
    guard request.hasEscapes else {
      return try route(request, at: request.path, on: role, for: grant)
    }
    var path = ByteQueue()
    PercentDecoder.decodeUnreserved(request.path, into: &path)
    return try route(request, at: path.bytes, on: role, for: grant)
  }

  /// Whether the request is for the API, so that the rules of access and the limits of clients apply. A management
  /// listener also has other paths.
  static func isClientRequest(_ request: borrowing HTTPRequestHead, on role: HTTPListener.Role) -> Bool {
    if role == .client { return true }
    guard request.hasEscapes else { return isAPI(request.path) }
    var path = ByteQueue()
    PercentDecoder.decodeUnreserved(request.path, into: &path)
    return isAPI(path.bytes)
  }

  /// Whether the request reads the status page.
  static func isPage(_ request: borrowing HTTPRequestHead) -> Bool {
    (request.method == .get || request.method == .head) && request.path.equals("/")
  }

  private static func isAPI(_ path: Span<UInt8>) -> Bool { path.starts(with: "/v1/") }

  /// Whether the request is served without credentials: the contract, the pages of problems, and OPTIONS, which
  /// browsers send without credentials.
  static func needsNoCredentials(_ request: borrowing HTTPRequestHead) -> Bool {
    if request.method == .options { return true }
    guard request.method == .get || request.method == .head else { return false }
    guard request.hasEscapes else { return isPublic(request.path) }
    var path = ByteQueue()
    PercentDecoder.decodeUnreserved(request.path, into: &path)
    return isPublic(path.bytes)
  }

  private static func isPublic(_ path: Span<UInt8>) -> Bool {
    path.equals("/openapi.yaml") || path.starts(with: "/errors/")
  }

  private func route(
    _ request: borrowing HTTPRequestHead, at path: Span<UInt8>, on role: HTTPListener.Role, for grant: Grant?
  ) throws(Problem) -> Route {
    let route =
      if path.starts(with: "/errors/") {
        // The pages are served on listeners for clients and for management, since the `type` of a problem is relative
        // to the listener that has sent the problem.
        try errorPage(request, path.extracting(8..<path.count))
      } else {
        switch role {
        case .client, .peer: try client(request, at: path, for: grant)
        case .management where Self.isAPI(path): try client(request, at: path, for: grant)
        case .management: try management(request, at: path)
        }
      }
    if !route.readsQuery { try QueryParameter.forEach(of: request, accepting: .none) { _, _ in } }
    return route
  }

  private func errorPage(
    _ request: borrowing HTTPRequestHead, _ name: Span<UInt8>
  ) throws(Problem) -> Route {
    guard let kind = Problem.Kind(name) else {
      throw Problem(
        .notFound, "no problem type is named '\(name.excerpt())': use the 'type' of an error response")
    }
    return try reading(request, .errorPage(kind))
  }

  // MARK: Clients

  /// `/v1/session` is `/v1/sessions/default`, and `/v1/X` is `/v1/sessions/default/X`.
  private func client(
    _ request: borrowing HTTPRequestHead, at path: Span<UInt8>, for grant: Grant?
  ) throws(Problem) -> Route {
    // The target `*` is the server as a whole. `OPTIONS http://host` means the same (RFC 9112 §3.2.4).
    if request.targetForm == .asterisk || request.method == .options && path.isEmpty {
      return .options(Self.allMethods)
    }
    if path.equals("/openapi.yaml") { return try reading(request, .document) }
    guard path.starts(with: "/v1/") else { throw Self.noSuchPath }
    let rest = path.extracting(4..<path.count)
    if rest.equals("sessions") { return try reading(request, .sessions) }
    if rest.equals("reload") { return try reload(request, for: grant) }
    if rest.equals("session") { return try whole(try served(defaultSession(for: grant), grant), request) }
    guard rest.starts(with: "sessions/") else { return try part(rest, of: defaultSession(for: grant), request, grant) }
    let named = rest.extracting(9..<rest.count)
    guard let slash = named.firstIndex(of: UInt8(ascii: "/")) else {
      return try item(named, request, grant)
    }
    let session = try find(named.extracting(first: slash), for: grant)
    return try part(named.extracting((slash + 1)..<named.count), of: session, request, grant)
  }

  /// Returns the route of `/v1/sessions/{name}`.
  private func item(
    _ name: Span<UInt8>, _ request: borrowing HTTPRequestHead, _ grant: Grant?
  ) throws(Problem) -> Route {
    switch request.method {
    case .put:
      let text = name.text()
      guard SessionName.isValid(text) else {
        throw Problem(
          .notFound, "'\(name.excerpt())' is not the name of a session: use \(SessionName.expectation)")
      }
      guard grant?.sessions.contains(name) ?? false else {
        throw Problem(
          .insufficientScope, "the credentials do not allow a session of the name '\(text)': use one that they allow")
      }
      return .putSession(text)
    case .delete: return .closeSession(try find(name, for: grant))
    case .get, .head, .patch: return try whole(try find(name, for: grant), request)
    default: return try reject(request, allowing: "GET, HEAD, PUT, PATCH, DELETE, OPTIONS")
    }
  }

  /// Returns the route of `/v1/reload`. A reload concerns all sessions, so the credentials must allow all sessions.
  private func reload(_ request: borrowing HTTPRequestHead, for grant: Grant?) throws(Problem) -> Route {
    guard grant?.sessions.isAll ?? true else {
      throw Problem(.insufficientScope, "a reload concerns all sessions, and the credentials do not allow all")
    }
    switch request.method {
    case .get, .head: return .reload(isRequest: false)
    case .post: return .reload(isRequest: true)
    default: return try reject(request, allowing: "GET, HEAD, POST, OPTIONS")
    }
  }

  /// Returns the route of a session itself.
  private func whole(_ session: Session, _ request: borrowing HTTPRequestHead) throws(Problem) -> Route {
    switch request.method {
    case .get, .head: .session(session)
    case .patch: .changeSession(session)
    default: try reject(request, allowing: "GET, HEAD, PATCH, OPTIONS")
    }
  }

  /// Returns the route of a path below a session. `session` is nil if the path belongs to the default session and there
  /// is no default session.
  private func part(
    _ path: Span<UInt8>, of session: Session?, _ request: borrowing HTTPRequestHead, _ grant: Grant?
  ) throws(Problem) -> Route {
    if path.equals("messages") {
      let session = try served(session, grant)
      switch request.method {
      case .post: return .send(to: session)
      case .get, .head: return .receive(from: session)
      default: return try reject(request, allowing: "GET, HEAD, POST, OPTIONS")
      }
    }
    if path.equals("call") {
      let session = try served(session, grant)
      guard case .post = request.method else { return try reject(request, allowing: "POST, OPTIONS") }
      return .call(of: session)
    }
    if path.starts(with: "consumers") {
      let below = path.extracting(9..<path.count)
      guard below.isEmpty || below[0] == UInt8(ascii: "/") else { throw Self.noSuchPath }
      return try consumers(below, of: try served(session, grant), request)
    }
    guard path.starts(with: "deliveries/") else { throw Self.noSuchPath }
    let served = try served(session, grant)
    if grant == nil { return .options("GET, HEAD, OPTIONS") }
    guard served.isHere else { return try reading(request, .distantDelivery(of: served)) }
    let id = path.extracting(11..<path.count)
    guard let delivery = served.deliveryTerms.read(id) else {
      // The method is checked first, as it is by a gateway for which the session is remote and which cannot check the
      // id.
      _ = try reading(request, .distantDelivery(of: served))
      let reason =
        IdentifierKind(id) == .push
        ? "this is a cursor or the id of a push, not of a delivery" : "no delivery has this id"
      throw Problem(
        .notFound, "\(reason): use the 'id' of a response to POST /v1/messages, which begins with 'd-'")
    }
    return try reading(request, .delivery(delivery, of: served))
  }

  static var noSuchPath: Problem {
    Problem(
      .notFound,
      "no such path: the paths are /v1/messages, /v1/call, /v1/session, /v1/deliveries/{id}, /v1/consumers, /v1/consumers/{name}, /v1/sessions, /v1/sessions/{name}, /v1/reload, /errors/{type} and /openapi.yaml"
    )
  }

  // MARK: Sessions

  /// Maximum number of session names in the text of an error, since there may be thousands of sessions.
  private static var namesListed: Int { 5 }

  /// Returns the session with this name. A client cannot find out whether a session exists that its grant does not
  /// allow: the response is the same as for a session that does not exist.
  private func find(_ name: Span<UInt8>, for grant: Grant?) throws(Problem) -> Session {
    guard let grant else { return try standIn }
    var missing: String?
    if grant.sessions.contains(name) {
      if let session = sessions.find(name) {
        if grant.owns(session) { return session }
      } else if sessions.created.mayBeIncomplete {
        throw API.listUnavailable
      } else if sessions.created.areShared, SessionName.isValid(name.text()) {
        missing = name.text()
      }
    }
    var error = Problem(.notFound, "session '\(name.excerpt())' does not exist: \(names(for: grant))")
    error.missingSession = missing
    throw error
  }

  /// Returns the default session; nil if there is no default session, or if the grant does not allow it.
  private func defaultSession(for grant: Grant?) -> Session? {
    guard let grant else { return sessions.standIn }
    guard let session = sessions.default, grant.allows(session) else { return nil }
    return session
  }

  private func served(_ session: Session?, _ grant: Grant?) throws(Problem) -> Session {
    if let session { return session }
    guard let grant else { return try standIn }
    throw Problem(
      .notFound,
      "this path belongs to the default session, which does not exist: use /v1/sessions/{name}/…; \(names(for: grant))")
  }

  /// A session for OPTIONS without credentials. Any session will do, since the methods of a path do not depend on which
  /// sessions exist.
  private var standIn: Session {
    get throws(Problem) {
      guard let session = sessions.standIn else { throw Self.noSuchPath }
      return session
    }
  }

  /// The names of the sessions that exist for the client, for the text of an error.
  private func names(for grant: Grant) -> String {
    let visible = sessions.all.lazy.filter { grant.allows($0) }.prefix(Self.namesListed + 1).map(\.name)
    let names = visible.prefix(Self.namesListed).joined(separator: ", ")
    switch visible.count {
    case 0: return grant.isUnrestricted ? "there is no session" : "there is none that the credentials allow"
    case 1: return "the only session is " + names
    case ...Self.namesListed: return "the sessions are " + names
    default:
      return "the sessions are " + names
        + (grant.sessions.isAll ? " and \(sessions.all.count - Self.namesListed) more" : " and more")
    }
  }

  // MARK: Management

  private func management(_ request: borrowing HTTPRequestHead, at path: Span<UInt8>) throws(Problem) -> Route {
    if path.equals("/livez") { return try reading(request, .live) }
    if path.equals("/readyz") { return try reading(request, try readiness(request)) }
    if path.equals("/startupz") { return try reading(request, .started) }
    if path.equals("/metrics") { return try reading(request, .metrics) }
    if path.equals("/history") { return try reading(request, .history) }
    if path.equals("/") || path.isEmpty { return try reading(request, .status) }
    throw Problem(
      .notFound,
      "no such path: the paths are /, /livez, /readyz, /startupz, /metrics, /history, /errors/{type} and the paths of /v1"
    )
  }

  private func readiness(_ request: borrowing HTTPRequestHead) throws(Problem) -> Route {
    var excludesUpstream = false
    try QueryParameter.forEach(of: request, accepting: .readiness) { _, value throws(Problem) in
      guard value.equals("upstream") else {
        throw Problem(
          .invalidParameter,
          "exclude '\(value.excerpt())' is not valid: use upstream, or leave it out to check the upstream as well")
      }
      excludesUpstream = true
    }
    return .ready(excludingUpstream: excludesUpstream)
  }

  // MARK: Methods

  private func reading(_ request: borrowing HTTPRequestHead, _ route: Route) throws(Problem) -> Route {
    switch request.method {
    case .get, .head: route
    default: try reject(request, allowing: "GET, HEAD, OPTIONS")
    }
  }

  func reject(
    _ request: borrowing HTTPRequestHead, allowing methods: StaticString
  ) throws(Problem) -> Route {
    if request.method == .options { return .options(methods) }
    var detail = "\(request.methodBytes.excerpt()) is not allowed for this path: use \(methods)"
    if request.methodBytes.equals("PUT"), methods.description.contains("POST") {
      detail += ". POST sends the body; curl sends POST with --data-binary @FILE, and PUT with -T FILE"
    }
    throw Problem(.methodNotAllowed, detail, .allow(methods))
  }
}
