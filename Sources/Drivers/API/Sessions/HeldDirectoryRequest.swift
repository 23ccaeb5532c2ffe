import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import Metrics
import Reactor
import RedisStore
import Sessions

/// A request for the list of sessions that several gateways share. It waits for Redis; a PUT also waits until the
/// session has a holder.
final class HeldDirectoryRequest: WaitingRequest {
  enum Change {
    case put(String, SessionDocument, Grant)
    case delete(Session)
    /// Any other request for a session that this gateway does not know, since its copy of the list may be out of date.
    case lookUp(String, orElse: Problem, Grant?)
  }

  private let api: API
  private let request: DefinitionRequest
  private let change: Change
  private let deadline: MonotonicTime

  init(_ api: API, _ request: DefinitionRequest, _ change: Change, at now: MonotonicTime) {
    self.api = api
    self.request = request
    self.change = change
    deadline = now + Self.wait
  }

  /// How long the request waits for Redis. Detecting and replacing a broken connection takes less time.
  private static var wait: TimeSpan { .seconds(5) }

  var heldCount: Gauge? { nil }

  var effect: HeldEffect {
    if case .lookUp = change { .none } else { .change }
  }

  func advance(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    // The outcome is expected soon, and without it the client does not know whether the session exists.
    request.outcome == nil ? .wait(request.notifier, until: deadline, endsAtDrain: false) : .ready
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    request.abandon()
    do throws(Problem) {
      try api.respond(to: change, request.outcome ?? .failed, at: now, into: &response)
    } catch {
      api.respond(with: error, into: &response)
    }
  }

  func abandon() { request.abandon() }
}

extension API {
  /// Looks the session up in Redis. Throws `problem` if gateways do not share sessions.
  func lookUp(
    _ name: String, _ problem: Problem, for grant: Grant?, by client: UInt64, at now: MonotonicTime
  ) throws(Problem) -> Outcome {
    guard let request = common.sessions.created.lookUp(name, by: client) else { throw problem }
    return .wait(HeldDirectoryRequest(self, request, .lookUp(name, orElse: problem, grant), at: now))
  }

  static func sessionIsNew(_ name: String) -> Problem {
    Problem(
      .holderUnavailable,
      "session '\(name)' was created a moment ago at another gateway, and this one knew it too late for this request, which was not executed: repeat it after the time in Retry-After"
    )
  }

  func define(
    _ name: String, _ creation: SessionCreation, as document: SessionDocument, for grant: Grant, at now: MonotonicTime
  ) throws(Problem) -> Outcome {
    try checkList()
    do throws(CreationRefusal) {
      let request = try common.sessions.created.define(name, creation)
      return .wait(HeldDirectoryRequest(self, request, .put(name, document, grant), at: now))
    } catch {
      throw problem(error)
    }
  }

  func remove(
    _ session: Session, code: UInt16, at now: MonotonicTime, into response: inout Response
  ) throws(Problem) -> Outcome {
    try checkList()
    guard let request = common.sessions.created.remove(session, code: code) else {
      // Another request has closed the session meanwhile.
      response.begin(.noContent, nil)
      return .respond
    }
    return .wait(HeldDirectoryRequest(self, request, .delete(session), at: now))
  }

  /// Throws 503 if Redis does not work.
  private func checkList() throws(Problem) {
    if common.store.hasFailed { throw Self.listUnavailable }
  }

  static var listUnavailable: Problem {
    Problem(
      .storeFailed,
      "the sessions that clients create are stored in Redis, which did not confirm the change or cannot be reached: repeat the request after the time in Retry-After, which does no harm if it was executed",
      .retryAfter(1))
  }

  static func cannotLookUp(_ name: String) -> Problem {
    Problem(
      .storeFailed,
      "this gateway does not know session '\(name)', and could not read it from the list of sessions in Redis. Nothing was done: repeat the request after the time in Retry-After",
      .retryAfter(1))
  }

  fileprivate func respond(
    to change: HeldDirectoryRequest.Change, _ outcome: DefinitionRequest.Outcome, at now: MonotonicTime,
    into response: inout Response
  ) throws(Problem) {
    let created = common.sessions.created
    switch (change, outcome) {
    case (.put, .failed), (.delete, .failed): throw Self.listUnavailable
    case (.delete(let session), _):
      created.noteRemoval(of: session)
      response.begin(.noContent, nil)
    case (.lookUp(let name, let problem, let grant), .done):
      guard let session = common.sessions.find(Array(name.utf8).span), grant?.owns(session) ?? false else {
        throw problem
      }
      throw Self.sessionIsNew(name)
    case (.lookUp(let name, _, _), _): throw Self.cannotLookUp(name)
    case (.put(let name, let document, let grant), .exists):
      // Another request was faster, perhaps at another gateway. This gateway may learn of the new session only a moment
      // later.
      guard let existing = common.sessions.find(name) else { throw Self.listUnavailable }
      try confirm(existing, as: document, for: grant)
      respond(withStateOf: existing, for: SessionReader(grant), at: now, into: &response)
    case (.put(let name, _, let grant), .done):
      guard let session = common.sessions.find(name) else {
        throw Problem(
          .sessionClosed, "session '\(name)' was created, and was closed since: create it again")
      }
      created.noteCreation(of: session)
      respond(withCreated: session, for: grant, at: now, into: &response)
    case (.put, .tooMany): throw problem(.tooMany(limit: created.limits.settings.total))
    case (.put, .tooManyOfOwner): throw problem(.tooManyOfOwner(limit: created.limits.settings.perOwner))
    }
  }
}
