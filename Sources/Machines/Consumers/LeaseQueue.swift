import ByteStreams
import Inbox

/// The pushes of a work-sharing consumer: each push is leased to one worker until the worker acknowledges it.
///
/// Every push up to `frontier` was examined once. A push that matches the consumer's topics and is not settled has a
/// record. An examined push without a record is settled, so acknowledgements out of order need no memory of their own.
/// With an order, the pushes of a key form a list, and only the first push of the list can be delivered. Each operation
/// costs a few dictionary accesses per push.
struct LeaseQueue: Sendable {
  /// Maximum number of leases at a time.
  static var maximumLeases: Int { 1_000 }
  /// Maximum number of pushes that are examined beyond the oldest push that is not settled. This limits the memory of a
  /// consumer.
  static var searchLimit: Int { 10_000 }
  /// How many records a consumer may have regardless of the other consumers, so that it can always continue.
  static var guaranteedRecords: Int { 100 }
  /// Memory of a record, in bytes.
  static var recordBytes: Int { 120 }
  /// With an order, pushes are read in groups of this size, since most of them may be behind other pushes of their
  /// keys.
  static var groupSize: Int { 32 }

  /// Limits the work of one call, since other threads wait for the lock during the call.
  struct SearchBudget {
    /// Pushes with a topic of the consumer, each of which gets a record. This is the maximum number of leases, which is
    /// enough for the largest batch without an order.
    var pushes = LeaseQueue.maximumLeases
    /// Comparisons of other pushes with a topic. A comparison takes about 10 ns. With one topic, this number is enough
    /// for all pushes of the default retention. With the maximum number of topics, it is enough for as many pushes as
    /// `pushes` allows.
    var comparisons = TopicFilter.maximumPatterns * LeaseQueue.maximumLeases
    /// Payload bytes that are searched for keys.
    var bytes = 1 << 20
  }

  enum State: Equatable, Sendable {
    /// Behind another push of its key.
    case queued
    /// It can be delivered.
    case ready
    /// Released, and to be delivered after the record's deadline.
    case delayed
    /// Leased until the record's deadline.
    case leased(bits: UInt64)
    /// Retention has removed the push while it was queued, so a gap reports it. Its record is removed when the previous
    /// push in the list of its key is removed.
    case missing
  }

  struct Record: Sendable {
    private(set) var key: UInt64?
    /// The number of the next push of the same key; 0 if there is none.
    var next: UInt64 = 0
    /// Number of deliveries.
    var attempts: UInt32 = 0
    var state: State
    var deadline = MonotonicTime.distantFuture

    init(key: UInt64?, state: State) {
      self.key = key
      self.state = state
    }

    /// Makes the push independent of all others.
    mutating func unlink() { (key, next) = (nil, 0) }
  }

  struct Deadline: Comparable, Sendable {
    let time: MonotonicTime
    let number: UInt64

    static func < (left: Deadline, right: Deadline) -> Bool { left.time < right.time }
  }

  var settings: ConsumerSettings
  var frontier: Cursor
  var records: [UInt64: Record] = [:]
  /// The dead letters that are delivered again, which the push log may no longer keep.
  var copies: [UInt64: RetainedMessage] = [:]
  var copiedBytes = 0
  /// The pushes that the gateway has begun to deliver, if it is the worker. Their bytes take no memory of their own
  /// while the push log keeps the pushes. If the push log drops a push that must still be delivered, the push becomes a
  /// dead letter.
  var attempted: [UInt64: RetainedMessage] = [:]
  /// The examined pushes in order, from the oldest that is not settled. A push without a record is settled.
  var examined = RingDeque<UInt64>(filler: 0)
  /// The last push of each key.
  var tails: [UInt64: UInt64] = [:]
  /// Leased pushes of earlier processes that retention has removed. Their keys are not known. So with an order, nothing
  /// is delivered until their leases end.
  var unknownKeys: Set<UInt64> = []
  /// The pushes in the state `ready`, and some pushes that have left this state.
  var ready = MinimumHeap<UInt64>()
  /// The deadlines of leases and delays, and some deadlines that are no longer valid.
  var deadlines = MinimumHeap<Deadline>()
  var leaseCount = 0
  var readyCount = 0
  var delayedCount = 0
  var queuedCount = 0
  /// `sweep` has handled all pushes before this number that retention has removed.
  var swept: UInt64 = 1
  /// The consumer starts after the push with this number.
  var startSequence: UInt64
  /// Maximum number of records, given the records of the session's other consumers.
  private var recordLimit = LeaseQueue.searchLimit
  /// Whether time or retention has made pushes ready since the last `receive`.
  var hasFreed = false
  var dead = DeadLetters()

  /// The gap that the next response reports: the number of missing pushes, and the reasons.
  var missed: UInt64 = 0
  var gapReasons: GapMarks = []
  /// Number of pushes that retention removed before they were settled.
  var missedTotal: UInt64 = 0

  /// The changes that were not submitted to the store yet; nil if the consumer is not stored.
  var changes: Changes?

  init(_ settings: ConsumerSettings, after start: Cursor) {
    self.settings = settings
    frontier = start
    startSequence = start.sequence
  }

  /// Calls `body`, and updates `total`, the number of records of all consumers of a session.
  mutating func counting<Result>(
    _ total: inout Int, limit: Int, _ body: (inout LeaseQueue) -> Result
  ) -> Result {
    let before = records.count
    recordLimit = max(limit - (total - before), Self.guaranteedRecords)
    defer { total += records.count - before }
    return body(&self)
  }

  /// The position before the oldest push that is not settled. Dead letters that are delivered again do not move it
  /// back.
  var position: Cursor {
    guard !examined.isEmpty else { return frontier }
    return Cursor(epoch: frontier.epoch, term: frontier.term, sequence: examined[examined.front] - 1)
  }

  /// When the next released push is ready again; nil if there is none.
  var nextDelayed: MonotonicTime? {
    guard delayedCount > 0 else { return nil }
    return records.values.lazy.filter { $0.state == .delayed }.map(\.deadline).min()
  }

  // MARK: Receiving

  /// Leases up to `limit` pushes whose rendered bytes do not exceed `maxBytes`, but at least one push if a push is
  /// ready.
  mutating func receive(
    limit: Int, maxBytes: Int, now: MonotonicTime, from source: some PushSource,
    using generator: inout some RandomNumberGenerator
  ) -> LeasedBatch {
    refresh(now: now, source)
    var messages: [LeasedMessage] = []
    var bytes = 0
    var budget = SearchBudget()
    while messages.count < limit, mayLease {
      if readyCount == 0 {
        search(for: min(limit - messages.count, Self.maximumLeases - leaseCount), &budget, source)
      }
      guard let number = firstReady() else { break }
      guard let message = payload(of: number, source) else {
        lose(number)
        continue
      }
      bytes += message.rendered.count
      guard messages.isEmpty || bytes <= maxBytes else { break }
      messages.append(lease(message, until: now + settings.visibility, bits: generator.next()))
    }
    let mayContinue = mayLease && (readyCount > 0 || canSearch(source))
    let isWaiting = leaseCount > 0 || delayedCount > 0
    let isBehindOthers = queuedCount > 0 || readyCount > 0 || isBehind(source.latest)
    defer { hasFreed = false }
    return LeasedBatch(
      messages: messages, gap: takeGap(), more: mayContinue,
      isBlocked: messages.isEmpty && !mayContinue && isWaiting && isBehindOthers,
      leavesFreed: hasFreed && mayContinue)
  }

  /// Whether `receive` would return anything. Examines new pushes, each once.
  mutating func hasNews(_ source: some PushSource) -> Bool {
    sweep(before: source.firstRetained)
    var budget = SearchBudget()
    if readyCount == 0 { search(for: 1, &budget, source) }
    if missed > 0 || !gapReasons.isEmpty { return true }
    return mayLease && (readyCount > 0 || canSearch(source))
  }

  private var mayLease: Bool { leaseCount < Self.maximumLeases && unknownKeys.isEmpty }

  func canSearch(_ source: some PushSource) -> Bool {
    isBehind(source.latest) && searchRoom > 0
  }

  func isBehind(_ latest: Cursor) -> Bool {
    frontier.epoch != latest.epoch || frontier.position < latest.position
  }

  var searchRoom: Int {
    min(Self.searchLimit - Int(frontier.sequence - position.sequence), recordLimit - records.count)
  }

  /// Examines pushes until `count` can be delivered. With an order, it may examine more pushes than needed, by up to
  /// one group.
  mutating func search(for count: Int, _ budget: inout SearchBudget, _ source: some PushSource) {
    let readsPayloads = settings.order?.readsPayloads == true
    while readyCount < count, budget.pushes > 0, budget.comparisons > 0, budget.bytes > 0, canSearch(source) {
      let wanted = settings.order == nil ? count - readyCount : max(count - readyCount, Self.groupSize)
      let result = source.read(
        after: ReadStart(frontier), limit: min(wanted, searchRoom), maxBytes: readsPayloads ? budget.bytes : .max,
        matching: settings.filter)
      if let gap = result.gap { note(gap) }
      if frontier.epoch != result.cursor.epoch { startSequence = 0 }
      notePassed(result)
      let passed = Int(result.cursor.sequence - min(frontier.sequence, result.cursor.sequence))
      budget.pushes -= result.messages.count
      // Pushes that retention has removed are not compared. A read that only passes a gap counts as well.
      let compared = max(0, passed - result.messages.count - Int(clamping: result.gap?.missed ?? 0))
      budget.comparisons -= (compared + 1) * max(1, settings.topics.count)
      frontier = result.cursor
      for message in result.messages {
        if readsPayloads { budget.bytes -= message.rendered.count }
        examined.append(message.sequence)
        insert(message)
      }
    }
  }

  mutating func insert(_ message: RetainedMessage) {
    let number = message.sequence
    let key = settings.order?.key(of: message)
    records[number] = Record(key: key, state: .queued)
    queuedCount += 1
    if let key {
      if let tail = tails.updateValue(number, forKey: key) {
        records[tail]?.next = number
        return
      }
    }
    makeReady(number)
  }

  mutating func firstReady() -> UInt64? {
    while let number = ready.first {
      if records[number]?.state == .ready { return number }
      ready.removeFirst()
    }
    return nil
  }

  /// Leases the first ready push.
  mutating func lease(_ message: RetainedMessage, until end: MonotonicTime, bits: UInt64) -> LeasedMessage {
    let number = message.sequence
    ready.removeFirst()
    records[number]?.attempts += 1
    set(.leased(bits: bits), until: end, of: number)
    noteChange(of: number)
    if settings.isWebhook { attempted[number] = message }
    let lease = Lease(number: number, attempt: records[number]?.attempts ?? 1, bits: bits)
    return LeasedMessage(lease: lease, expires: end, message: message)
  }

  func payload(of number: UInt64, _ source: some PushSource) -> RetainedMessage? {
    copies[number] ?? source.message(number) ?? attempted[number]
  }

  // MARK: Records

  mutating func makeReady(_ number: UInt64) {
    set(.ready, until: .distantFuture, of: number)
    ready.insert(number)
  }

  mutating func set(_ state: State, until deadline: MonotonicTime, of number: UInt64) {
    guard let record = records[number] else { return }
    count(record.state, -1)
    count(state, 1)
    records[number]?.state = state
    records[number]?.deadline = deadline
    guard deadline < .distantFuture else { return }
    deadlines.insert(Deadline(time: deadline, number: number))
    // Each extension leaves an invalid deadline behind, and the number of extensions has no limit.
    if deadlines.count > 2 * (leaseCount + delayedCount) + 64 {
      deadlines = MinimumHeap(
        records.lazy.filter { $0.value.deadline < .distantFuture }.map {
          Deadline(time: $0.value.deadline, number: $0.key)
        })
    }
  }

  mutating func count(_ state: State, _ change: Int) {
    switch state {
    case .queued: queuedCount += change
    case .ready: readyCount += change
    case .delayed: delayedCount += change
    case .leased: leaseCount += change
    case .missing: break
    }
  }

  /// Removes a push, and makes the next push of its key ready.
  mutating func remove(_ number: UInt64) {
    guard let record = records.removeValue(forKey: number) else { return }
    count(record.state, -1)
    noteChange(of: number)
    attempted[number] = nil
    if let copy = copies.removeValue(forKey: number) { copiedBytes -= copy.cost }
    if !unknownKeys.isEmpty, unknownKeys.remove(number) != nil { hasFreed = true }
    if let key = record.key { advance(key, to: record.next) }
    while !examined.isEmpty, records[examined[examined.front]] == nil { examined.removeFirst() }
  }

  mutating func advance(_ key: UInt64, to successor: UInt64) {
    var successor = successor
    while successor != 0 {
      if records[successor]?.state != .missing { return makeReady(successor) }
      successor = records.removeValue(forKey: successor)?.next ?? 0
    }
    tails[key] = nil
  }
}
