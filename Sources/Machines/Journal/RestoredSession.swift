import ByteStreams
import Continuity
import Idempotency
import JournalCoding

/// What a session was when its last entry was stored.
///
/// `apply` is the definition of the journal: the state is that after all stored entries. Every value that `apply` accepts is within
/// limits of its own, since a damaged file must not exhaust the memory.
package struct RestoredSession: Equatable, Sendable {
  /// The latest delivery states that are kept, as many as an outbox of the default size remembers.
  package static var maximumDeliveries: Int { 65_536 }
  /// The latest terms that are kept. A cursor of an older term is before the oldest of these.
  package static var maximumTerms: Int { 64 }

  /// A gap: pushes may be missing after push `after`.
  package struct Gap: Hashable, Sendable {
    package let after: UInt64
    package var reasons: JournalGaps

    package init(after: UInt64, reasons: JournalGaps) {
      self.after = after
      self.reasons = reasons
    }
  }

  /// The state of a message.
  package struct Delivery: Hashable, Sendable {
    /// 0: not stored.
    package var state: UInt8 = 0
    package var reason: UInt8 = 0
    /// When it was reached, in units of 10 ms.
    package var time: Int64 = 0

    package init(state: UInt8 = 0, reason: UInt8 = 0, time: Int64 = 0) {
      self.state = state
      self.reason = reason
      self.time = time
    }
  }

  /// The state of a queued message.
  package static var queued: UInt8 { 1 }

  /// Drawn at random when the session was first opened.
  package let epoch: UInt64
  /// Oldest first. The last one is the present. Empty: the session was never opened.
  package internal(set) var terms: [JournalTerm] = []
  /// Whether entries at the end may be missing, because the machine failed or the store was restored from a backup. The store appends a gap
  /// then. This is not part of the journal.
  package var mayHaveLostEntries = false

  /// Whether an earlier process had this session.
  package var isContinued: Bool { terms.count > 1 }

  // MARK: Pushes

  /// The retained pushes: those with the numbers before `nextPush`.
  package internal(set) var pushes = RingDeque(
    filler: JournalPush(number: 0, time: 0, layout: 0, rendered: SharedBytes([])))
  package internal(set) var nextPush: UInt64 = 1
  /// Of and after the oldest retained push, in order, and the newest before it.
  package internal(set) var gaps: [Gap] = []
  /// When push 1 arrived.
  package internal(set) var firstArrival: Int64?
  /// When the newest dropped push arrived.
  package internal(set) var newestTrimmedArrival: Int64?

  /// When the newest push or message of which something is known arrived; nil if nothing is.
  package var newestTime: Int64? {
    let ofPushes = pushes.isEmpty ? newestTrimmedArrival : pushes[pushes.end - 1].time
    return [ofPushes, messages.values.map(\.time).max()].compactMap(\.self).max()
  }

  /// The number of the oldest retained push, or of the next one if none is.
  package var firstRetained: UInt64 { nextPush - UInt64(pushes.count) }
  /// The position after the last push and gap, as `Cursor.position`.
  package var lastPosition: UInt64 { (nextPush - 1) << 1 | (gaps.last?.after == nextPush - 1 ? 1 : 0) }

  // MARK: Deliveries

  package internal(set) var nextDelivery: UInt64 = 1
  /// A connection may have written the messages up to this one.
  package internal(set) var intended: UInt64 = 0
  /// The messages whose payloads may still be needed, by number. Those up to `intended` may have been written.
  package internal(set) var messages: [UInt64: JournalMessage] = [:]
  /// The states of the last messages. The last one has the number `nextDelivery` - 1.
  package internal(set) var deliveries = RingDeque(filler: Delivery())
  package internal(set) var keys = StoredKeys()

  /// The state of a message; nil if it is not stored.
  package func delivery(_ number: UInt64) -> Delivery? {
    guard let index = deliveryIndex(number), deliveries[index].state != 0 else { return nil }
    return deliveries[index]
  }

  func deliveryIndex(_ number: UInt64) -> Int? {
    guard number < nextDelivery, nextDelivery - number <= UInt64(deliveries.count) else { return nil }
    return deliveries.end - Int(nextDelivery - number)
  }

  // MARK: The rest

  /// In the order in which they were made.
  package var subscriptions: [JournalSubscription] { storedSubscriptions.inOrder }
  var storedSubscriptions = StoredSubscriptions()
  package internal(set) var resume: [ResumeValue: [UInt8]] = [:]
  /// By namespace of the upstream.
  package internal(set) var continuations: [String: Continuation] = [:]
  package internal(set) var spoken = StoredProtocol.webSocket
  /// Whether no operator has closed the session.
  package internal(set) var isOpenDesired = true
  /// Whether no push is missing if the upstream restores the state of its last connection, which the next one asks for.
  package var mayBeContinued: Bool {
    !mayHaveLostEntries && continuations.values.areComplete
  }
  package internal(set) var consumers: [String: RestoredConsumer] = [:]

  package init(epoch: UInt64) { self.epoch = epoch }

  package static func == (left: RestoredSession, right: RestoredSession) -> Bool {
    left.epoch == right.epoch && left.terms == right.terms && left.mayHaveLostEntries == right.mayHaveLostEntries
      && left.nextPush == right.nextPush && left.gaps == right.gaps && left.firstArrival == right.firstArrival
      && left.newestTrimmedArrival == right.newestTrimmedArrival && areEqual(left.pushes, right.pushes)
      && left.nextDelivery == right.nextDelivery && left.intended == right.intended && left.messages == right.messages
      && left.hasSameDeliveries(as: right) && left.keys == right.keys
      && left.subscriptions == right.subscriptions && left.resume == right.resume
      && left.continuations == right.continuations && left.spoken == right.spoken
      && left.isOpenDesired == right.isOpenDesired && left.consumers == right.consumers
  }

  /// Messages without a state at the beginning of `deliveries` make no difference.
  private func hasSameDeliveries(as other: RestoredSession) -> Bool {
    let count = UInt64(max(deliveries.count, other.deliveries.count))
    let first = nextDelivery > count ? nextDelivery - count : 1
    return (first..<nextDelivery).allSatisfy { delivery($0) == other.delivery($0) }
  }

  private static func areEqual<Element: Equatable>(_ left: RingDeque<Element>, _ right: RingDeque<Element>) -> Bool {
    left.count == right.count && (0..<left.count).allSatisfy { left[left.front + $0] == right[right.front + $0] }
  }
}

/// Subscriptions by key. There may be a million, and each entry about one changes only that.
struct StoredSubscriptions: Sendable {
  private var entries: [[UInt8]: (order: UInt64, subscription: JournalSubscription)] = [:]
  private var next: UInt64 = 0

  var inOrder: [JournalSubscription] { entries.values.sorted { $0.order < $1.order }.map(\.subscription) }

  mutating func add(_ subscription: JournalSubscription) {
    entries[subscription.key] = (next, subscription)
    next += 1
  }

  mutating func remove(_ key: [UInt8]) { entries[key] = nil }
}

/// A consumer when the last entry was stored.
package struct RestoredConsumer: Equatable, Sendable {
  /// A push that was handed out and is not settled.
  package struct Push: Hashable, Sendable {
    package let attempts: UInt32
    /// The random bits of the latest lease; nil: the lease ended.
    package let bits: UInt64?
    /// When the lease ends, or the push can be handed out again.
    package let end: JournalDeadline
  }

  package internal(set) var settings: JournalConsumerSettings
  /// Where it started, as `Cursor.position`.
  package let start: UInt64
  package internal(set) var progress: JournalConsumerProgress
  /// By number.
  package internal(set) var pushes: [UInt64: Push] = [:]
  /// The numbers after the position that are settled.
  package internal(set) var settled = NumberRanges()
  /// Oldest first.
  package internal(set) var dead: [JournalDeadLetter] = []
  /// Dead letters that are handed out again, in the order of the retries. Their numbers may be before the position.
  package internal(set) var retried: [JournalPush] = []

  init(_ settings: JournalConsumerSettings, start: UInt64) {
    self.settings = settings
    self.start = start
    progress = JournalConsumerProgress(position: start, frontier: start)
  }
}
