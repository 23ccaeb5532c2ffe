import Access
import ByteStreams
import Configuration
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

/// A page of `GET /v1/sessions`.
struct SessionPage {
  /// The default number of sessions per page. All named sessions of a configuration fit, but not a default session in
  /// addition to the maximum of them.
  static var defaultLimit: Int { 1_000 }
  static var maximumLimit: Int { 10_000 }

  var limit = SessionPage.defaultLimit
  /// The name of the last session of the previous page.
  var start: String?
  /// The name of the sessions, or the beginning of their names if `isPrefix`.
  private var name = ""
  private var isPrefix = true
  /// Whether the sessions are connected; nil for all.
  private var ready: Bool?

  /// Whether the request selects a session.
  func contains(_ session: Session) -> Bool {
    guard isPrefix ? session.name.utf8.starts(with: name.utf8) : session.name == name else { return false }
    return ready.map { $0 == session.upstream.isReady } ?? true
  }

  init(_ request: borrowing HTTPRequestHead) throws(Problem) {
    var (limit, start) = (Self.defaultLimit, String?.none)
    var (text, isPrefix, ready) = ("", true, Bool?.none)
    try QueryParameter.forEach(of: request, accepting: .sessions) { parameter, value throws(Problem) in
      switch parameter {
      case .limit:
        guard let number = value.decimalValue(), (1...Self.maximumLimit).contains(number) else {
          throw Problem(
            .invalidParameter,
            "limit '\(value.excerpt())' is not valid: use a number from 1 to \(Self.maximumLimit)")
        }
        limit = number
      case .name:
        isPrefix = !value.isEmpty && value[value.count - 1] == UInt8(ascii: "*")
        text = value.extracting(first: value.count - (isPrefix ? 1 : 0)).text()
        guard SessionName.isValid(text) || isPrefix && text.isEmpty else {
          throw Problem(
            .invalidParameter,
            "name '\(value.excerpt())' is not valid: use the name of a session, or the beginning of names followed by '*'"
          )
        }
      case .ready:
        guard value.equals("true") || value.equals("false") else {
          throw Problem(.invalidParameter, "ready '\(value.excerpt())' is not valid: use true or false")
        }
        ready = value.equals("true")
      default:
        let name = value.text()
        guard SessionName.isValid(name) else {
          throw Problem(
            .invalidParameter, "after '\(value.excerpt())' is not the name of a session: use \(SessionName.expectation)"
          )
        }
        start = name
      }
    }
    (self.limit, self.start) = (limit, start)
    (name, self.isPrefix, self.ready) = (text, isPrefix, ready)
  }
}

/// The parameter of a `DELETE /v1/sessions/{name}`.
enum SessionClosing {
  /// Returns the close code to send to the upstream: `code`, or 1000.
  static func code(of request: borrowing HTTPRequestHead) throws(Problem) -> UInt16 {
    var code: UInt16 = 1000
    try QueryParameter.forEach(of: request, accepting: .closing) { _, value throws(Problem) in
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
}

extension API {
  /// `PUT /v1/sessions/{name}`: creates a session from a profile, or confirms it.
  func putSession(
    _ name: String, _ body: RequestBody?, for client: Grant?, at now: MonotonicTime, into response: inout Response
  ) throws(Problem) -> Outcome {
    guard let grant = client else { preconditionFailure("a request without credentials creates no session") }
    let document = try SessionDocument(body)
    if let existing = common.sessions.find(name) {
      try confirm(existing, as: document, for: grant)
      respond(withStateOf: existing, for: grant, at: now, into: &response)
      return .respond
    }
    guard common.lifecycle.phase != .draining else { throw Self.draining }
    guard name != SessionName.default else {
      throw Problem(
        .sessionConflict, "the name 'default' belongs to the session that 'upstream' configures: use another name")
    }
    guard let plan = common.sessions.profiles.find(document.profile) else { throw unknownProfile(document.profile) }
    let (settings, values): (PreparedSettings, [String: String])
    do throws(VariableError) {
      (settings, values) = try plan.session(document.variables)
    } catch {
      throw Problem(.invalidDocument, error.description)
    }
    let creation = SessionCreation(
      profile: document.profile, variables: values, owner: grant.principal, time: now,
      idleLimit: common.sessions.created.idleLimit)
    if common.sessions.created.areShared { return try define(name, creation, as: document, for: grant, at: now) }
    let session: Session
    do throws(CreationRefusal) {
      session = try common.sessions.created.create(name, creation, settings, retention: plan.retention)
    } catch {
      // Another request has just created a session of this name.
      guard case .exists(let existing) = error else { throw problem(error) }
      try confirm(existing, as: document, for: grant)
      respond(withStateOf: existing, for: grant, at: now, into: &response)
      return .respond
    }
    respond(withCreated: session, for: grant, at: now, into: &response)
    return .respond
  }

  func respond(
    withCreated session: Session, for grant: Grant?, at now: MonotonicTime, into response: inout Response
  ) {
    respond(withStateOf: session, for: grant, at: now, status: .created, into: &response)
    response.fields.append("Location: " as StaticString)
    response.fields.append(String(session.path.dropLast()))
    response.fields.append("\r\n" as StaticString)
  }
}

extension API {
  /// `DELETE /v1/sessions/{name}`.
  func closeSession(
    _ session: Session, code: UInt16, at now: MonotonicTime, into response: inout Response
  ) throws(Problem) -> Outcome {
    guard session.creation != nil else { throw Self.configured(session) }
    if common.sessions.created.areShared { return try remove(session, code: code, at: now, into: &response) }
    // The result is ignored, since it does not matter whether another request has just closed the session.
    common.sessions.created.close(session, code: code)
    response.begin(.noContent, nil)
    return .respond
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

  private static func configured(_ session: Session) -> Problem {
    Problem(
      .sessionConflict,
      "session '\(session.name)' is configured: the operator changes it in the configuration; use another name for a session of your own"
    )
  }

  private static var draining: Problem {
    Problem(
      .tooManySessions, "the gateway is shutting down, and creates no sessions: use another instance",
      .retryAfter(1))
  }

  /// Maximum number of profiles in the text of an error.
  private static var profilesListed: Int { 5 }

  private func unknownProfile(_ name: String) -> Problem {
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
  /// The problem of a request for a session that was closed by a client, or because it was idle.
  static func closed(_ session: Session) -> Problem {
    Problem(
      .sessionClosed,
      "session '\(session.name)' is closed: create it again with PUT /v1/sessions/\(session.name)")
  }
}
