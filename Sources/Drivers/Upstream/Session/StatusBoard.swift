import ByteStreams
import Logging
import ProxyCodec
import Threading
import UpstreamSession
import WebSocketCodec

/// Publishes the status of a session. The board is the only writer of `SessionStatus`, except that `SessionHandle` sets
/// `desired`.
///
/// The figures come from the machine. Facts that the machine does not have (URLs, error texts, negotiated parameters)
/// are stored here.
final class StatusBoard {
  private let handle: SessionHandle
  /// The figures that were published last; nil if the next `publish` must publish them even if they are equal.
  private var published: PublishedFigures?
  /// The facts with the changes since the last `publish`, as an array of at most one element. The array is empty if
  /// there are no changes, so that the session keeps no second copy of its facts.
  private var changedFacts: [SessionStatus.Facts] = []
  private var agreement: ClientHandshake.Agreement?
  /// The description of the next failure, for its log line and the status.
  private var detail: String?
  private var report: AttemptReport?
  /// The last attempt or connection that ended. The log line of its end names its URL.
  private var lastEnded: (generation: Generation, url: WebSocketURL?)?

  init(_ handle: SessionHandle) { self.handle = handle }

  /// Publishes the changes. Called after actions are performed, so that a client that reads `ready` can send.
  func publish(_ machine: borrowing SessionStateMachine) {
    let figures = machine.figures
    guard figures != published || !changedFacts.isEmpty else { return }
    let hasChangedState = handle.guarded.withLock { guarded in
      let (last, desired) = (guarded.status.facts.transitions.newest?.sequence, guarded.status.figures.desired)
      show(figures, in: &guarded)
      if let facts = changedFacts.first { guarded.status.facts = facts }
      // Transitions are compared and not states, since two transitions may lead back to the same state.
      return guarded.status.facts.transitions.newest?.sequence != last || guarded.status.figures.desired != desired
    }
    if hasChangedState { handle.noteStateChange() }
    changedFacts = []
  }

  /// Shows the figures of the machine.
  func show(_ figures: PublishedFigures, in guarded: inout SessionHandle.Guarded) {
    published = figures
    let (since, desired) = (guarded.status.figures.since, guarded.status.figures.desired)
    guarded.status.figures = figures
    // Before its first transition, the machine has no value for `since`.
    guarded.status.figures.since = max(since, figures.since)
    // A desired state that a command requests is shown from the request until the machine has processed the command.
    if !guarded.commands.isEmpty { guarded.status.figures.desired = desired }
  }

  /// Called when a command is performed. The desired state that the command requests has been shown since the request.
  /// The next `publish` shows the desired state of the machine.
  func expireDesired() { published = nil }

  // MARK: Facts

  /// Shows the URL and proxy of a connection attempt.
  func show(_ connection: UpstreamConnection) { change { $0.show(connection) } }

  func setAgreement(_ agreement: ClientHandshake.Agreement) { self.agreement = agreement }

  func connectionEnded(_ connection: UpstreamConnection) { lastEnded = (connection.generation, connection.url) }

  /// Runs `body`. If `body` causes a failure, the failure gets this description and report.
  func withExplanation(_ detail: String?, _ report: AttemptReport? = nil, _ body: () -> Void) {
    self.detail = detail
    self.report = report
    body()
    // If no failure has used the description, it must not be attributed to the next failure.
    self.detail = nil
    self.report = nil
  }

  private func change(_ body: (inout SessionStatus.Facts) -> Void) {
    if changedFacts.isEmpty { changedFacts.append(handle.guarded.withLock { $0.status.facts }) }
    body(&changedFacts[0])
  }

  // MARK: Transitions

  /// Records a transition and logs it.
  ///
  /// - Parameters:
  ///   - concerned: the connection of the transition's generation, if it still exists.
  ///   - newest: the connection of the machine's newest generation.
  ///   - explanation: the description of a failure that has none yet.
  func record(
    _ transition: SessionTransition, _ machine: borrowing SessionStateMachine, concerned: UpstreamConnection?,
    newest: UpstreamConnection?, explanation: @autoclosure () -> String?
  ) {
    let isFailure = transition.isFailure
    if isFailure, detail == nil { detail = explanation() }
    change { facts in
      facts.transitions = machine.history
      if transition.to.isSending {
        facts.subprotocol = agreement?.subprotocol
        facts.isCompressed = agreement?.compression != nil
      }
      // The status shows the sending connection, not its successor.
      if let connection = (transition.to.isSending ? nil : newest) ?? concerned { facts.show(connection) }
      if isFailure {
        facts.lastFailure = detail ?? transition.causeText
        facts.lastFailureAt = transition.time
        facts.lastReport = report
      }
    }
    log(transition, failures: machine.failures, concerned)
    if isFailure {
      detail = nil
      report = nil
    }
  }

  private func log(_ transition: SessionTransition, failures: Int, _ connection: UpstreamConnection?) {
    var fields: [LogField] = [
      .text("from", transition.from.name), .text("to", transition.to.name), .text("cause", transition.causeText),
      .number("generation", Int(clamping: transition.generation.number)),
    ]
    let endedURL = lastEnded.flatMap { $0.generation == transition.generation ? $0.url : nil }
    if let url = connection?.url ?? endedURL { fields.append(.text("url", url.redacted)) }
    if let phase = transition.failure?.phase { fields.append(.text("phase", phase.state.name)) }
    if let status = report?.status { fields.append(.number("status", status)) }
    if let roundTrip = transition.roundTrip { fields.append(.seconds("round_trip", roundTrip)) }
    if let next = transition.nextAttempt {
      fields.append(.seconds("next_attempt_in", next - transition.time))
    }
    let logger = handle.logger
    var isSuppressed = transition.isStep
    if !isSuppressed, let limiter = handle.lineLimiter {
      let suppressed = limiter.admit(at: transition.time)
      if let suppressed, suppressed > 0 { fields.append(.number("suppressed", suppressed)) }
      isSuppressed = suppressed == nil
    }
    if transition.isFailure {
      if let detail { fields.append(.text("detail", detail)) }
      if let address = report?.refusedAddress { fields.append(.text("address", address)) }
      fields.append(.number("failures", failures))
      let isStillConnected = transition.from == .replacing && transition.to.isSending
      logger.log(
        isSuppressed ? .debug : .warning,
        isStillConnected
          ? "the new upstream connection failed; the old one stays in use"
          : "the upstream connection failed",
        fields)
    } else {
      logger.log(isSuppressed ? .debug : .info, "the session changed its state", fields)
    }
  }
}

extension SessionStatus.Facts {
  fileprivate mutating func show(_ connection: UpstreamConnection) {
    url = connection.url?.redacted ?? ""
    proxy = connection.proxy?.redacted
  }
}
