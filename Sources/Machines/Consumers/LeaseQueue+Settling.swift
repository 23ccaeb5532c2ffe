import ByteStreams
import Inbox

/// Settles leases, and keeps the dead letters.
extension LeaseQueue {
  /// Settles a lease. `refresh` must have been called for `now`.
  mutating func settle(
    _ lease: Lease, _ settlement: Settlement, now: MonotonicTime, _ source: some PushSource
  ) -> SettlementOutcome {
    let number = lease.number
    guard let record = records[number] else {
      // An acknowledgement may be repeated, since its response may have been lost. How a push was settled is not
      // remembered. So acknowledging a push that retention removed, or a dead letter that was removed, succeeds, too.
      let wasExamined = frontier.epoch == source.latest.epoch && number > startSequence && number <= frontier.sequence
      let isSettled = wasExamined && !dead.contains(number)
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
      noteChange(of: number)
      return .extended(until: expires)
    }
  }

  /// Ends a lease without an acknowledgement. The push can be delivered again at `time`. Returns whether the push
  /// became a dead letter.
  @discardableResult
  mutating func end(
    _ number: UInt64, at time: MonotonicTime, now: MonotonicTime, _ source: some PushSource
  ) -> Bool {
    guard let record = records[number] else { return false }
    if record.attempts >= settings.maximumDeliveries {
      bury(number, .deliveries, source)
      return true
    }
    return free(number, at: time, now: now, source)
  }

  /// Sets the end of a lease that was not sent to the worker yet. With `distantFuture`, the lease does not expire until
  /// its end is set again.
  mutating func setEnd(_ end: MonotonicTime, of lease: Lease) {
    guard let record = records[lease.number], record.state == .leased(bits: lease.bits) else { return }
    set(record.state, until: end, of: lease.number)
  }

  /// Takes back a lease that was not sent to the worker yet, as if the push had not been delivered.
  mutating func withdraw(_ lease: Lease, now: MonotonicTime, _ source: some PushSource) {
    guard let record = records[lease.number], record.state == .leased(bits: lease.bits) else { return }
    withdraw(lease.number, record, now: now, source)
  }

  /// Takes back all leases, as if their pushes had not been delivered.
  mutating func withdrawAll(now: MonotonicTime, _ source: some PushSource) {
    for (number, record) in records {
      if case .leased = record.state { withdraw(number, record, now: now, source) }
    }
  }

  private mutating func withdraw(_ number: UInt64, _ record: Record, now: MonotonicTime, _ source: some PushSource) {
    // The number of attempts is 0 only if the store was damaged.
    records[number]?.attempts = max(record.attempts, 1) - 1
    free(number, at: now, now: now, source)
  }

  /// Makes the push available again at `time`, unless retention has removed it. Returns whether the push became a dead
  /// letter.
  @discardableResult
  private mutating func free(
    _ number: UInt64, at time: MonotonicTime, now: MonotonicTime, _ source: some PushSource
  ) -> Bool {
    if number < source.firstRetained, copies[number] == nil {
      giveUp(number)
      return dead.contains(number)
    }
    if time > now { set(.delayed, until: time, of: number) } else { makeReady(number) }
    noteChange(of: number)
    return false
  }

  /// Changes the order in which examined pushes are delivered. Leased pushes stay leased, and become independent of all
  /// others.
  mutating func reorder(_ order: ConsumerOrder?, _ source: some PushSource) {
    settings.order = order
    let old = records
    records = old.filter { if case .leased = $0.value.state { true } else { false } }
    for number in records.keys { records[number]?.unlink() }
    (tails, ready) = ([:], MinimumHeap())
    (readyCount, delayedCount, queuedCount) = (0, 0, 0)
    for (number, record) in old.sorted(by: { $0.key < $1.key }) where records[number] == nil {
      noteChange(of: number)
      guard record.state != .missing else { continue }
      guard let message = payload(of: number, source) else {
        count(missing: 1)
        continue
      }
      insert(message)
      records[number]?.attempts = record.attempts
      if record.state == .delayed, records[number]?.state == .ready {
        set(.delayed, until: record.deadline, of: number)
      }
    }
    while !examined.isEmpty, records[examined[examined.front]] == nil { examined.removeFirst() }
  }

  mutating func bury(_ number: UInt64, _ reason: DeadLetter.Reason, _ source: some PushSource) {
    guard let message = payload(of: number, source) else { return lose(number) }
    bury(message, reason)
  }

  mutating func bury(_ message: RetainedMessage, _ reason: DeadLetter.Reason) {
    guard let record = records[message.sequence] else { return }
    remove(message.sequence)
    addDeadLetter(message, reason, deliveries: record.attempts)
  }

  mutating func addDeadLetter(_ message: RetainedMessage, _ reason: DeadLetter.Reason, deliveries: UInt32) {
    let letter = DeadLetter(message: message, reason: reason, deliveries: deliveries)
    note(.buried(letter))
    for number in dead.append(letter, besides: (copies.count, copiedBytes)) { note(.dropped(number)) }
  }

  /// Bytes of the payloads that the push log may no longer keep.
  var keptBytes: Int { dead.bytes + copiedBytes }

  /// Drops the oldest dead letter. Returns false if there is none.
  mutating func dropDeadLetter() -> Bool {
    guard let number = dead.dropOldest() else { return false }
    note(.dropped(number))
    return true
  }

  // MARK: Dead letters

  /// Removes the dead letters that a client may receive. Returns their number.
  mutating func removeDeadLetters(_ isAllowed: (RetainedMessage) -> Bool) -> Int {
    let letters = dead.take(isAllowed)
    noteTaken(letters, .removed)
    return letters.count
  }

  /// Delivers again the dead letters that a client may receive, as if they had never been delivered. With an order,
  /// each dead letter is handled after the pushes with its key that have been examined so far. Returns their number.
  mutating func retryDeadLetters(_ isAllowed: (RetainedMessage) -> Bool, now: MonotonicTime) -> Int {
    let letters = dead.take(isAllowed)
    noteTaken(letters, .retried)
    for letter in letters {
      copies[letter.message.sequence] = letter.message.arriving(at: now)
      copiedBytes += letter.message.cost
      insert(letter.message)
    }
    return letters.count
  }

  /// A stored removal or retry applies to all dead letters. So the dead letters that stay are stored again after this
  /// change.
  private mutating func noteTaken(_ letters: [DeadLetter], _ change: DeadChange) {
    if letters.isEmpty { return }
    note(change)
    for letter in dead.letters { note(.buried(letter)) }
  }
}
