import Access
import ByteStreams
import Consumers
import HTTPCodec
import HTTPServer
import Sessions

/// The route of a request, and the session in its path.
struct Target {
  /// The number of the route in the table.
  var route = -1
  /// nil if the path has no session, or a session that need not exist.
  var session: Session?
}

/// Maps requests to routes, by the table of routes and the sessions that exist for the client.
struct Router {
  /// The path of a request, and the facts about access that it determines before the client is known.
  struct Path {
    /// nil if the listener does not have the path.
    let match: RouteTable.Match?
    let listeners: Route.Listeners
    /// Whether the request is for the API, so that the rules of access and the limits of clients apply. A management
    /// listener also has other paths.
    let isOfAPI: Bool
    /// Whether the request is served without credentials. Browsers send OPTIONS without credentials.
    let needsNoCredentials: Bool
    /// Whether links to the path may be followed from a page of any origin.
    let allowsLinks: Bool
  }

  enum Destination {
    case target(Target)
    /// OPTIONS, with the methods of the path.
    case options(Methods)
  }

  let table: RouteTable
  private let sessions: SessionDirectory
  /// The texts for paths that do not exist. They are built once, since clients send such paths often.
  private let noSuchPath: (ofAPI: String, ofManagement: String)

  init(_ table: RouteTable, _ sessions: SessionDirectory) {
    self.table = table
    self.sessions = sessions
    let management = table.listedPaths(on: .management).filter { !$0.hasPrefix("/v1/") }
    noSuchPath = (Self.noSuchPath(table.listedPaths(on: .clients)), Self.noSuchPath(management + ["the paths of /v1"]))
  }

  /// Whether a path on this listener is a path of the API.
  static func isOfAPI(_ path: Span<UInt8>, on role: HTTPListener.Role) -> Bool {
    role != .management || path.starts(with: "/v1/")
  }

  /// - Parameter path: the path of the request, in which unreserved characters are decoded. Percent-encoded unreserved
  ///   characters are equivalent to plain characters (RFC 9110 §4.2.3).
  func find(_ request: borrowing HTTPRequestHead, at path: Span<UInt8>, on role: HTTPListener.Role) -> Path {
    let listeners = Route.Listeners(role)
    let match = table.match(path, on: listeners)
    let isReading = request.method == .get || request.method == .head
    let route = match.flatMap { table.paths[$0.path].route(for: request.method) }
    // Every path below /errors/ is public, even if no problem type has its name.
    let isPublic = route.map { table.routes[$0].scope == nil } ?? path.starts(with: "/errors/")
    return Path(
      match: match, listeners: listeners, isOfAPI: Self.isOfAPI(path, on: role),
      needsNoCredentials: request.method == .options || isReading && isPublic,
      allowsLinks: route.map { table.routes[$0].allowsLinks } ?? false)
  }

  /// Returns the template of a client's path, for any method and whether or not the session, delivery or problem type
  /// exists. Returns `-` for other paths, since such a path is text of the client.
  func template(of path: Span<UInt8>) -> StaticString {
    table.match(path, on: .clients).map { table.paths[$0.path].template } ?? "-"
  }

  /// Throws the problem of the response if there is no route.
  ///
  /// - Parameter grant: decides which sessions exist for the client. nil for a request that needs no credentials, whose
  ///   response does not depend on which sessions exist.
  func route(
    _ request: borrowing HTTPRequestHead, at path: Span<UInt8>, _ found: Path, for grant: Grant?
  ) throws(Problem) -> Destination {
    // The target `*` is the server as a whole. `OPTIONS http://host` means the same (RFC 9112 §3.2.4).
    if found.listeners == .clients, request.targetForm == .asterisk || request.method == .options && path.isEmpty {
      return .options(.all)
    }
    guard let match = found.match else {
      let isOfManagement = found.listeners == .management && !found.isOfAPI
      throw Problem(.notFound, isOfManagement ? noSuchPath.ofManagement : noSuchPath.ofAPI)
    }
    let entry = table.paths[match.path]
    if entry.needsAllSessions, !(grant?.sessions.isAll ?? true) {
      throw Problem(.insufficientScope, "a reload concerns all sessions, and the credentials do not allow all")
    }
    var session: Session?
    if entry.needsSession { session = try find(match, path, for: grant) }
    try validate(path.extracting(match.variable), as: entry.variable)
    guard let number = entry.route(for: request.method) else {
      if request.method == .options { return .options(entry.methods) }
      throw Self.notAllowed(request, entry.methods)
    }
    let route = table.routes[number]
    switch route.place {
    case .anyGateway, .holder: if session == nil { session = try find(match, path, for: grant) }
    case .newSession: session = sessions.find(try newName(path.extracting(match.variable), for: grant))
    case .local: break
    }
    if route.parameters == .none { try QueryParameter.forEach(of: request, accepting: .none) { _, _ in } }
    return .target(Target(route: number, session: session))
  }

  private func validate(_ variable: Span<UInt8>, as kind: RouteTable.Variable) throws(Problem) {
    switch kind {
    case .consumer where !ConsumerName.isValid(variable):
      throw Problem(
        .notFound, "'\(variable.excerpt())' is not the name of a consumer: use \(ConsumerName.expectation)")
    case .problemType where Problem.Kind(variable) == nil:
      throw Problem(
        .notFound, "no problem type is named '\(variable.excerpt())': use the 'type' of an error response")
    case .consumer, .problemType, .text: return
    }
  }

  private static func notAllowed(_ request: borrowing HTTPRequestHead, _ methods: Methods) -> Problem {
    var detail = "\(request.methodBytes.excerpt()) is not allowed for this path: use \(methods.text)"
    if request.method == .put, methods.isSuperset(of: Methods(.post)) {
      detail += ". POST sends the body; curl sends POST with --data-binary @FILE, and PUT with -T FILE"
    }
    return Problem(.methodNotAllowed, detail, .allow(methods))
  }

  private static func noSuchPath(_ paths: [String]) -> String {
    "no such path: the paths are \(paths.dropLast().joined(separator: ", ")) and \(paths.last ?? "")"
  }

  // MARK: Sessions

  /// Maximum number of session names in the text of an error, since there may be thousands of sessions.
  private static var namesListed: Int { 5 }

  /// Returns the session in the path of a request, or the default session if the path has none. nil without a grant.
  private func find(_ match: RouteTable.Match, _ path: Span<UInt8>, for grant: Grant?) throws(Problem) -> Session? {
    guard let grant else { return nil }
    if let name = match.session { return try find(path.extracting(name), for: grant) }
    if let session = sessions.default, grant.allows(session) { return session }
    throw Problem(
      .notFound,
      "this path belongs to the default session, which does not exist: use /v1/sessions/{name}/…; \(names(for: grant))")
  }

  /// Returns the session with this name. A client cannot find out whether a session exists that its grant does not
  /// allow: the response is the same as for a session that does not exist.
  private func find(_ name: Span<UInt8>, for grant: Grant) throws(Problem) -> Session {
    var missing: String?
    if grant.sessions.contains(name) {
      if let session = sessions.find(name) {
        if grant.owns(session) { return session }
      } else if sessions.created.mayBeIncomplete {
        throw API.cannotLookUp(name.excerpt())
      } else if sessions.created.areShared, SessionName.isValid(name.text()) {
        missing = name.text()
      }
    }
    var error = Problem(.notFound, "session '\(name.excerpt())' does not exist: \(names(for: grant))")
    error.missingSession = missing
    throw error
  }

  /// Returns the name of a session that the request may create.
  @_lifetime(copy name)
  private func newName(_ name: Span<UInt8>, for grant: Grant?) throws(Problem) -> Span<UInt8> {
    guard SessionName.isValid(name.text()) else {
      throw Problem(
        .notFound, "'\(name.excerpt())' is not the name of a session: use \(SessionName.expectation)")
    }
    guard grant?.sessions.contains(name) ?? false else {
      throw Problem(
        .insufficientScope,
        "the credentials do not allow the session name '\(name.text())': use a name that they allow")
    }
    return name
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
}
