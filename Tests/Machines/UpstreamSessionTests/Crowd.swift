import ByteStreams
import TestSupport

@testable import UpstreamSession

/// Many sessions of one process with one host, on a virtual clock: hours pass in seconds, and a seed reproduces a run.
final class Crowd {
  /// The host's reaction to one connection attempt.
  enum Reaction {
    case refuse
    case fail(AttemptFailure.Reason)
    /// Upgrades after `opening`. If `lasts` is given, the connection then ends with `end`.
    case accept(opening: TimeSpan = .milliseconds(20), lasts: TimeSpan? = nil, end: ConnectionLoss = .ended)
  }

  struct DialNote {
    let session: Int
    let time: MonotonicTime
  }

  private enum Event {
    case deadline
    case refused(Generation, AttemptFailure.Reason)
    case upgraded(Generation, lasts: TimeSpan?, end: ConnectionLoss)
    case lost(Generation, ConnectionLoss)
  }

  private struct Entry {
    let time: MonotonicTime
    /// Events of the same time happen in the order in which they were planned.
    let number: Int
    let session: Int
    let event: Event
  }

  static let start = MonotonicTime(nanoseconds: 1_000_000_000_000)

  /// A session machine cannot be copied, so an array contains references to it.
  final class Member {
    var machine: SessionStateMachine
    init(_ settings: SessionSettings) { machine = SessionStateMachine(settings) }
  }

  let members: [Member]
  private(set) var now = Crowd.start
  /// Every attempt that reached the host.
  private(set) var dials: [DialNote] = []
  /// The wait of each session after a failure or loss, by the number of its consecutive failures.
  private(set) var waits: [Int: [TimeSpan]] = [:]
  /// The number of attempts that the limit of the host has delayed.
  private(set) var postponements = 0
  private(set) var inProgress = 0
  private(set) var mostUnderWay = 0

  /// The host's behaviour from now on.
  var reaction: (MonotonicTime, _ session: Int) -> Reaction
  private var gate: HostAttemptLimiter?
  private var tickets: [HostAttemptLimiter.Ticket?]
  private var random: SeededGenerator
  private var planned: [MonotonicTime]
  private var heap: [Entry] = []
  private var entries = 0

  init(
    _ count: Int, seed: UInt64 = 2, gate: HostAttemptLimiter? = nil,
    reaction: @escaping (MonotonicTime, Int) -> Reaction = { _, _ in .accept() },
    _ change: (inout SessionSettings) -> Void = { _ in }
  ) {
    var settings = SessionSettings()
    // No connection becomes silent in this model, and most of the events would be pings.
    settings.liveness.isEnabled = false
    change(&settings)
    members = (0..<count).map { _ in Member(settings) }
    tickets = Array(repeating: nil, count: count)
    planned = Array(repeating: .distantFuture, count: count)
    random = SeededGenerator(seed: seed)
    self.gate = gate
    self.reaction = reaction
  }

  /// Sessions that are ready.
  private(set) var ready = 0

  func openAll() {
    for session in members.indices { perform(members[session].machine.open(now: now, using: &random), session) }
  }

  /// Resets every connection at once, as if the host had died.
  func loseAll(_ loss: ConnectionLoss = .reset) {
    for session in members.indices {
      let generation = members[session].machine.generation
      perform(members[session].machine.connectionLost(loss, generation, now: now, using: &random), session)
    }
  }

  func networkChanges() {
    for session in members.indices {
      perform(members[session].machine.networkChanged(hasGained: true, now: now, using: &random), session)
    }
  }

  func forgetDials() {
    dials = []
    waits = [:]
    postponements = 0
  }

  /// Lets time pass and processes all events, until `end` is reached or `isOver` returns true.
  func run(for span: TimeSpan, until isOver: () -> Bool = { false }) {
    let end = now + span
    while let next = heap.first, next.time <= end, !isOver() {
      popFirst()
      now = max(now, next.time)
      happen(next)
    }
    if !isOver() { now = end }
  }

  // MARK: Events

  private func happen(_ entry: Entry) {
    let session = entry.session
    switch entry.event {
    case .deadline:
      guard planned[session] == entry.time else { return }
      planned[session] = .distantFuture
      perform(members[session].machine.deadlineReached(now: now, using: &random), session)
    case .refused(let generation, let reason):
      dialEnded()
      let failure = AttemptFailure(phase: .connecting, reason: reason)
      perform(members[session].machine.attemptFailed(failure, generation, now: now, using: &random), session)
    case .upgraded(let generation, let lasts, let end):
      dialEnded()
      perform(members[session].machine.upgraded(generation, now: now, using: &random), session)
      if let lasts { plan(now + lasts, session, .lost(generation, end)) }
    case .lost(let generation, let loss):
      if case .closed(let code) = loss {
        perform(members[session].machine.closeReceived(code: code, generation, now: now, using: &random), session)
        perform(members[session].machine.connectionLost(.ended, generation, now: now, using: &random), session)
      } else {
        perform(members[session].machine.connectionLost(loss, generation, now: now, using: &random), session)
      }
    }
  }

  private func perform(_ actions: [SessionAction], _ session: Int) {
    for action in actions {
      switch action {
      case .dial(let dial): self.dial(dial, session)
      case .pauseHost(endpoint: _, let until): gate?.pause("host", until: until)
      case .report(let transition):
        if transition.to == .ready { ready += 1 }
        if transition.from == .ready { ready -= 1 }
        if transition.to == .backoff, transition.cause != .postponed, let next = members[session].machine.nextAttempt {
          waits[members[session].machine.failures, default: []].append(next - now)
        }
      case .sendSetup, .skipSetup, .sendHeartbeat, .startSending, .stopSending, .pauseSending, .resumeSending,
        .beginOverlap,
        .endOverlap, .ping, .close, .discard:
        break
      }
    }
    let deadline = members[session].machine.nextDeadline
    guard planned[session] != deadline else { return }
    planned[session] = deadline
    if deadline < .distantFuture { plan(deadline, session, .deadline) }
  }

  private func dial(_ dial: Dial, _ session: Int) {
    if case .wait(let ticket)? = gate?.admit("host", tickets[session], now: now) {
      tickets[session] = ticket
      postponements += 1
      perform(members[session].machine.postponed(until: ticket.slot, dial.generation, now: now), session)
      return
    }
    tickets[session] = nil
    inProgress += 1
    mostUnderWay = max(mostUnderWay, inProgress)
    dials.append(DialNote(session: session, time: now))
    switch reaction(now, session) {
    case .refuse:
      plan(now + .milliseconds(1), session, .refused(dial.generation, .network))
    case .fail(let reason):
      plan(now + .milliseconds(20), session, .refused(dial.generation, reason))
    case .accept(let opening, let lasts, let end):
      plan(now + opening, session, .upgraded(dial.generation, lasts: lasts, end: end))
    }
  }

  private func dialEnded() {
    inProgress -= 1
    gate?.ended("host")
  }

  // MARK: The order of events

  private func plan(_ time: MonotonicTime, _ session: Int, _ event: Event) {
    entries += 1
    heap.append(Entry(time: time, number: entries, session: session, event: event))
    var child = heap.count - 1
    while child > 0, precedes(child, (child - 1) / 2) {
      heap.swapAt(child, (child - 1) / 2)
      child = (child - 1) / 2
    }
  }

  private func popFirst() {
    heap.swapAt(0, heap.count - 1)
    heap.removeLast()
    var parent = 0
    while true {
      var least = parent
      for child in [2 * parent + 1, 2 * parent + 2] where child < heap.count && precedes(child, least) { least = child }
      guard least != parent else { return }
      heap.swapAt(parent, least)
      parent = least
    }
  }

  private func precedes(_ left: Int, _ right: Int) -> Bool {
    (heap[left].time, heap[left].number) < (heap[right].time, heap[right].number)
  }
}

/// The distance of a sample from a uniform distribution, by Kolmogorov and Smirnov: √n · sup |Fₙ − F|. A uniform sample
/// exceeds 1.95 in one of a thousand cases.
func distanceFromUniform(_ sample: [TimeSpan], _ least: TimeSpan, _ most: TimeSpan) -> Double {
  let sorted = sample.map(\.seconds).sorted()
  let count = Double(sorted.count)
  var distance = 0.0
  for (index, value) in sorted.enumerated() {
    let share = min(1, max(0, (value - least.seconds) / (most.seconds - least.seconds)))
    distance = max(distance, abs(share - Double(index) / count), abs(Double(index + 1) / count - share))
  }
  return distance * count.squareRoot()
}
