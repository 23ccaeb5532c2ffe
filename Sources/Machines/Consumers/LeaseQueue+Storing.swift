import ByteStreams
import Inbox
import JournalCoding

/// The stored part of a queue: which pushes are settled, which are leased, and the dead letters.
extension LeaseQueue {
  /// The changes since the last `takeChanges`. For a push, only its number is recorded: `takeChanges` reads the state
  /// of the push.
  struct Changes: Sendable {
    var numbers: [UInt64] = []
    /// Examined pushes that are not delivered: pushes of other topics, and missing pushes.
    var passed = NumberRanges()
    var dead: [DeadChange] = []

    var isEmpty: Bool { numbers.isEmpty && passed.ranges.isEmpty && dead.isEmpty }
  }

  enum DeadChange: Sendable {
    case buried(DeadLetter)
    case dropped(UInt64)
    case removed
    case retried
  }

  mutating func noteChange(of number: UInt64) { changes?.numbers.append(number) }

  mutating func note(_ change: DeadChange) { changes?.dead.append(change) }

  /// Records the pushes that a read has passed. Must be called before the frontier moves to the end of the read.
  mutating func notePassed(_ result: ReadResult) {
    guard changes != nil else { return }
    var next = (frontier.epoch == result.cursor.epoch ? frontier.sequence : 0) + 1
    for message in result.messages {
      if next < message.sequence { changes?.passed.insert(next...message.sequence - 1) }
      next = message.sequence + 1
    }
    if next <= result.cursor.sequence { changes?.passed.insert(next...result.cursor.sequence) }
  }

  mutating func takeChanges(at clock: JournalClock) -> [ConsumerChange] {
    guard let taken = changes, !taken.isEmpty else { return [] }
    changes = Changes()
    var settled = taken.passed
    var result: [ConsumerChange] = []
    for number in Set(taken.numbers).sorted() {
      if let record = records[number], record.state != .missing {
        result.append(record.change(of: number, at: clock))
      } else {
        settled.insert(number...number)
      }
    }
    result += settled.ranges.map { .settled(first: $0.lowerBound, last: $0.upperBound) }
    result += taken.dead.map { $0.change(at: clock) }
    return result
  }

  // MARK: Restoring

  /// Maximum number of restored pushes between the position and the frontier, so that a damaged store cannot cost more
  /// memory. An intact store has at most this many such pushes, since a search ends earlier.
  private static var restoredLimit: Int { searchLimit + 2 * PushLog.searchLimit }

  /// Restores the queue that an earlier process has stored. Leases that have expired since they were stored end with
  /// the next `refresh`.
  init(
    restoring stored: StoredConsumer, _ settings: ConsumerSettings, from source: some PushSource,
    at clock: JournalClock
  ) {
    let end = source.latest
    self.init(settings, after: source.cursor(restoring: stored.progress.frontier))
    changes = Changes()
    startSequence = min(stored.start >> 1, end.sequence)
    (missed, missedTotal) = (stored.progress.missed, stored.progress.missedTotal)
    gapReasons = stored.progress.reasons
    dead = DeadLetters(
      restoring: stored.dead.compactMap { DeadLetter($0, at: clock) }, dropped: stored.progress.droppedDead)
    let copied = stored.retried.compactMap { RetainedMessage($0, at: clock) }
    for message in copied {
      copies[message.sequence] = message
      copiedBytes += message.cost
    }
    // These pushes were delivered. Only the first push of a key is delivered, so they precede all other pushes of their
    // keys.
    for (number, push) in stored.pushes.sorted(by: { $0.key < $1.key }) where number <= frontier.sequence {
      insert(number, source)
      restore(number, push, source, at: clock)
    }
    var number = min(stored.progress.position >> 1, frontier.sequence)
    var settled = stored.settled.ranges[...]
    while number < frontier.sequence, examined.count < Self.restoredLimit {
      number += 1
      if let range = settled.first, range.contains(number) {
        number = range.upperBound
        settled.removeFirst()
        continue
      }
      examined.append(number)
      if records[number] == nil { insert(number, source) }
    }
    for message in copied where records[message.sequence] == nil { insert(message) }
  }

  /// Inserts a push. If retention has removed it, the next `refresh` accounts for it.
  private mutating func insert(_ number: UInt64, _ source: some PushSource) {
    if let message = payload(of: number, source) { return insert(message) }
    records[number] = Record(key: nil, state: .queued)
    queuedCount += 1
    makeReady(number)
  }

  private mutating func restore(
    _ number: UInt64, _ push: StoredConsumer.Push, _ source: some PushSource, at clock: JournalClock
  ) {
    records[number]?.attempts = push.attempts
    // If the order was changed, the push may be behind another push of its key. In this case it waits for that push.
    guard records[number]?.state == .ready else { return }
    let deadline = clock.time(of: push.end)
    if let bits = push.bits {
      set(.leased(bits: bits), until: deadline, of: number)
      if settings.order != nil, payload(of: number, source) == nil { unknownKeys.insert(number) }
    } else if deadline > clock.now {
      set(.delayed, until: deadline, of: number)
    }
  }
}

extension LeaseQueue.Record {
  fileprivate func change(of number: UInt64, at clock: JournalClock) -> ConsumerChange {
    if case .leased(let bits) = state {
      return .leased(Lease(number: number, attempt: attempts, bits: bits), end: clock.deadline(deadline))
    }
    let end = clock.deadline(state == .delayed ? deadline : clock.now)
    return .released(number: number, attempts: attempts, end: end)
  }
}

extension LeaseQueue.DeadChange {
  fileprivate func change(at clock: JournalClock) -> ConsumerChange {
    switch self {
    case .buried(let letter):
      .buried(
        StoredDeadLetter(push: letter.message.stored(at: clock), reason: letter.reason, deliveries: letter.deliveries))
    case .dropped(let number): .deadDropped(number: number)
    case .removed: .deadRemoved
    case .retried: .deadRetried
    }
  }
}

extension DeadLetter {
  fileprivate init?(_ stored: StoredDeadLetter, at clock: JournalClock) {
    guard let message = RetainedMessage(stored.push, at: clock) else { return nil }
    self.init(message: message, reason: stored.reason, deliveries: stored.deliveries)
  }
}

extension PushSource {
  /// Converts a position of an earlier process. When a process starts, the gap after the last push may get a further
  /// reason. So a position after this gap is moved before the gap.
  func cursor(restoring position: UInt64) -> Cursor {
    let end = latest
    let position = position >> 1 < end.sequence ? position : end.sequence << 1
    return Cursor(epoch: end.epoch, term: end.term, position: position)
  }
}
