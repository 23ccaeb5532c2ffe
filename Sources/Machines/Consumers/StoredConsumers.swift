import ByteStreams
import Inbox
import JournalCoding

/// The consumers of a session as they are stored.
package struct StoredConsumers: Equatable, Sendable {
  package private(set) var byName: [String: StoredConsumer] = [:]

  package init() {}

  /// Applies a change. Returns false, and changes nothing, if the change cannot follow the earlier changes.
  package mutating func apply(_ change: ConsumerChange, to name: String) -> Bool {
    switch change {
    case .removed: byName[name] = nil
    case .put(let settings, let position) where byName[name] == nil:
      byName[name] = StoredConsumer(settings, start: position)
    default: return byName[name]?.apply(change) != nil
    }
    return true
  }

  /// The changes that create these consumers.
  package var changes: [(name: String, change: ConsumerChange)] {
    byName.sorted { $0.key < $1.key }.flatMap { name, consumer in consumer.changes.map { (name, $0) } }
  }
}

/// A consumer as it is stored.
package struct StoredConsumer: Equatable, Sendable {
  /// A push that was delivered and is not settled.
  package struct Push: Hashable, Sendable {
    package let attempts: UInt32
    /// The random bits of the latest lease; nil if the lease ended.
    package let bits: UInt64?
    /// When the lease ends, or when the push can be delivered again.
    package let end: JournalDeadline
  }

  package private(set) var settings: ConsumerSettings
  /// Where the consumer started, as `Cursor.position`.
  package let start: UInt64
  package private(set) var progress: ConsumerProgress
  /// The delivered pushes that are not settled, by number.
  package private(set) var pushes: [UInt64: Push] = [:]
  /// The numbers after the position that are settled.
  private(set) var settled = NumberRanges()
  /// The dead letters, oldest first.
  package private(set) var dead: [StoredDeadLetter] = []
  /// Dead letters that are being delivered again, in the order of the retries. Their numbers may be before the
  /// position.
  private(set) var retried: [StoredPush] = []

  fileprivate init(_ settings: ConsumerSettings, start: UInt64) {
    self.settings = settings
    self.start = start
    progress = ConsumerProgress(position: start, frontier: start)
  }

  fileprivate mutating func apply(_ change: ConsumerChange) {
    switch change {
    case .put(let settings, _): self.settings = settings
    case .moved(let progress): move(progress)
    case .leased(let lease, let end): pushes[lease.number] = Push(attempts: lease.attempt, bits: lease.bits, end: end)
    case .released(let number, let attempts, let end):
      pushes[number] = attempts == 0 ? nil : Push(attempts: attempts, bits: nil, end: end)
    case .settled(let first, let last): settle(first...max(first, last))
    case .buried(let letter):
      settle(letter.push.number...letter.push.number)
      dead.append(letter)
    case .deadDropped(let number):
      if let index = dead.firstIndex(where: { $0.push.number == number }) { dead.remove(at: index) }
    case .deadRemoved: dead = []
    case .deadRetried:
      retried += dead.map(\.push)
      dead = []
    case .unused(let time): progress.unused = time
    case .removed: break
    }
  }

  private mutating func settle(_ numbers: ClosedRange<UInt64>) {
    if numbers.upperBound - numbers.lowerBound < UInt64(pushes.count) {
      for number in numbers { pushes[number] = nil }
    } else if !pushes.isEmpty {
      pushes = pushes.filter { !numbers.contains($0.key) }
    }
    let last = progress.position >> 1
    if numbers.upperBound > last { settled.insert(max(numbers.lowerBound, last + 1)...numbers.upperBound) }
    if !retried.isEmpty { retried.removeAll { numbers.contains($0.number) } }
  }

  /// Positions only move forward. Pushes before the position are settled, except dead letters that are being delivered
  /// again.
  private mutating func move(_ moved: ConsumerProgress) {
    let before = progress
    progress = moved
    progress.position = max(before.position, moved.position)
    progress.frontier = max(before.frontier, moved.frontier)
    settled.removeAll(through: progress.position >> 1)
  }

  fileprivate var changes: [ConsumerChange] {
    var result: [ConsumerChange] = [.put(settings, position: start), .moved(progress)]
    result += settled.ranges.map { .settled(first: $0.lowerBound, last: $0.upperBound) }
    if !retried.isEmpty {
      result += retried.map { .buried(StoredDeadLetter(push: $0, reason: .deliveries, deliveries: 0)) }
      result.append(.deadRetried)
    }
    result += dead.map { .buried($0) }
    for (number, push) in pushes.sorted(by: { $0.key < $1.key }) {
      if let bits = push.bits {
        result.append(.leased(Lease(number: number, attempt: push.attempts, bits: bits), end: push.end))
      } else {
        result.append(.released(number: number, attempts: push.attempts, end: push.end))
      }
    }
    return result
  }
}
