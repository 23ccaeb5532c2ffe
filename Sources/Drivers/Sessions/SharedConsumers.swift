import ByteStreams
import Consumers
import Inbox
import Journal
import Reactor
import Synchronization
import Threading
import Totals

/// The consumers of one session, shared by all event loops.
///
/// A push costs one atomic load if no receive is held. Leases and delays end by a timer on the session's loop.
///
/// If the session is stored, each change is submitted in the order in which it is made. Nobody is to learn of it before `unstored` is nil.
package final class SharedConsumers: Sendable {
  struct State: ~Copyable {
    var table = ConsumerTable()
    /// For the random bits of leases.
    var entropy = EntropyPool()
    /// Wakes the timer. nil before the session has started.
    var clock: Signal?
    /// Whether the session is closed: it has no consumers any more, and none is created.
    var isClosed = false
    /// When the timer is to fire at the latest.
    var alarm = MonotonicTime.distantFuture
    /// The part of the budget that dead letters take.
    var deadBytes = 0
    /// The memory of consumers that is counted in the budget.
    var memory = 0
    /// That of the last change; nil: there was none, or consumers are not stored.
    var lastTicket: JournalTicket?

    /// Lets the timer fire at `deadline` at the latest.
    mutating func lowerAlarm(to deadline: MonotonicTime) {
      guard deadline < alarm else { return }
      alarm = deadline
      clock?.notify()
    }
  }

  /// Lock order: taken before the locks of the inbox.
  let state = Locked(State())
  private let inbox: SharedInbox
  /// Limits the dead letters of the sessions that clients create; nil if this one is configured.
  private let budget: RetentionBudget?
  /// The client that has created the session; 0 if clients cannot be told apart.
  private let owner: UInt64
  /// nil if consumers are not stored.
  let journal: (any SessionJournal)?
  /// Number of requests that wait for the store.
  let storeWaiters = Locked(0)
  /// Number of held receives. Incremented before a receive checks for pushes the last time.
  private let held = Atomic<Int>(0)
  /// Notified when a held receive may have something to return.
  package let notifier = Notifier()

  package init(inbox: SharedInbox, budget: RetentionBudget? = nil, owner: String = "") {
    self.inbox = inbox
    self.budget = budget
    self.owner = TotalUser(owner, at: 0).principal
    journal = nil
  }

  /// Consumers that are stored.
  ///
  /// - Parameter restored: those of earlier processes.
  init(
    inbox: SharedInbox, restoring restored: StoredConsumers, in journal: any SessionJournal,
    budget: RetentionBudget? = nil, owner: String = ""
  ) {
    self.inbox = inbox
    self.budget = budget
    self.owner = TotalUser(owner, at: 0).principal
    self.journal = journal
    state.withLock { state in
      state.table = ConsumerTable(restoring: restored, from: inbox, at: .present)
      state.alarm = state.table.nextDeadline() ?? .distantFuture
      countMemory(&state)
    }
  }

  deinit {
    budget?.add(-deadBytes)
    let memory = state.withLock { $0.memory }
    budget?.consumers.withLock { $0.remove(memory, by: owner) }
  }

  /// Counts what consumers have by now. Called after every change, with the lock.
  private func countMemory(_ state: inout State) {
    guard let budget, state.table.memory != state.memory else { return }
    let growth = state.table.memory - state.memory
    state.memory = state.table.memory
    state.table.mayGrow = budget.consumers.withLock { total in
      if growth > 0 { total.add(growth, by: owner) } else { total.remove(-growth, by: owner) }
      return total.admits(by: owner)
    }
  }

  // MARK: Dead letters

  /// The bytes of the dead letters that count towards the budget.
  var deadBytes: Int { state.withLock { $0.deadBytes } }

  /// Drops the oldest dead letters until at most `bytes` are kept.
  func trimDeadLetters(toBytes bytes: Int) {
    guard budget != nil else { return }
    state.withLock { $0.table.dropDeadLetters(beyond: bytes) }
    countDeadLetters()
  }

  /// To be called after every change that adds or removes dead letters.
  private func countDeadLetters() {
    guard let budget else { return }
    let growth = state.withLock { state in
      let before = state.deadBytes
      state.deadBytes = state.table.deadBytes
      return state.deadBytes - before
    }
    budget.add(growth)
  }

  // MARK: The session

  /// A push or a gap was appended.
  func pushed() {
    if held.load(ordering: .sequentiallyConsistent) > 0 { notifier.notify() }
  }

  package var hasReaders: Bool { held.load(ordering: .acquiring) > 0 }

  /// Removes all consumers. Held receives end.
  func close() {
    let clock = state.withLock { state in
      state.isClosed = true
      state.table.removeAll()
      countMemory(&state)
      return state.clock
    }
    countDeadLetters()
    notifier.notify()
    // The timer releases itself.
    clock?.notify()
  }

  var isClosed: Bool { state.withLock { $0.isClosed } }

  func start(_ clock: Signal) {
    state.withLock { $0.clock = clock }
    clock.notify()
  }

  /// Ends the cycle of references between the timer and its signal. Called on the session's loop.
  func stop() {
    let clock = state.withLock { $0.clock.take() }
    clock?.close()
  }

  /// When the timer is to fire; nil if never.
  var nextAlarm: MonotonicTime? {
    let alarm = state.withLock { $0.alarm }
    return alarm == .distantFuture ? nil : alarm
  }

  /// Does what is due. Returns when there is something to do next.
  func tick(at now: MonotonicTime) -> MonotonicTime? {
    let inbox = inbox
    let (hasNews, next) = state.withLock { state in
      let hasNews = state.table.expire(now: now, inbox)
      let next = state.table.nextDeadline()
      state.alarm = next ?? .distantFuture
      submit(&state)
      countMemory(&state)
      return (hasNews, next)
    }
    countDeadLetters()
    if hasNews { notifier.notify() }
    return next
  }

  /// Calls `body` with the table and wakes the timer if it must fire earlier than it would.
  ///
  /// - Parameters:
  ///   - mustStore: whether the change is refused while the store does not work.
  ///   - use: the consumer that a client uses, and when. That counts even if the change is refused: a consumer is not idle because of the store.
  private func withTable<Result: Sendable>(
    deadline: MonotonicTime = .distantFuture, mustStore: Bool = false, use: (name: String, time: MonotonicTime)? = nil,
    _ body: (inout ConsumerTable, inout EntropyPool) throws(ConsumerRefusal) -> Result
  ) throws(ConsumerRefusal) -> Result {
    let result = state.withLock { state -> Swift.Result<Result, ConsumerRefusal> in
      do throws(ConsumerRefusal) {
        if state.isClosed { throw .unknown }
        if mustStore, let journal, journal.isFailed || journal.isOverfull {
          if let use { state.table.noteUse(of: use.name, at: use.time) }
          throw .notStored
        }
        defer {
          submit(&state)
          countMemory(&state)
        }
        let result = try body(&state.table, &state.entropy)
        state.lowerAlarm(to: deadline)
        return .success(result)
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  // MARK: Consumers

  /// Creates or confirms a consumer. Returns whether it is new, and its state.
  package func put(
    _ name: String, _ settings: ConsumerSettings, start: Cursor, by client: UInt64 = 0, now: MonotonicTime
  ) throws(ConsumerRefusal) -> (isNew: Bool, status: ConsumerStatus) {
    let (inbox, budget, owner) = (inbox, budget, owner)
    return try withTable(deadline: now + settings.idle, mustStore: true, use: (name, now)) {
      table, _ throws(ConsumerRefusal) in
      let isNew = try table.put(name, settings, start: start, by: client, now: now) { bytes in
        budget?.consumers.withLock { $0.admits(bytes, by: owner) } ?? true
      }
      return (isNew, try table.status(of: name, inbox))
    }
  }

  /// Creates a consumer of the configuration, which starts at the next push, or makes an existing one of this name that one.
  ///
  /// - Parameter isNewWorker: whether those that have leases of it have ended.
  func take(
    _ name: String, _ settings: ConsumerSettings, isNewWorker: Bool, now: MonotonicTime
  ) throws(ConsumerRefusal) {
    let inbox = inbox
    try withTable(deadline: now + settings.idle) { table, _ throws(ConsumerRefusal) in
      table.take(name, settings, start: inbox.latest, isNewWorker: isNewWorker, now: now, inbox)
    }
    countDeadLetters()
    notifier.notify()
  }

  /// nil if there is no such consumer.
  package func settings(of name: String) -> ConsumerSettings? { state.withLock { $0.table.settings(of: name) } }

  /// Number of pushes after the position of a consumer; nil if there is no such consumer.
  func lag(of name: String) -> UInt64? {
    let inbox = inbox
    return state.withLock { $0.table.lag(of: name, inbox) }
  }

  /// Takes time in proportion to the records of the consumer if it is a webhook. `settings` and `lag` do not.
  package func status(of name: String) throws(ConsumerRefusal) -> ConsumerStatus {
    let inbox = inbox
    return try withTable { table, _ throws(ConsumerRefusal) in try table.status(of: name, inbox) }
  }

  package var statuses: [ConsumerStatus] {
    let inbox = inbox
    return state.withLock { $0.table.statuses(inbox) }
  }

  /// The next `limit` consumers after a name, by name.
  package func statuses(after name: String, limit: Int) -> ConsumerPage {
    let inbox = inbox
    return state.withLock { $0.table.statuses(after: name, limit: limit, inbox) }
  }

  package var summary: ConsumerSummary {
    let inbox = inbox
    return state.withLock { $0.table.summary(inbox) }
  }

  /// Held receives of it end.
  package func remove(_ name: String) throws(ConsumerRefusal) {
    try withTable(mustStore: true) { table, _ throws(ConsumerRefusal) in
      guard table.remove(name) else { throw .unknown }
    }
    countDeadLetters()
    notifier.notify()
  }

  // MARK: Receiving

  /// Begins a receive. A held receive of the same reader ends.
  package func beginReceive(
    _ name: String, acknowledging cursor: ReadStart?, now: MonotonicTime
  ) throws(ConsumerRefusal) -> ReceiveTurn {
    let inbox = inbox
    let turn = try withTable(mustStore: cursor != nil, use: (name, now)) { table, _ throws(ConsumerRefusal) in
      try table.beginReceive(name, acknowledging: cursor, now: now, inbox)
    }
    // The receive that is superseded ends.
    if turn.start != nil { pushed() }
    return turn
  }

  /// The next pushes of a consumer that is not shared.
  package func read(
    _ turn: ReceiveTurn, of name: String, limit: Int, maxBytes: Int
  ) throws(ConsumerRefusal) -> ReadResult {
    try withTable { table, _ throws(ConsumerRefusal) in try table.check(turn, of: name) }
    guard let start = turn.start else { throw .isShared }
    return inbox.read(after: start, limit: limit, maxBytes: maxBytes, matching: turn.filter)
  }

  /// The next pushes of a shared consumer, leased to this receiver. With a limit of 0, nothing is leased, and what is returned need not be stored.
  ///
  /// - Parameter awaitsStore: whether the receiver gets the leases once they are stored. Until `begin` or `withdraw` is called, they do not end.
  package func lease(
    _ turn: ReceiveTurn, of name: String, limit: Int, maxBytes: Int, now: MonotonicTime, awaitsStore: Bool = false
  ) throws(ConsumerRefusal) -> LeasedBatch {
    let inbox = inbox
    let batch = try withTable(mustStore: limit > 0, use: (name, now)) { table, entropy throws(ConsumerRefusal) in
      try table.receive(
        turn, of: name, limit: limit, maxBytes: maxBytes, now: now, from: inbox, using: &entropy)
    }
    // Deliveries may have been used up.
    countDeadLetters()
    if awaitsStore, journal != nil, !batch.messages.isEmpty {
      state.withLock { $0.table.suspend(batch, of: name) }
    } else if let expires = batch.messages.first?.expires {
      schedule(expires)
    }
    // This receive was before the timer, which now finds nothing to do.
    if batch.leavesFreed { pushed() }
    return batch
  }

  /// Whether the receive would return something now, or must end.
  package func hasNews(_ turn: inout ReceiveTurn, of name: String) -> Bool {
    let inbox = inbox
    guard var start = turn.start else {
      let turn = turn
      return state.withLock { $0.table.hasNews(turn, of: name, inbox) }
    }
    let current = turn
    let isOver = state.withLock { state in
      do throws(ConsumerRefusal) {
        try state.table.check(current, of: name)
        return false
      } catch {
        return true
      }
    }
    if isOver { return true }
    guard let filter = turn.filter else { return inbox.hasNewData(after: start) }
    defer { turn.start = start }
    return inbox.hasNewData(after: &start, matching: filter)
  }

  /// To be called before `hasNews` is called the last time before the wait.
  package func beginHolding(_ turn: ReceiveTurn, of name: String, now: MonotonicTime) {
    held.add(1, ordering: .sequentiallyConsistent)
    state.withLock { _ = $0.table.hold(turn, of: name, 1, now: now) }
  }

  package func endHolding(_ turn: ReceiveTurn, of name: String, now: MonotonicTime) {
    held.subtract(1, ordering: .sequentiallyConsistent)
    state.withLock { state in
      let idleEnd = state.table.hold(turn, of: name, -1, now: now)
      submit(&state)
      // The timer ignores a consumer with a held receive.
      state.lowerAlarm(to: idleEnd)
    }
  }

  // MARK: Settling

  package func settle(
    _ settlements: [(lease: Lease, settlement: Settlement)], of name: String, now: MonotonicTime
  ) throws(ConsumerRefusal) -> [SettlementOutcome] {
    let inbox = inbox
    let outcomes = try withTable(mustStore: true, use: (name, now)) { table, _ throws(ConsumerRefusal) in
      try table.settle(settlements, of: name, now: now, inbox)
    }
    countDeadLetters()
    var deadline = MonotonicTime.distantFuture
    for (settlement, outcome) in zip(settlements, outcomes) {
      if case .release(let delay) = settlement.settlement, outcome == .released, delay > .zero {
        deadline = min(deadline, now + delay)
      }
      if case .extended(let end) = outcome { deadline = min(deadline, end) }
    }
    schedule(deadline)
    pushed()
    return outcomes
  }

  package func deadLetters(of name: String) throws(ConsumerRefusal) -> (letters: [DeadLetter], dropped: UInt64) {
    try withTable { table, _ throws(ConsumerRefusal) in try table.deadLetters(of: name) }
  }

  /// - Parameter isAllowed: whether the client may receive a dead letter. Others stay.
  package func removeDeadLetters(
    of name: String, allowing isAllowed: (RetainedMessage) -> Bool = { _ in true }, now: MonotonicTime
  ) throws(ConsumerRefusal) -> Int {
    let count = try withTable(mustStore: true, use: (name, now)) { table, _ throws(ConsumerRefusal) in
      try table.removeDeadLetters(of: name, allowing: isAllowed, now: now)
    }
    countDeadLetters()
    return count
  }

  /// - Parameter isAllowed: as for `removeDeadLetters`.
  package func retryDeadLetters(
    of name: String, allowing isAllowed: (RetainedMessage) -> Bool = { _ in true }, now: MonotonicTime
  ) throws(ConsumerRefusal) -> Int {
    let count = try withTable(mustStore: true, use: (name, now)) { table, _ throws(ConsumerRefusal) in
      try table.retryDeadLetters(of: name, allowing: isAllowed, now: now)
    }
    countDeadLetters()
    pushed()
    return count
  }

  /// Takes back what a receive has leased, since its response is not sent.
  package func withdraw(_ batch: LeasedBatch, of name: String, now: MonotonicTime) {
    let inbox = inbox
    state.withLock { state in
      state.table.withdraw(batch, of: name, now: now, inbox)
      submit(&state)
      // No timer was set for the ends of these leases. The consumer may be idle now.
      if let next = state.table.nextDeadline() { state.lowerAlarm(to: next) }
    }
    pushed()
  }

  /// Lets the timer fire at `deadline` at the latest.
  func schedule(_ deadline: MonotonicTime) { state.withLock { $0.lowerAlarm(to: deadline) } }
}

extension SharedInbox: PushSource {}
