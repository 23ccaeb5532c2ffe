import ByteStreams
import TestSupport

@testable import UpstreamSession

/// A session and its driver. Each call passes one input to the session, and returns its actions as words: `dial #1`,
/// `resolving→connecting`, `ping 3`, `close 1000 #1`.
final class Dialogue {
  var machine: SessionStateMachine
  var random: SeededGenerator
  var now = MonotonicTime(nanoseconds: 1_000_000_000_000)
  /// The causes of all transitions so far.
  var causes: [TransitionCause] = []

  init(seed: UInt64 = 1, _ change: (inout SessionSettings) -> Void = { _ in }) {
    var settings = SessionSettings()
    change(&settings)
    machine = SessionStateMachine(settings)
    random = SeededGenerator(seed: seed)
  }

  var isReplacementPostponed: Bool { machine.isReplacementPostponed(now: now) }

  // MARK: Inputs

  func start() -> [String] { words(machine.start(now: now, using: &random)) }
  func open() -> [String] { words(machine.open(now: now, using: &random)) }
  func close(_ code: UInt16 = 1000) -> [String] { words(machine.close(code: code, now: now)) }
  func demand() -> [String] { words(machine.demand(now: now)) }
  func networkChanged(hasGained: Bool = true) -> [String] {
    words(machine.networkChanged(hasGained: hasGained, now: now, using: &random))
  }
  func replace() -> [String] { words(machine.replace(because: .configuration, now: now)) }
  func reconfigure(_ change: (inout SessionSettings) -> Void) -> [String] {
    var settings = machine.settings
    change(&settings)
    return words(machine.reconfigure(settings, because: .configuration, now: now))
  }

  func advance(to phase: AttemptPhase, _ generation: UInt64) -> [String] {
    words(machine.advanced(to: phase, Generation(generation), now: now))
  }
  func upgraded(_ generation: UInt64) -> [String] {
    words(machine.upgraded(Generation(generation), now: now, using: &random))
  }
  func setupResponded(_ generation: UInt64) -> [String] {
    words(machine.setupResponseReceived(Generation(generation), now: now, using: &random))
  }
  func redirected(_ generation: UInt64) -> [String] {
    words(machine.redirected(Generation(generation), now: now, using: &random))
  }
  func failed(
    _ reason: AttemptFailure.Reason, in phase: AttemptPhase = .upgrading, _ generation: UInt64? = nil
  ) -> [String] {
    let failure = AttemptFailure(phase: phase, reason: reason)
    let generation = generation.map(Generation.init) ?? machine.generation
    return words(machine.attemptFailed(failure, generation, now: now, using: &random))
  }
  func closed(_ code: UInt16, _ generation: UInt64? = nil) -> [String] {
    let generation = generation.map(Generation.init) ?? machine.generation
    return words(machine.closeReceived(code: code, generation, now: now, using: &random))
  }
  func lost(_ loss: ConnectionLoss, _ generation: UInt64? = nil) -> [String] {
    let generation = generation.map(Generation.init) ?? machine.generation
    return words(machine.connectionLost(loss, generation, now: now, using: &random))
  }
  func bytesReceived(_ generation: UInt64? = nil) -> [String] {
    words(machine.bytesReceived(generation.map(Generation.init) ?? machine.generation, now: now))
  }
  func pongReceived(_ counter: UInt64) -> Bool {
    machine.pongReceived(counter, machine.generation, now: now)
  }

  /// Reports the pong to this ping, like a driver.
  func pong(_ counter: UInt64, _ generation: UInt64) -> [String] {
    let generation = Generation(generation)
    precondition(machine.pongReceived(counter, generation, now: now), "no such ping")
    return words(machine.handOverPongReceived(counter, generation, now: now, using: &random))
  }

  /// Reports that a control message was queued after the bytes before `position` of the output.
  func queued(_ sent: SentControl, at position: UInt64, _ generation: UInt64 = 1) {
    machine.outputQueued(sent, at: position, Generation(generation))
  }

  /// Reports that the upstream has acknowledged every byte before `position` by now.
  func acknowledged(_ position: UInt64, _ generation: UInt64 = 1) -> [String] {
    words(machine.outputAcknowledged(through: position, at: now, Generation(generation), now: now))
  }

  func shutDown() -> [String] { words(machine.shutDown(by: now + .minutes(1), now: now)) }
  func flushed() -> [String] { words(machine.flushed(now: now)) }

  /// Reports that the upstream has announced the end of the connection by a message.
  func endedByMessage(_ generation: UInt64) -> [String] {
    words(
      machine.closeReceived(
        code: 1000, respondingWith: machine.settings.closeCode, Generation(generation), now: now, using: &random))
  }

  /// Lets time pass without an event.
  func pass(_ span: TimeSpan) { now = now + span }

  /// Lets time pass until the next deadline, and reports the deadline. `waited` is the time that has passed.
  func wait() -> [String] { wait { [] } }

  /// Like `wait()`, but with a driver that reports how much output the upstream has acknowledged.
  func wait(acknowledging position: UInt64, _ generation: UInt64 = 1) -> [String] {
    wait { acknowledged(position, generation) }
  }

  private func wait(_ report: () -> [String]) -> [String] {
    let deadline = machine.nextDeadline
    precondition(deadline < .distantFuture, "nothing to wait for in \(machine.observed)")
    waited = max(deadline, now) - now
    now = now + waited
    return report() + words(machine.deadlineReached(now: now, using: &random))
  }

  var waited: TimeSpan = .zero

  // MARK: Shortcuts

  /// Completes the attempt in progress.
  func becomeReady() {
    _ = upgraded(machine.generation.number)
    precondition(machine.observed == .ready, "not ready but \(machine.observed)")
  }

  /// Opens the session and brings it to `ready`.
  func openToReady() {
    _ = open()
    becomeReady()
  }

  /// Reports a close frame, and then the end of the connection.
  func closedAndGone(_ code: UInt16) -> [String] {
    _ = closed(code)
    return lost(.ended)
  }

  var state: SessionState { machine.observed }

  /// The rest of the wait before the next attempt.
  var untilDial: TimeSpan? { machine.nextAttempt.map { $0 - now } }

  func words(_ actions: [SessionAction]) -> [String] {
    actions.map { action in
      switch action {
      case .dial(let dial):
        var text = "dial \(dial.generation)"
        switch dial.target {
        case .endpoint(let index): if index > 0 { text += " url \(index)" }
        case .redirection: text += " redirected"
        }
        if dial.refreshesCredential { text += " afresh" }
        if !dial.offersCompression { text += " uncompressed" }
        return text
      case .skipSetup(let step, let generation): return "skip \(step) \(generation)"
      case .sendSetup(let step, let generation): return "say \(step) \(generation)"
      case .startSending(let generation): return "send \(generation)"
      case .stopSending(let generation, let poison): return "hold \(generation)" + (poison ? " poisoned" : "")
      case .sendHeartbeat(let counter, let generation): return "beat \(counter) \(generation)"
      case .pauseSending(let generation, let successor): return "pause \(generation) for \(successor)"
      case .resumeSending(let generation): return "resume \(generation)"
      case .beginOverlap(let older, let newer): return "two \(older) \(newer)"
      case .endOverlap: return "one"
      case .ping(let counter, let generation): return "ping \(counter) \(generation)"
      case .close(let generation, let code): return "close \(code) \(generation)"
      case .discard(let generation): return "discard \(generation)"
      case .pauseHost(let endpoint, let until): return "hold host \(endpoint) \((until - now).seconds)"
      case .report(let transition):
        causes.append(transition.cause)
        return "\(transition.from.name)→\(transition.to.name)"
      }
    }
  }
}
