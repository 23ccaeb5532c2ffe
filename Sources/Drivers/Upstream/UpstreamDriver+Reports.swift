import ByteStreams
import Logging
import Metrics
import Outbox
import Reactor
import Threading
import UpstreamSession
import WebSocketCodec

/// What links report, told to the machine.
extension UpstreamDriver {
  /// Everything that an attempt needs has been read: its time for the look-up and the rest begins.
  func prepared(_ link: UpstreamLink) {
    machine.prepared(link.generation, now: loop.now)
    apply([])
  }

  func advanced(_ link: UpstreamLink, to phase: OpeningPhase) {
    apply(machine.advanced(to: phase, link.generation, now: loop.now))
    if phase == .upgrading { beginOverlap(with: link) }
  }

  func upgraded(_ link: UpstreamLink, _ agreement: ClientHandshake.Agreement) {
    dialEnded(link)
    self.agreement = agreement
    detail = nil
    guard prepareOpening(link, from: 0) else { return }
    apply(machine.upgraded(link.generation, now: loop.now, using: &entropy))
  }

  /// A dial came to its end without a connection.
  func openingEnded(_ link: UpstreamLink, _ end: OpeningEnd) {
    links.removeAll { $0 === link }
    gone = (link.generation, link.url)
    dialEnded(link)
    overlapLost(link)
    switch end {
    case .discarded:
      apply([])
    case .redirected(let url):
      redirection = url
      // Told only if the machine has had enough of them.
      let limit = SessionStateMachine.redirectionLimit
      detail = "redirected more than \(limit) times, the last time to \(url.redacted)"
      apply(machine.redirected(link.generation, now: loop.now, using: &entropy))
      detail = nil
    case .failed(let failed):
      let report = failed.masked(by: link.mask)
      detail = report.detail
      self.report = report
      refusedBy = link.url
      defer { refusedBy = nil }
      apply(machine.openingFailed(report.failure, link.generation, now: loop.now, using: &entropy))
      forgetCause()
    }
  }

  /// Bytes have come.
  @inline(__always)
  func heard(_ link: UpstreamLink) {
    let actions = machine.bytesReceived(link.generation, now: loop.now)
    if !actions.isEmpty { apply(actions) }
  }

  func ponged(_ link: UpstreamLink, _ counter: UInt64) {
    overlapPonged(counter, on: link)
    let isOurs = machine.pongReceived(counter, link.generation, now: loop.now)
    guard isOurs || retiring === link else { return }
    handle.update { shared in
      shared.outbox.confirm(counter, retired: retiring === link)
      shared.status.roundTrip = machine.roundTrip
    }
    // What waited for an answer to be sent its barrier has it now.
    if let sending { guardBatch(sending) }
    successorMaySend()
    let actions = machine.handOverPonged(counter, link.generation, now: loop.now, using: &entropy)
    if !actions.isEmpty { apply(actions) }
  }

  func closeReceived(_ link: UpstreamLink, code: UInt16, reason: String) {
    detail = "the upstream closed with \(code)"
    if !reason.isEmpty {
      // Upstreams cut a reason that is too long for a close frame, perhaps between two characters.
      let isCut = reason.utf8.count > CloseFrame.maximumReason - 4
      detail?.append(": \(link.mask.applied(to: reason, isCut: isCut))")
    }
    apply(machine.closeReceived(code: code, link.generation, now: loop.now, using: &entropy))
    forgetCause()
  }

  /// A connection is gone, or must go.
  func lost(_ link: UpstreamLink, _ loss: ConnectionLoss, _ reason: String) {
    guard links.contains(where: { $0 === link }) else { return }
    if machine.observed != .closing { detail = reason }
    apply(machine.connectionLost(loss, link.generation, now: loop.now, using: &entropy))
    // A predecessor that goes silently leaves the machine nothing to decide.
    drop(link)
    apply([])
    forgetCause()
  }

  /// What was told of a link that no longer mattered must not be taken for the cause of the next failure.
  private func forgetCause() {
    detail = nil
    report = nil
  }

  // MARK: Telling

  func publish(_ transition: SessionTransition) {
    let isFailure = transition.isFailure
    if isFailure, detail == nil { detail = explanation(of: transition.cause) }
    handle.shared.withLock { shared in
      shared.status.desired = machine.desired
      shared.status.state = transition.to
      shared.status.generation = machine.generation
      shared.status.since = transition.time
      shared.status.failures = machine.failures
      shared.status.connections = machine.connections
      shared.status.nextDial = machine.nextDial
      shared.status.roundTrip = machine.roundTrip
      shared.status.transitions = machine.history
      if transition.to.isSending {
        shared.status.subprotocol = agreement?.subprotocol
        shared.status.isCompressed = agreement?.compression != nil
      }
      // A connection that serves is shown, and not who is to succeed it.
      let newest = transition.to.isSending ? nil : link(machine.generation)
      if let link = newest ?? link(transition.generation) {
        shared.status.url = link.url.redacted
        shared.status.proxy = link.proxy?.redacted
      }
      if isFailure {
        shared.status.lastFailure = detail ?? transition.causeText
        shared.status.lastFailureAt = transition.time
        shared.status.lastReport = report
      }
    }
    log(transition)
    if transition.from.isSending, !transition.to.isSending { sink.lost() }
    metrics.transitions(to: transition.to).add()
    if transition.isConnection { metrics.connections.add() }
    if isFailure { metrics.failures.add() }
    if isFailure {
      detail = nil
      report = nil
    }
  }

  private func log(_ transition: SessionTransition) {
    var fields: [LogField] = [
      .text("from", transition.from.name), .text("to", transition.to.name), .text("cause", transition.causeText),
      .number("generation", Int(clamping: transition.generation.number)),
    ]
    let goneURL = gone.flatMap { $0.generation == transition.generation ? $0.url : nil }
    if let url = link(transition.generation)?.url ?? goneURL { fields.append(.text("url", url.redacted)) }
    if let phase = transition.failure?.phase { fields.append(.text("phase", phase.state.name)) }
    if let status = report?.status { fields.append(.number("status", status)) }
    if let roundTrip = transition.roundTrip { fields.append(.fraction("round_trip", roundTrip.seconds)) }
    if let next = transition.nextDial { fields.append(.fraction("next_attempt_in", (next - transition.time).seconds)) }
    if transition.isFailure {
      if let detail { fields.append(.text("detail", detail)) }
      fields.append(.number("failures", machine.failures))
      let goesOn = transition.from == .replacing && transition.to.isSending
      logger.warning(
        goesOn
          ? "the successor of the upstream connection failed; the old connection goes on"
          : "the upstream session failed",
        fields)
    } else if transition.isStep {
      logger.debug("the upstream session changed", fields)
    } else {
      logger.info("the upstream session changed", fields)
    }
  }
}

extension SessionTransition {
  /// Whether something went wrong, as opposed to on. The end of a closing handshake repeats what its beginning has told.
  var isFailure: Bool {
    switch cause {
    case .openingFailed, .lost, .attemptsExhausted: from != .closing
    case .operatorRequest, .shutdown, .demand, .unused, .progress, .quiet, .heard, .waited, .networkChanged,
      .replacement, .closed, .postponed:
      false
    }
  }

  /// Whether a connection has become ready, be it the first or one that takes over.
  var isConnection: Bool { to == .ready && cause == .progress }

  /// Whether it is one of the steps on the way to a connection, or the end of a wait that was told when it began.
  var isStep: Bool {
    switch cause {
    case .progress: !isConnection
    case .waited: true
    case .operatorRequest, .shutdown, .demand, .unused, .openingFailed, .lost, .quiet, .heard, .networkChanged,
      .postponed, .replacement, .closed, .attemptsExhausted:
      false
    }
  }

  /// Where and why an opening failed; nil where it did not.
  package var failure: OpeningFailure? {
    if case .openingFailed(let failure) = cause { failure } else { nil }
  }

  /// The cause in a word or two, for logs and metrics.
  package var causeText: String {
    switch cause {
    case .operatorRequest: "request"
    case .shutdown: "shutdown"
    case .demand: "demand"
    case .unused: "unused"
    case .progress: "progress"
    case .openingFailed(let failure): "\(failure.phase.state.name) failed: \(failure.reason.text)"
    case .lost(let loss): loss.text
    case .quiet: "quiet"
    case .heard: "heard"
    case .waited: "waited"
    case .networkChanged: "network changed"
    case .replacement(.configuration): "new configuration"
    case .replacement(.credential): "new credential"
    case .replacement(.maximumAge): "maximum age"
    case .closed: "closed"
    case .postponed: "waits for its turn at the host"
    case .attemptsExhausted: "attempts exhausted"
    }
  }
}

extension OpeningFailure.Reason {
  var text: String {
    switch self {
    case .timedOut, .openingTimedOut: "timed out"
    case .nameNotResolved: "name not resolved"
    case .noRoute: "no route"
    case .network: "network"
    case .tls: "tls"
    case .proxy: "proxy"
    case .proxyDenied: "proxy credentials"
    case .status(let status, retryAfter: _): "status \(status)"
    case .handshake: "handshake"
    case .redirect: "redirect"
    case .openingAnswer: "opening answer"
    case .denied: "credentials refused"
    case .preparation: "preparation"
    }
  }
}

extension ConnectionLoss {
  var text: String {
    switch self {
    case .closed(let code): "closed by the upstream with \(code)"
    case .ended: "ended without a close frame"
    case .reset: "reset"
    case .noRoute: "no route"
    case .addressGone: "address gone"
    case .silence: "silence"
    case .heartbeat: "heartbeat"
    case .violation(let code): "protocol violation (\(code))"
    }
  }
}
