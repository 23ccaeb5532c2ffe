import ByteStreams
import Consumers
import Continuity
import Idempotency
import Inbox
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

  package internal(set) var log = StoredLog()

  /// When the newest push or message of which something is known arrived; nil if nothing is.
  package var newestTime: Int64? { [log.newestTime, messages.values.map(\.time).max()].compactMap(\.self).max() }

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
  package internal(set) var consumers = StoredConsumers()

  package init(epoch: UInt64) { self.epoch = epoch }

  package static func == (left: RestoredSession, right: RestoredSession) -> Bool {
    left.epoch == right.epoch && left.terms == right.terms && left.mayHaveLostEntries == right.mayHaveLostEntries
      && left.log == right.log
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
