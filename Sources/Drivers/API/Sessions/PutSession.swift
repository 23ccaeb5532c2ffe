import Access
import ByteStreams
import Forwarding
import HTTPCodec
import HTTPServer
import JSONCodec
import Profiles
import Reactor
import Sessions
import Upstream

/// The body of a `PUT /v1/sessions/{name}`.
struct SessionDocument {
  /// Maximum size in bytes. The names and values of all variables of a profile fit, even if escaped.
  static var limit: Int { 64 << 10 }

  let profile: String
  let variables: [String: String]

  init(_ body: RequestBody?) throws(Problem) {
    let document = try RequestDocument(body, limit: Self.limit, accepting: ["profile", "variables"])
    guard let profile = try document.string("profile", "the name of a profile in quotes") else {
      throw Problem(
        .invalidDocument, #"'profile' is missing: use {"profile":"NAME","variables":{"NAME":"VALUE"}}"#)
    }
    self.profile = String(decoding: profile, as: UTF8.self)
    variables = try document.strings(in: "variables", "an object with strings, such as {\"symbol\":\"BTC\"}")
  }
}

/// `PUT /v1/sessions/{name}`: creates a session from a profile, or confirms it.
enum PutSession: Endpoint {
  static var route: Route {
    Route(
      method: .put, path: "/v1/sessions/{name}", scope: [], body: .document(limit: SessionDocument.limit),
      place: .newSession(HolderRules(repetition: .harmless, isExclusive: false, isDocument: true)), kind: .session)
  }

  static func read(
    _ head: borrowing HTTPRequestHead, _ name: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> String { name.text() }

  static func execute(
    _ name: String, of request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn, into response: inout Response
  ) throws(Problem) -> Outcome {
    let (api, sessions) = (turn.api, turn.api.common.sessions)
    guard let grant = request.grant else { preconditionFailure("a request without credentials creates no session") }
    let document = try SessionDocument(body)
    if let existing = sessions.find(name) {
      try api.confirm(existing, as: document, for: grant)
      api.respond(withStateOf: existing, for: SessionReader(grant), at: turn.now, into: &response)
      return .respond
    }
    guard api.common.lifecycle.phase != .draining else { throw API.draining }
    guard name != SessionName.default else {
      throw Problem(
        .sessionConflict, "the name 'default' belongs to the session that 'upstream' configures: use another name")
    }
    guard let plan = sessions.profiles.find(document.profile) else { throw api.unknownProfile(document.profile) }
    let (settings, values): (PreparedSettings, [String: String])
    do throws(VariableError) {
      (settings, values) = try plan.session(document.variables)
    } catch {
      throw Problem(.invalidDocument, error.description)
    }
    let creation = SessionCreation(
      profile: document.profile, variables: values, owner: grant.principal, time: turn.now,
      idleLimit: sessions.created.idleLimit)
    if sessions.created.areShared { return try api.define(name, creation, as: document, for: grant, at: turn.now) }
    let session: Session
    do throws(CreationRefusal) {
      session = try sessions.created.create(name, creation, settings, retention: plan.retention)
    } catch {
      // Another request has just created a session of this name.
      guard case .exists(let existing) = error else { throw api.problem(error) }
      try api.confirm(existing, as: document, for: grant)
      api.respond(withStateOf: existing, for: SessionReader(grant), at: turn.now, into: &response)
      return .respond
    }
    api.respond(withCreated: session, for: grant, at: turn.now, into: &response)
    return .respond
  }
}

/// `DELETE /v1/sessions/{name}`. It removes the session from the list of sessions, which every gateway can change.
enum CloseSession: Endpoint {
  static var route: Route {
    Route(
      method: .delete, path: "/v1/sessions/{name}", scope: [], parameters: [.code], place: .anyGateway,
      kind: .session)
  }

  /// Returns the close code to send to the upstream: `code`, or 1000.
  static func read(
    _ head: borrowing HTTPRequestHead, _ variable: Span<UInt8>, of request: ReceivedRequest, _ api: API
  ) throws(Problem) -> UInt16 {
    var code: UInt16 = 1000
    try QueryParameter.forEach(of: head, accepting: [.code]) { _, value throws(Problem) in
      // 1005 and 1006 must not be sent. The other codes below 3000 would state a reason for the closing that does not
      // apply here (RFC 6455 §7.4).
      guard let number = value.decimalValue(), number == 1000 || number == 1001 || (3000...4999).contains(number)
      else {
        throw Problem(
          .invalidParameter, "code '\(value.excerpt())' is not valid: use 1000, 1001 or a number from 3000 to 4999")
      }
      code = UInt16(number)
    }
    return code
  }

  static func execute(
    _ code: UInt16, of request: ReceivedRequest, _ body: RequestBody?, _ turn: Turn, into response: inout Response
  ) throws(Problem) -> Outcome {
    let session = request.session
    guard session.creation != nil else { throw API.configured(session) }
    let created = turn.api.common.sessions.created
    if created.areShared { return try turn.api.remove(session, code: code, at: turn.now, into: &response) }
    // The result is ignored, since it does not matter whether another request has just closed the session.
    created.close(session, code: code)
    response.begin(.noContent, nil)
    return .respond
  }
}

extension API {
  func respond(
    withCreated session: Session, for grant: Grant?, at now: MonotonicTime, into response: inout Response
  ) {
    respond(withStateOf: session, for: SessionReader(grant), at: now, status: .created, into: &response)
    response.fields.append("Location: " as StaticString)
    response.fields.append(String(session.path.dropLast()))
    response.fields.append("\r\n" as StaticString)
  }

  /// Throws the problem of the response unless the document describes the existing session.
  func confirm(
    _ existing: Session, as document: SessionDocument, for grant: Grant
  ) throws(Problem) {
    guard let creation = existing.creation else { throw Self.configured(existing) }
    guard grant.owns(existing) else {
      throw Problem(
        .sessionNotOwned, "the name '\(existing.name)' belongs to the session of another client: use another name")
    }
    guard creation.profile == document.profile else {
      throw Problem(
        .sessionConflict,
        "session '\(existing.name)' has the profile '\(creation.profile)': use another name, or delete it first")
    }
    if creation.variables == document.variables { return }
    // The document may leave out variables that have defaults. If it leaves out a variable, the value in the session
    // must be equal to the present default, which a reload may have changed since the session was created.
    var given = creation.variables
    for (name, value) in document.variables { given[name] = value }
    let isComplete = creation.variables.allSatisfy { name, value in
      document.variables[name] == value
        || document.variables[name] == nil && defaultValue(of: name, in: document.profile) == value
    }
    guard given == creation.variables, isComplete else {
      throw Problem(
        .sessionConflict,
        "session '\(existing.name)' has other values of its variables, which cannot be changed: use another name, or delete it first"
      )
    }
  }

  private func defaultValue(of variable: String, in profile: String) -> String? {
    common.sessions.profiles.find(profile)?.profile.variables.first { $0.name == variable }?.defaultValue
  }

  fileprivate static func configured(_ session: Session) -> Problem {
    Problem(
      .sessionConflict,
      "session '\(session.name)' is configured: the operator changes it in the configuration; use another name for a session of your own"
    )
  }

  fileprivate static var draining: Problem {
    Problem(
      .tooManySessions, "the gateway is shutting down, and creates no sessions: use another instance",
      .retryAfter(1))
  }

  /// Maximum number of profiles in the text of an error.
  private static var profilesListed: Int { 5 }

  fileprivate func unknownProfile(_ name: String) -> Problem {
    let names = common.sessions.profiles.all.map(\.profile.name)
    let shown = names.prefix(Self.profilesListed).joined(separator: ", ")
    let more = names.count > Self.profilesListed ? " and \(names.count - Self.profilesListed) more" : ""
    let known = names.isEmpty ? "the configuration has none" : "the profiles are \(shown)\(more)"
    return Problem(
      .invalidDocument, "profile '\(Array(name.utf8).span.excerpt())' does not exist: \(known)")
  }

  func problem(_ refusal: CreationRefusal) -> Problem {
    if case .tooLarge(let limit) = refusal {
      return Problem(
        .invalidDocument, "the variables are too long: with all others of the session, use at most \(limit) bytes")
    }
    let (reason, wait): (String, Int) =
      switch refusal {
      case .exists(let session): ("session '\(session.name)' exists", 1)
      case .tooMany(let limit): ("\(limit) sessions are open (the setting created_sessions.total)", 60)
      case .tooManyOfOwner(let limit):
        ("this client has \(limit) sessions (the setting created_sessions.per_principal)", 60)
      case .noDescriptors(let limit):
        ("the limit on open files allows \(limit) sessions of clients: the operator can raise it with `ulimit -n`", 60)
      case .notRunning, .tooLarge: ("the gateway is starting or shutting down", 1)
      }
    return Problem(
      .tooManySessions,
      "\(reason): delete sessions that are not needed; idle ones are closed after created_sessions.idle_after",
      .retryAfter(wait))
  }
}

extension Grant {
  /// Whether this client may use a session. It may if it has created the session, if the session is configured, or if
  /// the client may use all sessions.
  func owns(_ session: Session) -> Bool {
    guard let creation = session.creation else { return true }
    return creation.owner == principal || scopes.contains(.admin)
  }
}

extension Problem {
  /// The response to a request for a session that was closed by a client, or because it was idle.
  static func closed(_ session: Session) -> Problem {
    Problem(
      .sessionClosed,
      "session '\(session.name)' is closed: create it again with PUT /v1/sessions/\(session.name)")
  }
}
