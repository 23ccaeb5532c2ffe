import ByteStreams
import Inbox

/// The pushes of a consumer whose workers share them: each push is leased to one worker until it acknowledges it.
///
/// Every push up to `frontier` was examined once. Those that match the consumer's topics and are not settled have a record. A push without a
/// record that was examined is settled, so acknowledgements out of order need no memory of their own. With an order, the pushes of
/// a key form a list, and only the first of it can be handed out. All operations cost a few dictionary accesses per push.
struct LeaseQueue: Sendable {
  /// Maximum number of leases at a time.
  static var maximumLeases: Int { 1_000 }
  /// Maximum number of pushes that are examined beyond the oldest one that is not settled, and in one request: this limits the memory of a
  /// consumer, and how long others wait for its lock.
  static var searchLimit: Int { 10_000 }

  enum State: Equatable, Sendable {
    /// Behind another push of its key.
    case queued
    /// Can be handed out.
    case ready
    /// Released, and to be handed out after the record's deadline.
    case delayed
    /// Leased until the record's deadline.
    case leased(bits: UInt64)
    /// Retention has removed it while it was queued. It is part of a gap, and is removed with the push before it.
    case missing
  }

  struct Record: Sendable {
    let key: UInt64?
    /// The number of the next push of the same key; 0 if there is none.
    var next: UInt64 = 0
    /// Number of deliveries.
    var attempts: UInt32 = 0
    var state: State
    var deadline = MonotonicTime.distantFuture
  }

  private struct Deadline: Comparable, Sendable {
    let time: MonotonicTime
    let number: UInt64

    static func < (left: Deadline, right: Deadline) -> Bool { left.time < right.time }
  }

  var settings: ConsumerSettings
  private(set) var frontier: Cursor
  private(set) var records: [UInt64: Record] = [:]
  /// The dead letters that are delivered again, which the push log may no longer keep.
  private var copies: [UInt64: RetainedMessage] = [:]
  private var copiedBytes = 0
  /// The examined pushes in order, from the oldest that is not settled. Those without a record are settled.
  private var examined = RingDeque<UInt64>(filler: 0)
  /// The last push of each key.
  private var tails: [UInt64: UInt64] = [:]
  /// The pushes in the state `ready`, and some that no longer are.
  private var ready = MinimumHeap<UInt64>()
  /// The deadlines of leases and delays, and some that are no longer valid.
  private var deadlines = MinimumHeap<Deadline>()
  private(set) var leaseCount = 0
  private var readyCount = 0
  private var delayedCount = 0
  private var queuedCount = 0
  /// Every push before this number that retention has removed is accounted for.
  private var swept: UInt64 = 1
  private(set) var dead = DeadLetters()

  /// What the next response reports as a gap.
  private var missed: UInt64 = 0
  private var gapReasons: [Gap.Reason] = []
  /// Number of pushes that retention removed before they were settled.
  private(set) var missedTotal: UInt64 = 0

  init(_ settings: ConsumerSettings, after start: Cursor) {
    self.settings = settings
    frontier = start
  }

  /// The position before the oldest push that is not settled. Dead letters that are delivered again do not move it back.
  var position: Cursor {
    guard !examined.isEmpty else { return frontier }
    return Cursor(epoch: frontier.epoch, sequence: examined[examined.front] - 1)
  }

  // MARK: Receiving

  /// Leases up to `limit` pushes whose rendered bytes do not exceed `maxBytes`, but at least one if there is one.
  mutating func receive(
    limit: Int, maxBytes: Int, now: MonotonicTime, from source: some PushSource,
    using generator: inout some RandomNumberGenerator
  ) -> LeasedBatch {
    refresh(now: now, source)
    var messages: [LeasedMessage] = []
    var bytes = 0
    var budget = Self.searchLimit
    while messages.count < limit, leaseCount < Self.maximumLeases {
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
    let mayContinue = leaseCount < Self.maximumLeases && (readyCount > 0 || canSearch(source))
    let isBehindLeases = queuedCount > 0 || readyCount > 0 || isBehind(source.latest)
    return LeasedBatch(
      messages: messages, gap: takeGap(), more: mayContinue,
      isBlocked: messages.isEmpty && !mayContinue && leaseCount > 0 && isBehindLeases)
  }

  /// Whether `receive` would return something. Examines new pushes, each once.
  mutating func hasNews(_ source: some PushSource) -> Bool {
    sweep(before: source.firstRetained)
    var budget = Self.searchLimit
    if readyCount == 0 { search(for: 1, &budget, source) }
    if missed > 0 || !gapReasons.isEmpty { return true }
    return leaseCount < Self.maximumLeases && (readyCount > 0 || canSearch(source))
  }

  private func canSearch(_ source: some PushSource) -> Bool {
    isBehind(source.latest) && searchRoom > 0
  }

  private func isBehind(_ latest: Cursor) -> Bool {
    frontier.epoch != latest.epoch || frontier.position < latest.position
  }

  private var searchRoom: Int { Self.searchLimit - Int(frontier.sequence - position.sequence) }

  /// Examines pushes until `count` can be handed out. `budget` is how many may be examined.
  private mutating func search(for count: Int, _ budget: inout Int, _ source: some PushSource) {
    while readyCount < count, budget > 0, canSearch(source) {
      let result = source.read(
        after: ReadStart(frontier), limit: min(count - readyCount, searchRoom), maxBytes: .max,
        matching: settings.filter)
      if let gap = result.gap { note(gap) }
      budget -= Int(result.cursor.sequence - min(frontier.sequence, result.cursor.sequence)) + 1
      frontier = result.cursor
      for message in result.messages {
        examined.append(message.sequence)
        insert(message)
      }
    }
  }

  private mutating func insert(_ message: RetainedMessage) {
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

  private mutating func firstReady() -> UInt64? {
    while let number = ready.first {
      if records[number]?.state == .ready { return number }
      ready.removeFirst()
    }
    return nil
  }

  /// Leases the first of the pushes that are ready.
  private mutating func lease(_ message: RetainedMessage, until end: MonotonicTime, bits: UInt64) -> LeasedMessage {
    let number = message.sequence
    ready.removeFirst()
    records[number]?.attempts += 1
    set(.leased(bits: bits), until: end, of: number)
    let lease = Lease(number: number, attempt: records[number]?.attempts ?? 1, bits: bits)
    return LeasedMessage(lease: lease, expires: end, message: message)
  }

  private func payload(of number: UInt64, _ source: some PushSource) -> RetainedMessage? {
    copies[number] ?? source.message(number)
  }

  // MARK: Settling

  /// `refresh` must have been called for this time.
  mutating func settle(
    _ lease: Lease, _ settlement: Settlement, now: MonotonicTime, _ source: some PushSource
  ) -> SettlementOutcome {
    let number = lease.number
    guard let record = records[number] else {
      // An acknowledgement can be repeated, since its response may have been lost.
      let isSettled = number <= frontier.sequence && !dead.contains(number)
      return settlement == .acknowledge && isSettled ? .acknowledged : .leaseLost
    }
    guard record.state == .leased(bits: lease.bits), record.attempts == lease.attempt else { return .leaseLost }
    switch settlement {
    case .acknowledge:
      remove(number)
      return .acknowledged
    case .reject:
      bury(number, .rejected, source)
      return .dead
    case .release(let delay):
      return end(number, at: now + delay, now: now, source) ? .dead : .released
    case .extend:
      let expires = now + settings.visibility
      set(record.state, until: expires, of: number)
      return .extended(until: expires)
    }
  }

  /// Ends a lease without an acknowledgement. The push can be handed out again at `time`. Returns whether it became a dead letter.
  @discardableResult
  private mutating func end(
    _ number: UInt64, at time: MonotonicTime, now: MonotonicTime, _ source: some PushSource
  ) -> Bool {
    guard let record = records[number] else { return false }
    if record.attempts >= settings.maximumDeliveries {
      bury(number, .deliveries, source)
      return true
    }
    if number < source.firstRetained, copies[number] == nil {
      lose(number)
    } else if time > now {
      set(.delayed, until: time, of: number)
    } else {
      makeReady(number)
    }
    return false
  }

  private mutating func bury(_ number: UInt64, _ reason: DeadLetter.Reason, _ source: some PushSource) {
    guard let message = payload(of: number, source), let record = records[number] else {
      lose(number)
      return
    }
    remove(number)
    dead.append(
      DeadLetter(message: message, reason: reason, deliveries: record.attempts), besides: (copies.count, copiedBytes))
  }

  /// Bytes of the payloads that the push log may no longer keep.
  var keptBytes: Int { dead.bytes + copiedBytes }

  /// Drops the oldest dead letter. Returns false if there is none.
  mutating func dropDeadLetter() -> Bool { dead.dropOldest() }

  // MARK: Dead letters

  /// Removes all. Returns their number.
  mutating func removeDeadLetters() -> Int { dead.takeAll().count }

  /// Delivers all dead letters again, as if they had not been delivered before. With an order, each is handled after the pushes of its key that
  /// were examined before. Returns their number.
  mutating func retryDeadLetters() -> Int {
    let letters = dead.takeAll()
    for letter in letters {
      copies[letter.message.sequence] = letter.message
      copiedBytes += letter.message.cost
      insert(letter.message)
    }
    return letters.count
  }

  // MARK: Time and retention

  /// Ends leases and delays whose time is over, and accounts for pushes that retention has removed. Returns whether anything changed.
  @discardableResult
  mutating func refresh(now: MonotonicTime, _ source: some PushSource) -> Bool {
    var hasChanged = false
    while let deadline = nextDeadline(), deadline <= now {
      guard let number = deadlines.first?.number, let record = records[number] else { break }
      deadlines.removeFirst()
      hasChanged = true
      if record.state == .delayed { makeReady(number) } else { end(number, at: now, now: now, source) }
    }
    sweep(before: source.firstRetained)
    return hasChanged
  }

  /// When the next lease or delay ends.
  mutating func nextDeadline() -> MonotonicTime? {
    while let first = deadlines.first {
      if let record = records[first.number], record.deadline == first.time { return first.time }
      deadlines.removeFirst()
    }
    return nil
  }

  /// Accounts for the pushes before `first`, which retention has removed. Each push is visited once. Leases of removed pushes stay valid:
  /// they can be acknowledged, but not delivered again.
  private mutating func sweep(before first: UInt64) {
    let end = min(first, frontier.sequence + 1)
    while swept < end {
      guard !examined.isEmpty else {
        swept = end
        return
      }
      swept = max(swept, examined[examined.front])
      guard swept < end else { return }
      if let record = records[swept], copies[swept] == nil {
        switch record.state {
        case .ready, .delayed: lose(swept)
        case .queued:
          count(missing: 1)
          set(.missing, until: .distantFuture, of: swept)
        case .leased, .missing: break
        }
      }
      swept += 1
    }
  }

  private mutating func lose(_ number: UInt64) {
    count(missing: 1)
    remove(number)
  }

  // MARK: Gaps

  private mutating func count(missing count: UInt64) {
    missed += count
    missedTotal += count
    note(.retention)
  }

  private mutating func note(_ gap: Gap) {
    if let missed = gap.missed {
      self.missed += missed
      missedTotal += missed
    }
    for reason in gap.reasons { note(reason) }
  }

  private mutating func note(_ reason: Gap.Reason) {
    if !gapReasons.contains(reason) { gapReasons.append(reason) }
  }

  private mutating func takeGap() -> Gap? {
    guard !gapReasons.isEmpty else { return nil }
    defer { (missed, gapReasons) = (0, []) }
    // As in a poll: a number only if it is known.
    let isKnown = missed > 0 && !gapReasons.contains(.restart)
    let order: [Gap.Reason] = [.restart, .retention, .upstream]
    return Gap(missed: isKnown ? missed : nil, reasons: order.filter { gapReasons.contains($0) })
  }

  // MARK: Records

  private mutating func makeReady(_ number: UInt64) {
    set(.ready, until: .distantFuture, of: number)
    ready.insert(number)
  }

  private mutating func set(_ state: State, until deadline: MonotonicTime, of number: UInt64) {
    guard let record = records[number] else { return }
    count(record.state, -1)
    count(state, 1)
    records[number]?.state = state
    records[number]?.deadline = deadline
    guard deadline < .distantFuture else { return }
    deadlines.insert(Deadline(time: deadline, number: number))
    // Each extension leaves an invalid deadline behind, and nothing limits their number.
    if deadlines.count > 2 * (leaseCount + delayedCount) + 64 {
      deadlines = MinimumHeap(
        records.lazy.filter { $0.value.deadline < .distantFuture }.map {
          Deadline(time: $0.value.deadline, number: $0.key)
        })
    }
  }

  private mutating func count(_ state: State, _ change: Int) {
    switch state {
    case .queued: queuedCount += change
    case .ready: readyCount += change
    case .delayed: delayedCount += change
    case .leased: leaseCount += change
    case .missing: break
    }
  }

  /// Removes a push, and makes the next one of its key ready.
  private mutating func remove(_ number: UInt64) {
    guard let record = records.removeValue(forKey: number) else { return }
    count(record.state, -1)
    if let copy = copies.removeValue(forKey: number) { copiedBytes -= copy.cost }
    if let key = record.key { advance(key, to: record.next) }
    while !examined.isEmpty, records[examined[examined.front]] == nil { examined.removeFirst() }
  }

  private mutating func advance(_ key: UInt64, to successor: UInt64) {
    var successor = successor
    while successor != 0 {
      if records[successor]?.state != .missing { return makeReady(successor) }
      successor = records.removeValue(forKey: successor)?.next ?? 0
    }
    tails[key] = nil
  }
}
