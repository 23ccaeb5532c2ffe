import ByteStreams
import Inbox
import Totals

/// The consumers of a session: named readers whose positions the gateway keeps.
///
/// The table is a pure value, without clock, randomness or socket. A work-sharing consumer has a `LeaseQueue`. Any
/// other consumer is one reader: it receives the pushes after its acknowledged position, repeatedly, until it
/// acknowledges a later position.
package struct ConsumerTable: Sendable {
  /// Maximum number of consumers that one client may have (`ReservedTotal`). There must be a limit, since clients
  /// choose the names.
  package static var maximumConsumers: Int { 1_000 }
  /// Maximum number of consumers that are restored. It is larger than `maximumConsumers`, since consumers that the
  /// configuration requires may exceed that limit. When the configuration no longer requires them, they remain until
  /// they are idle.
  static var maximumRestored: Int { 2 * maximumConsumers }
  /// Maximum bytes of the dead letters of all consumers. Above it, the consumer with the most bytes drops its oldest
  /// dead letters.
  package static var maximumDeadBytes: Int { 256 << 20 }
  /// Maximum number of records of all consumers. A record takes about 120 bytes. Above this number, a consumer examines
  /// new pushes only while it has fewer than `LeaseQueue.guaranteedRecords`.
  package static var maximumRecords: Int { 1_000_000 }

  struct Consumer: Sendable {
    /// Distinguishes a consumer from an earlier consumer with the same name.
    var id: UInt64
    var settings: ConsumerSettings
    /// The acknowledged position. Not used if there is a queue.
    var position: Cursor
    /// The number of the latest receive. A receive with another number is superseded. Not used if there is a queue.
    var receiver: UInt64 = 0
    var queue: LeaseQueue?
    /// The client that has created the consumer; 0 if the client is unknown, or if the configuration created the
    /// consumer.
    var owner: UInt64 = 0
    /// When the consumer was last used. If it was not used since it was restored, the time of the restoration.
    private(set) var lastUse: MonotonicTime
    /// How long the consumer had been unused when it was restored. Zero after a use.
    private(set) var unusedBefore = TimeSpan.zero
    /// Number of held receives.
    var held = 0
    /// The progress that was submitted last; nil if nothing was submitted.
    var stored: ConsumerProgress?

    init(
      id: UInt64, settings: ConsumerSettings, position: Cursor, queue: LeaseQueue?, owner: UInt64 = 0,
      lastUse: MonotonicTime, unusedBefore: TimeSpan = .zero
    ) {
      self.id = id
      self.settings = settings
      self.position = position
      self.queue = queue
      self.owner = owner
      self.lastUse = lastUse
      self.unusedBefore = unusedBefore
    }

    mutating func use(at now: MonotonicTime) { (lastUse, unusedBefore) = (now, .zero) }

    private func isInUse() -> Bool { held > 0 || queue?.leaseCount ?? 0 > 0 }

    func unused(at now: MonotonicTime) -> TimeSpan { isInUse() ? .zero : unusedBefore + (now - lastUse) }

    func idleEnd() -> MonotonicTime {
      if isInUse() { return .distantFuture }
      return lastUse + max(settings.idle - unusedBefore, min(settings.idle, ConsumerTable.graceTime))
    }
  }

  var consumers: [String: Consumer] = [:]
  /// The number of consumers of each owner.
  var owners = ReservedTotal(limit: Self.maximumConsumers)
  /// Memory of the settings of all consumers, in bytes.
  var settingsBytes = 0
  var lastID: UInt64 = 0
  /// Number of records of all consumers.
  var recordCount = 0
  /// How many dead letters the removed consumers have added and dropped.
  private var formerDeadLetters: (added: UInt64, dropped: UInt64) = (0, 0)
  /// The changes that were not submitted to the store yet; nil if the session is not stored.
  var unstored: Unstored?
  private let maximumRecords: Int
  /// Whether there is memory for more than `LeaseQueue.guaranteedRecords` records per consumer.
  package var mayGrow = true

  package init() { self.init(maximumRecords: Self.maximumRecords) }

  init(maximumRecords: Int) { self.maximumRecords = maximumRecords }

  package var count: Int { consumers.count }

  /// Memory of all consumers, without their dead letters, in bytes.
  package var memory: Int { settingsBytes + recordCount * LeaseQueue.recordBytes }

  // MARK: Consumers

  /// Creates a consumer, or changes the settings of an existing consumer. Returns whether it is new.
  ///
  /// - Parameters:
  ///   - start: where a new consumer starts.
  ///   - owner: the client that creates it; 0 if clients cannot be distinguished.
  ///   - hasMemory: whether consumers may use this many bytes more.
  package mutating func put(
    _ name: String, _ settings: ConsumerSettings, start: Cursor, by owner: UInt64 = 0, now: MonotonicTime,
    hasMemory: (Int) -> Bool = { _ in true }
  ) throws(ConsumerRefusal) -> Bool {
    if let existing = consumers[name]?.settings {
      guard existing.isWorkSharing == settings.isWorkSharing, existing.order == settings.order else {
        throw .differs(existing)
      }
      guard settings.memory <= existing.memory || hasMemory(settings.memory - existing.memory) else {
        throw .outOfMemory
      }
      update(name, settings, now: now)
      return false
    }
    guard owners.admits(by: owner) else { throw .tooMany }
    guard hasMemory(settings.memory + name.utf8.count) else { throw .outOfMemory }
    create(name, settings, start: start, by: owner, now: now)
    return true
  }

  /// Creates a consumer that the configuration requires, or changes an existing consumer to match. There is always room
  /// for it.
  ///
  /// A change of the order applies to all pushes that are not leased. An existing consumer that is not work-sharing is
  /// replaced by a new consumer at its position.
  ///
  /// - Parameter isNewWorker: whether the workers that have the consumer's leases have ended. If so, the deliveries of
  ///   these leases do not count.
  package mutating func take(
    _ name: String, _ settings: ConsumerSettings, start: Cursor, isNewWorker: Bool, now: MonotonicTime,
    _ source: some PushSource
  ) {
    if let existing = consumers[name]?.settings, existing.isWorkSharing == settings.isWorkSharing {
      // Invalidates the receives of clients.
      lastID += 1
      consumers[name]?.id = lastID
      consumers[name]?.held = 0
      withQueue(of: name) { queue in
        if settings.isWebhook { queue.keepAttempted(source) }
        if isNewWorker { queue.withdrawAll(now: now, source) }
        if existing.order != settings.order { queue.reorder(settings.order, source) }
      }
      update(name, settings, now: now)
    } else {
      create(name, settings, start: consumers[name]?.position ?? start, now: now)
    }
  }

  private mutating func update(_ name: String, _ settings: ConsumerSettings, now: MonotonicTime) {
    settingsBytes += settings.memory - (consumers[name]?.settings.memory ?? 0)
    consumers[name]?.settings = settings
    consumers[name]?.queue?.settings = settings
    if !settings.isWebhook { consumers[name]?.queue?.attempted = [:] }
    consumers[name]?.use(at: now)
    noteSettings(of: name)
  }

  private mutating func create(
    _ name: String, _ settings: ConsumerSettings, start: Cursor, by owner: UInt64 = 0, now: MonotonicTime
  ) {
    _ = remove(name)
    lastID += 1
    owners.add(by: owner)
    settingsBytes += settings.memory + name.utf8.count
    consumers[name] = Consumer(
      id: lastID, settings: settings, position: start,
      queue: settings.isWorkSharing ? LeaseQueue(settings, after: start) : nil, owner: owner, lastUse: now)
    if unstored != nil { consumers[name]?.queue?.changes = LeaseQueue.Changes() }
    noteSettings(of: name)
  }

  /// Returns false if no consumer has this name.
  package mutating func remove(_ name: String) -> Bool {
    guard let removed = consumers.removeValue(forKey: name) else { return false }
    owners.remove(by: removed.owner)
    settingsBytes -= removed.settings.memory + name.utf8.count
    recordCount -= removed.queue?.records.count ?? 0
    formerDeadLetters.added += removed.queue?.dead.added ?? 0
    formerDeadLetters.dropped += removed.queue?.dead.dropped ?? 0
    noteRemoval(of: name)
    return true
  }

  /// Calls `body` with the queue of a consumer. Returns nil if the consumer has no queue.
  @discardableResult
  private mutating func withQueue<Result>(of name: String, _ body: (inout LeaseQueue) -> Result) -> Result? {
    noteChange(of: name)
    return consumers[name]?.queue?.counting(&recordCount, limit: mayGrow ? maximumRecords : 0, body)
  }

  /// nil if there is no such consumer.
  package func settings(of name: String) -> ConsumerSettings? { consumers[name]?.settings }

  /// Number of pushes after the position of a consumer; nil if there is no such consumer.
  package func lag(of name: String, _ source: some PushSource) -> UInt64? {
    consumers[name].map { ConsumerStatus.lag(of: $0, source.latest) }
  }

  package func status(of name: String, _ source: some PushSource) throws(ConsumerRefusal) -> ConsumerStatus {
    guard let consumer = consumers[name] else { throw .unknown }
    return ConsumerStatus(name, consumer, source.latest)
  }

  /// The status of each consumer, in the order of the names.
  package func statuses(_ source: some PushSource) -> [ConsumerStatus] {
    let latest = source.latest
    return consumers.map { ConsumerStatus($0, $1, latest) }.sorted { $0.name < $1.name }
  }

  /// The next `limit` consumers after a name, in the order of the names, and whether there are more.
  package func statuses(after name: String, limit: Int, _ source: some PushSource) -> ConsumerPage {
    let latest = source.latest
    let names = consumers.keys.filter { $0 > name }.sorted()
    let page = names.prefix(limit).compactMap { name in
      consumers[name].map { ConsumerStatus(name, $0, latest) }
    }
    return ConsumerPage(consumers: page, more: names.count > limit)
  }

  /// The figures of all consumers together, for metrics.
  package func summary(_ source: some PushSource) -> ConsumerSummary {
    let latest = source.latest
    var summary = ConsumerSummary()
    summary.consumers = consumers.count
    (summary.addedDeadLetters, summary.droppedDeadLetters) = formerDeadLetters
    for consumer in consumers.values {
      summary.leases += consumer.queue?.leaseCount ?? 0
      summary.deadLetters += consumer.queue?.dead.letters.count ?? 0
      summary.addedDeadLetters += consumer.queue?.dead.added ?? 0
      summary.droppedDeadLetters += consumer.queue?.dead.dropped ?? 0
      summary.lag = max(summary.lag, ConsumerStatus.lag(of: consumer, latest))
    }
    return summary
  }

  package mutating func removeAll() {
    for name in consumers.keys.sorted() { _ = remove(name) }
  }

  // MARK: Receiving

  /// Begins a receive. If the consumer is not work-sharing, the receive supersedes the earlier receive.
  ///
  /// - Parameter acknowledged: where the log continues after the cursor up to which the reader has handled all pushes.
  ///   A position before the acknowledged position changes nothing. A position of another epoch, or a position that the
  ///   store has lost, is reported as a gap.
  package mutating func beginReceive(
    _ name: String, acknowledging acknowledged: ReadStart? = nil, now: MonotonicTime, _ source: some PushSource
  ) throws(ConsumerRefusal) -> ReceiveTurn {
    guard var start = consumers[name]?.position, let id = consumers[name]?.id else { throw .unknown }
    consumers[name]?.use(at: now)
    noteChange(of: name)
    guard consumers[name]?.queue == nil else {
      if acknowledged != nil { throw .isWorkSharing }
      return ReceiveTurn(consumer: id, receiver: nil)
    }
    var gap: Gap.Reason?
    if let acknowledged {
      let cursor = acknowledged.cursor
      if cursor.epoch != source.latest.epoch {
        gap = .restart
      } else if start.epoch != cursor.epoch || start.position <= cursor.position {
        (start, gap) = (cursor, acknowledged.gap)
      }
    }
    consumers[name]?.position = start
    consumers[name]?.receiver += 1
    return ReceiveTurn(
      consumer: id, receiver: consumers[name]?.receiver, start: ReadStart(start, gap: gap),
      filter: consumers[name]?.settings.filter)
  }

  /// Throws if the receive was superseded, or if its consumer no longer exists.
  package func check(_ turn: ReceiveTurn, of name: String) throws(ConsumerRefusal) {
    guard let consumer = consumers[name], consumer.id == turn.consumer else { throw .unknown }
    if let receiver = turn.receiver, receiver != consumer.receiver { throw .superseded }
  }

  /// The next pushes for a worker. The consumer must be work-sharing.
  package mutating func receive(
    _ turn: ReceiveTurn, of name: String, limit: Int, maxBytes: Int, now: MonotonicTime,
    from source: some PushSource, using generator: inout some RandomNumberGenerator
  ) throws(ConsumerRefusal) -> LeasedBatch {
    try check(turn, of: name)
    consumers[name]?.use(at: now)
    if withQueue(of: name, { $0.refresh(now: now, source) }) == true { dropDeadLetters(beyond: Self.maximumDeadBytes) }
    let batch = withQueue(of: name) {
      $0.receive(limit: limit, maxBytes: maxBytes, now: now, from: source, using: &generator)
    }
    guard let batch else { throw .isExclusive }
    return batch
  }

  /// Whether a receive of a work-sharing consumer would return anything. Examines new pushes.
  package mutating func hasNews(_ turn: ReceiveTurn, of name: String, _ source: some PushSource) -> Bool {
    guard consumers[name]?.id == turn.consumer else { return true }
    return withQueue(of: name) { $0.hasNews(source) } ?? true
  }

  /// Records that a receive is held (`change` 1), or no longer held (-1). While a receive is held, the consumer is in
  /// use. Returns the time at which `expire` is due for the consumer; `distantFuture` while it is in use.
  @discardableResult
  package mutating func hold(
    _ turn: ReceiveTurn, of name: String, _ change: Int, now: MonotonicTime
  ) -> MonotonicTime {
    guard consumers[name]?.id == turn.consumer else { return .distantFuture }
    consumers[name]?.held += change
    consumers[name]?.use(at: now)
    noteChange(of: name)
    return nextDeadline(ofUse: name)
  }

  // MARK: Settling

  /// Settles leases, in order. Returns one outcome for each lease.
  package mutating func settle(
    _ settlements: [(lease: Lease, settlement: Settlement)], of name: String, now: MonotonicTime,
    _ source: some PushSource
  ) throws(ConsumerRefusal) -> [SettlementOutcome] {
    try use(name, now: now)
    let hasChanged = withQueue(of: name) { $0.refresh(now: now, source) } == true
    let outcomes = settlements.map { lease, settlement in
      withQueue(of: name) { $0.settle(lease, settlement, now: now, source) } ?? .leaseLost
    }
    if hasChanged || outcomes.contains(.dead) { dropDeadLetters(beyond: Self.maximumDeadBytes) }
    return outcomes
  }

  /// Suspends the expiry of the leases of a receive until `begin` or `withdraw`. The response is sent when the leases
  /// are stored, which may take longer than a lease lasts.
  package mutating func suspend(_ batch: LeasedBatch, of name: String) {
    withQueue(of: name) { queue in for message in batch.messages { queue.setEnd(.distantFuture, of: message.lease) } }
  }

  /// Called when the response of a receive is sent. Returns the time at which its leases expire; nil if the consumer no
  /// longer exists. The stored deadlines are earlier than the returned time, by the duration of a commit.
  package mutating func begin(_ leases: [Lease], of name: String, now: MonotonicTime) -> MonotonicTime? {
    guard let end = consumers[name].map({ now + $0.settings.visibility }) else { return nil }
    withQueue(of: name) { queue in for lease in leases { queue.setEnd(end, of: lease) } }
    return end
  }

  /// Takes back the leases and the gap of a receive whose response is not sent.
  package mutating func withdraw(_ batch: LeasedBatch, of name: String, now: MonotonicTime, _ source: some PushSource) {
    withQueue(of: name) { queue in
      for message in batch.messages { queue.withdraw(message.lease, now: now, source) }
      if let gap = batch.gap { queue.reportAgain(gap) }
    }
  }

  /// Bytes of the dead letters of all consumers, including dead letters that are being delivered again.
  package var deadBytes: Int { consumers.values.reduce(0) { $0 + ($1.queue?.keptBytes ?? 0) } }

  /// Drops the oldest dead letters of the consumers with the most bytes, until all together have at most `limit` bytes.
  package mutating func dropDeadLetters(beyond limit: Int) {
    var excess = deadBytes - limit
    while excess > 0 {
      let largest = consumers.max { $0.value.queue?.dead.bytes ?? 0 < $1.value.queue?.dead.bytes ?? 0 }
      guard let name = largest?.key, let before = consumers[name]?.queue?.keptBytes,
        consumers[name]?.queue?.dropDeadLetter() == true
      else { return }
      noteChange(of: name)
      excess -= before - (consumers[name]?.queue?.keptBytes ?? 0)
    }
  }

  package func deadLetters(of name: String) throws(ConsumerRefusal) -> (letters: [DeadLetter], dropped: UInt64) {
    guard let consumer = consumers[name] else { throw .unknown }
    guard let queue = consumer.queue else { throw .isExclusive }
    return (queue.dead.letters, queue.dead.dropped)
  }

  /// - Parameter isAllowed: whether the client may receive a dead letter. Other dead letters stay.
  package mutating func removeDeadLetters(
    of name: String, allowing isAllowed: (RetainedMessage) -> Bool = { _ in true }, now: MonotonicTime
  ) throws(ConsumerRefusal) -> Int {
    try use(name, now: now)
    return withQueue(of: name) { $0.removeDeadLetters(isAllowed) } ?? 0
  }

  /// - Parameter isAllowed: as in `removeDeadLetters`.
  package mutating func retryDeadLetters(
    of name: String, allowing isAllowed: (RetainedMessage) -> Bool = { _ in true }, now: MonotonicTime
  ) throws(ConsumerRefusal) -> Int {
    try use(name, now: now)
    return withQueue(of: name) { $0.retryDeadLetters(isAllowed, now: now) } ?? 0
  }

  /// Records the use of a consumer by a request that is refused.
  package mutating func noteUse(of name: String, at now: MonotonicTime) { consumers[name]?.use(at: now) }

  private mutating func use(_ name: String, now: MonotonicTime) throws(ConsumerRefusal) {
    guard consumers[name] != nil else { throw .unknown }
    guard consumers[name]?.queue != nil else { throw .isExclusive }
    consumers[name]?.use(at: now)
    noteChange(of: name)
  }

  // MARK: Time

  /// Ends leases and delays that are due, and removes idle consumers. Returns whether a held receive may have news.
  /// `takeChanges` must follow in any case: it stores how long consumers were unused.
  package mutating func expire(now: MonotonicTime, _ source: some PushSource) -> Bool {
    var hasChanged = false
    for name in Array(consumers.keys) {
      if withQueue(of: name, { $0.refresh(now: now, source) }) == true { hasChanged = true }
      // Removing a consumer makes room for the records of other consumers.
      if let consumer = consumers[name], consumer.idleEnd() <= now, remove(name) { hasChanged = true }
    }
    if hasChanged { dropDeadLetters(beyond: Self.maximumDeadBytes) }
    return hasChanged
  }

  /// The next time at which `expire` is due; nil if never.
  package mutating func nextDeadline() -> MonotonicTime? {
    var next = MonotonicTime.distantFuture
    for name in Array(consumers.keys) {
      if let deadline = consumers[name]?.queue?.nextDeadline() { next = min(next, deadline) }
      next = min(next, nextDeadline(ofUse: name))
    }
    return next == .distantFuture ? nil : next
  }

  /// When this consumer must be removed, or its time without use must be stored, unless the consumer is used before
  /// then.
  package func nextDeadline(ofUse name: String) -> MonotonicTime {
    guard let consumer = consumers[name] else { return .distantFuture }
    return unstored == nil ? consumer.idleEnd() : consumer.nextStoring()
  }
}
