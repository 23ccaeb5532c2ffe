import ByteStreams
import Consumers
import Inbox
import Journal
import Reactor
import Synchronization
import Threading
import Totals
import Upstream

/// The consumers of one session. Thread-safe, since all event loops use them.
///
/// While no receive is held, a push costs only one atomic load here. A timer on the session's loop ends leases and
/// delays.
///
/// If the session is stored, changes are submitted in the order in which they are made. The response about a change is
/// sent only when the change is stored, that is, when `unstored` is nil.
package final class ConcurrentConsumers: Sendable {
  struct State: ~Copyable {
    var table = ConsumerTable()
    /// The random bits for leases.
    var entropy = EntropyPool()
    /// Wakes the timer; nil before the session has started.
    var clock: Signal?
    /// Whether the session is closed. A closed session has no consumers, and no consumer can be created in it.
    var isClosed = false
    /// The timer fires at this time or before.
    var alarm = MonotonicTime.distantFuture
    /// The bytes of dead letters that are counted in the budget.
    var deadBytes = 0
    /// The bytes of consumers that are counted in the budget.
    var memory = 0
    /// The ticket of the last change; nil if there was no change, or if consumers are not stored.
    var lastTicket: JournalTicket?

    /// Makes the timer fire at `deadline` or before.
    mutating func lowerAlarm(to deadline: MonotonicTime) {
      guard deadline < alarm else { return }
      alarm = deadline
      clock?.notify()
    }
  }

  /// Lock order: this lock is taken before the locks of the inbox.
  let state = Locked(State())
  private let inbox: ConcurrentInbox
  /// Limits the memory of consumers and dead letters of created sessions; nil if the session is configured.
  private let budget: RetentionBudget?
  /// The owner of the session, for the budget. 0 if clients cannot be distinguished.
  private let owner: UInt64
  /// The journal of the session; nil if consumers are not stored.
  let journal: (any SessionJournal)?
  /// The number of requests that wait for the store.
  let storeWaiters = Locked(0)
  /// The number of held receives. A receive increments it before it checks for pushes for the last time.
  private let held = Atomic<Int>(0)
  /// Notified when a held receive may have pushes to return.
  package let notifier = Notifier()

  package init(inbox: ConcurrentInbox, budget: RetentionBudget? = nil, owner: String = "") {
    self.inbox = inbox
    self.budget = budget
    self.owner = TotalUser(owner, at: 0).principal
    journal = nil
  }

  /// Creates consumers that are stored.
  ///
  /// - Parameter restored: the consumers that earlier processes stored.
  init(
    inbox: ConcurrentInbox, restoring restored: StoredConsumers, in journal: any SessionJournal,
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

  /// Counts the current memory of the consumers in the budget. Called after every change, while the lock is held.
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

  /// The bytes of dead letters that are counted in the budget.
  var deadBytes: Int { state.withLock { $0.deadBytes } }

  /// Drops the oldest dead letters until at most `bytes` are kept.
  func trimDeadLetters(toBytes bytes: Int) {
    guard budget != nil else { return }
    state.withLock { $0.table.dropDeadLetters(beyond: bytes) }
    countDeadLetters()
  }

  /// Counts dead letters in the budget. Must be called after every change that adds or removes dead letters.
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

  /// Called when a push or a gap was appended.
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
    // The signal wakes the timer, which then releases itself.
    clock?.notify()
  }

  var isClosed: Bool { state.withLock { $0.isClosed } }

  func start(_ clock: Signal) {
    state.withLock { $0.clock = clock }
    clock.notify()
  }

  /// Releases the signal of the timer. The signal and the timer refer to each other: they form a reference cycle.
  /// Called on the session's loop.
  func stop() {
    let clock = state.withLock { $0.clock.take() }
    clock?.close()
  }

  /// When the timer must fire; nil if it need not fire.
  var nextAlarm: MonotonicTime? {
    let alarm = state.withLock { $0.alarm }
    return alarm == .distantFuture ? nil : alarm
  }

  /// Ends the leases and delays that are due, and removes idle consumers. Returns the next deadline.
  func tick(at now: MonotonicTime) -> MonotonicTime? {
    let inbox = inbox
    let (hasNews, next) = state.withLock { state in
      let hasNews = state.table.expire(now: now, inbox)
      submit(&state)
      let next = state.table.nextDeadline()
      state.alarm = next ?? .distantFuture
      countMemory(&state)
      return (hasNews, next)
    }
    countDeadLetters()
    if hasNews { notifier.notify() }
    return next
  }

  /// Calls `body` with the table. Wakes the timer if it must fire earlier than planned.
  ///
  /// - Parameters:
  ///   - mustStore: whether the change is refused while the store does not work.
  ///   - use: the consumer that a client uses, and the time of this use. The use is recorded even if the change is
  ///     refused, so that no consumer becomes idle because the store has failed.
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

  /// Creates a consumer, or changes the settings of an existing consumer. Returns whether the consumer is new, and its
  /// status.
  package func put(
    _ name: String, _ settings: ConsumerSettings, start: Cursor, by client: UInt64 = 0, now: MonotonicTime
  ) throws(ConsumerRefusal) -> (isNew: Bool, status: ConsumerStatus) {
    let (inbox, budget, owner) = (inbox, budget, owner)
    return try withTable(deadline: now + settings.unusedStep, mustStore: true, use: (name, now)) {
      table, _ throws(ConsumerRefusal) in
      let isNew = try table.put(name, settings, start: start, by: client, now: now) { bytes in
        budget?.consumers.withLock { $0.admits(bytes, by: owner) } ?? true
      }
      return (isNew, try table.status(of: name, inbox))
    }
  }

  /// Creates a consumer for the configuration. A new consumer starts at the next push. If a consumer of this name
  /// exists, it gets these settings.
  ///
  /// - Parameter isNewWorker: whether the earlier workers of the consumer have ended, in which case their leases end at
  ///   once.
  func take(
    _ name: String, _ settings: ConsumerSettings, isNewWorker: Bool, now: MonotonicTime
  ) throws(ConsumerRefusal) {
    let inbox = inbox
    try withTable(deadline: now + settings.unusedStep) { table, _ throws(ConsumerRefusal) in
      table.take(name, settings, start: inbox.latest, isNewWorker: isNewWorker, now: now, inbox)
    }
    countDeadLetters()
    notifier.notify()
  }

  /// Returns nil if there is no such consumer.
  package func settings(of name: String) -> ConsumerSettings? { state.withLock { $0.table.settings(of: name) } }

  /// The number of pushes after the position of a consumer; nil if there is no such consumer.
  func lag(of name: String) -> UInt64? {
    let inbox = inbox
    return state.withLock { $0.table.lag(of: name, inbox) }
  }

  /// Returns the status of a consumer. For the consumer of a webhook, this takes time in proportion to the number of
  /// its records, unlike `settings` and `lag`.
  package func status(of name: String) throws(ConsumerRefusal) -> ConsumerStatus {
    let inbox = inbox
    return try withTable { table, _ throws(ConsumerRefusal) in try table.status(of: name, inbox) }
  }

  package var statuses: [ConsumerStatus] {
    let inbox = inbox
    return state.withLock { $0.table.statuses(inbox) }
  }

  /// Returns up to `limit` consumers after `name`, sorted by name.
  package func statuses(after name: String, limit: Int) -> ConsumerPage {
    let inbox = inbox
    return state.withLock { $0.table.statuses(after: name, limit: limit, inbox) }
  }

  package var summary: ConsumerSummary {
    let inbox = inbox
    return state.withLock { $0.table.summary(inbox) }
  }

  /// Removes a consumer and ends its held receives.
  package func remove(_ name: String) throws(ConsumerRefusal) {
    try withTable(mustStore: true) { table, _ throws(ConsumerRefusal) in
      guard table.remove(name) else { throw .unknown }
    }
    countDeadLetters()
    notifier.notify()
  }

  // MARK: Receiving

  /// Begins a receive. If a receive of the same reader is held, that receive is superseded and ends.
  package func beginReceive(
    _ name: String, acknowledging cursor: ReadStart?, now: MonotonicTime
  ) throws(ConsumerRefusal) -> ReceiveTurn {
    let inbox = inbox
    let turn = try withTable(mustStore: cursor != nil, use: (name, now)) { table, _ throws(ConsumerRefusal) in
      try table.beginReceive(name, acknowledging: cursor, now: now, inbox)
    }
    // This wakes the superseded receive, so that it ends.
    if turn.start != nil { pushed() }
    return turn
  }

  /// Throws if another receiver has replaced this one, or if the consumer no longer exists.
  package func check(_ turn: ReceiveTurn, of name: String) throws(ConsumerRefusal) {
    try withTable { table, _ throws(ConsumerRefusal) in try table.check(turn, of: name) }
  }

  /// Returns the next pushes of a consumer that is not work-sharing.
  package func read(
    _ turn: ReceiveTurn, of name: String, limit: Int, maxBytes: Int
  ) throws(ConsumerRefusal) -> ReadResult {
    try check(turn, of: name)
    guard let start = turn.start else { throw .isWorkSharing }
    return inbox.read(after: start, limit: limit, maxBytes: maxBytes, matching: turn.filter)
  }

  /// Leases the next pushes of a work-sharing consumer to this receiver. With a limit of 0, it leases nothing, and the
  /// result need not be stored.
  ///
  /// - Parameter isSentLater: whether the receiver gets the leases later, because they must be stored first, or because
  ///   earlier responses of its connection are not sent yet. If so, the time of the leases does not run until `begin`
  ///   or `withdraw` is called.
  package func lease(
    _ turn: ReceiveTurn, of name: String, limit: Int, maxBytes: Int, now: MonotonicTime, isSentLater: Bool = false
  ) throws(ConsumerRefusal) -> LeasedBatch {
    let inbox = inbox
    let batch = try withTable(mustStore: limit > 0, use: (name, now)) { table, entropy throws(ConsumerRefusal) in
      try table.receive(
        turn, of: name, limit: limit, maxBytes: maxBytes, now: now, from: inbox, using: &entropy)
    }
    // A push may have become a dead letter, because it has had its maximum number of deliveries.
    countDeadLetters()
    if isSentLater, !batch.messages.isEmpty {
      state.withLock { $0.table.suspend(batch, of: name) }
    } else if let expires = batch.messages.first?.expires {
      schedule(expires)
    }
    // This receive has made pushes available again before the timer did, and has not taken all of them. Other receives
    // can get the rest.
    if batch.leavesFreed { pushed() }
    return batch
  }

  /// Whether the receive would return pushes or a gap now, or must end.
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

  /// Begins to hold a receive. After this call and before the wait, call `hasNews` once more.
  package func beginHolding(_ turn: ReceiveTurn, of name: String, now: MonotonicTime) {
    held.add(1, ordering: .sequentiallyConsistent)
    state.withLock { _ = $0.table.hold(turn, of: name, 1, now: now) }
  }

  package func endHolding(_ turn: ReceiveTurn, of name: String, now: MonotonicTime) {
    held.subtract(1, ordering: .sequentiallyConsistent)
    state.withLock { state in
      let deadline = state.table.hold(turn, of: name, -1, now: now)
      submit(&state)
      // While the consumer had a held receive, the timer ignored the deadline at which the consumer becomes idle.
      state.lowerAlarm(to: deadline)
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

  /// - Parameter isAllowed: returns whether the client may receive a dead letter. Dead letters that it may not receive
  ///   stay.
  package func removeDeadLetters(
    of name: String, allowing isAllowed: (RetainedMessage) -> Bool = { _ in true }, now: MonotonicTime
  ) throws(ConsumerRefusal) -> Int {
    let count = try withTable(mustStore: true, use: (name, now)) { table, _ throws(ConsumerRefusal) in
      try table.removeDeadLetters(of: name, allowing: isAllowed, now: now)
    }
    countDeadLetters()
    return count
  }

  /// - Parameter isAllowed: see `removeDeadLetters`.
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

  /// Takes back the leases of a receive whose response is not sent.
  package func withdraw(_ batch: LeasedBatch, of name: String, now: MonotonicTime) {
    let inbox = inbox
    state.withLock { state in
      state.table.withdraw(batch, of: name, now: now, inbox)
      submit(&state)
      // The timer did not count these leases as deadlines. When they are taken back, the consumer may become idle. The
      // time at which an idle consumer is removed is a deadline of the timer.
      if let next = state.table.nextDeadline() { state.lowerAlarm(to: next) }
    }
    pushed()
  }

  /// Makes the timer fire at `deadline` or before.
  func schedule(_ deadline: MonotonicTime) { state.withLock { $0.lowerAlarm(to: deadline) } }
}

extension ConcurrentInbox: PushSource {}
