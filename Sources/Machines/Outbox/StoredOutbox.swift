import ByteStreams
import JournalCoding

/// A message on its way to the upstream, as it is stored. Times are wall-clock times, in milliseconds of UNIX time.
package struct StoredMessage: Equatable, Sendable {
  package let number: UInt64
  package let payload: ByteString
  package let kind: MessageKind
  package let topic: String?
  /// When the message expires; nil if it does not expire.
  package let deadline: Int64?
  /// When the message was queued.
  package let time: Int64

  package init(
    number: UInt64, payload: ByteString, kind: MessageKind, topic: String?, deadline: Int64?, time: Int64
  ) {
    self.number = number
    self.payload = payload
    self.kind = kind
    self.topic = topic
    self.deadline = deadline
    self.time = time
  }

  package static func == (left: StoredMessage, right: StoredMessage) -> Bool {
    left.number == right.number && left.kind == right.kind && left.topic == right.topic
      && left.deadline == right.deadline && left.time == right.time && left.payload.bytes.equals(right.payload.bytes)
  }
}

/// Messages with consecutive numbers that entered the same state.
package struct StoredSettlement: Hashable, Sendable {
  package let first: UInt64
  package let last: UInt64
  /// The raw values of `DeliveryState` and `DeliveryReason`. Another version may have further cases. 0 means no state
  /// or no reason.
  package let state: UInt8
  package let reason: UInt8
  package let time: Int64
  /// Whether the payloads are no longer needed, since the messages will not be sent again.
  package let releasesPayloads: Bool

  package init(first: UInt64, last: UInt64, state: UInt8, reason: UInt8, time: Int64, releasesPayloads: Bool) {
    self.first = first
    self.last = last
    self.state = state
    self.reason = reason
    self.time = time
    self.releasesPayloads = releasesPayloads
  }
}

/// A change of an outbox that is to survive the process.
package enum OutboxChange: Equatable, Sendable {
  /// A message was queued. Its number is larger than all earlier numbers. Numbers can be skipped, since messages with
  /// time to live 0 are not stored.
  case accepted(StoredMessage)
  /// A connection may write the messages up to this number. The number decreases when a connection is lost before it
  /// has written everything that it had taken: the messages after the number are queued again.
  case intended(through: UInt64)
  case settled(StoredSettlement)

  /// The size of the payload that the change contains, in bytes; 0 without a payload.
  package var size: Int { if case .accepted(let message) = self { message.payload.count } else { 0 } }
}

/// The outgoing messages of a session as they are stored.
package struct StoredOutbox: Equatable, Sendable {
  /// Maximum number of delivery states that are kept. An outbox of the default size remembers the same number of
  /// states.
  package static var maximumDeliveries: Int { DeliveryLedger.minimumLimit }

  /// The state of a message.
  package struct Delivery: Hashable, Sendable {
    /// 0 if the state is not stored.
    package let state: UInt8
    package let reason: UInt8
    /// When the state was reached, in units of 10 ms.
    package let time: Int64

    package init(state: UInt8 = 0, reason: UInt8 = 0, time: Int64 = 0) {
      self.state = state
      self.reason = reason
      self.time = time
    }
  }

  package private(set) var nextDelivery: UInt64 = 1
  /// The number up to which a connection may have written messages.
  package private(set) var intended: UInt64 = 0
  /// The messages whose payloads may still be needed, by number. Messages up to `intended` may have been written.
  package private(set) var messages: [UInt64: StoredMessage] = [:]
  /// The states of the last messages. The last state belongs to the number `nextDelivery` - 1.
  package private(set) var deliveries = RingDeque(filler: Delivery())

  package init() {}

  package var newestTime: Int64? { messages.values.map(\.time).max() }

  /// The state of a message; nil if it is not stored.
  package func delivery(_ number: UInt64) -> Delivery? {
    guard let index = index(of: number), deliveries[index].state != 0 else { return nil }
    return deliveries[index]
  }

  private func index(of number: UInt64) -> Int? {
    guard number < nextDelivery, nextDelivery - number <= UInt64(deliveries.count) else { return nil }
    return deliveries.end - Int(nextDelivery - number)
  }

  // MARK: Changes

  /// Applies a change. Returns false, and changes nothing, if the change cannot follow the earlier changes.
  package mutating func apply(_ change: OutboxChange) -> Bool {
    switch change {
    case .accepted(let message): return accept(message)
    case .intended(let number): intended = number
    case .settled(let settlement): return settle(settlement)
    }
    return true
  }

  /// Begins a term, whose deliveries have this number or larger numbers.
  package mutating func beginTerm(at number: UInt64) { if number > nextDelivery { extend(to: number) } }

  private mutating func accept(_ message: StoredMessage) -> Bool {
    guard message.number >= nextDelivery, message.number < .max else { return false }
    extend(to: message.number + 1)
    set(message.number, Delivery(state: DeliveryState.queued.rawValue, time: message.time / 10))
    messages[message.number] = message
    return true
  }

  /// Makes room for the states of the messages before `next`. A message without an entry gets an empty state.
  private mutating func extend(to next: UInt64) {
    let skipped = min(next - nextDelivery, UInt64(Self.maximumDeliveries))
    for _ in 0..<skipped {
      // Makes room first: appending to a full ring would double it.
      if deliveries.count == Self.maximumDeliveries { deliveries.removeFirst() }
      deliveries.append(Delivery())
    }
    nextDelivery = next
  }

  private mutating func set(_ number: UInt64, _ delivery: Delivery) {
    if let index = index(of: number) { deliveries[index] = delivery }
  }

  private mutating func settle(_ settlement: StoredSettlement) -> Bool {
    guard settlement.first <= settlement.last, settlement.last < .max, settlement.state != 0 else { return false }
    // A message with time to live 0 has a state, although it was never stored.
    if settlement.last >= nextDelivery { extend(to: settlement.last + 1) }
    let delivery = Delivery(state: settlement.state, reason: settlement.reason, time: settlement.time / 10)
    let oldest = nextDelivery - UInt64(deliveries.count)
    if settlement.last >= oldest {
      for number in max(settlement.first, oldest)...settlement.last { set(number, delivery) }
    }
    guard settlement.releasesPayloads, !messages.isEmpty else { return true }
    if settlement.last - settlement.first < UInt64(messages.count) {
      for number in settlement.first...settlement.last { messages[number] = nil }
    } else {
      messages = messages.filter { $0.key < settlement.first || $0.key > settlement.last }
    }
    return true
  }

  // MARK: As changes

  /// The changes that turn an empty outbox into this outbox.
  package var changes: [OutboxChange] {
    var result = messages.values.sorted { $0.number < $1.number }.map { OutboxChange.accepted($0) }
    var index = deliveries.front
    // Consecutive messages with equal states are one change.
    while index < deliveries.end {
      let delivery = deliveries[index]
      let start = index
      repeat { index += 1 } while index < deliveries.end && deliveries[index] == delivery
      guard delivery.state != 0 else { continue }
      let first = nextDelivery - UInt64(deliveries.end - start)
      result.append(
        .settled(
          StoredSettlement(
            first: first, last: first + UInt64(index - start) - 1, state: delivery.state, reason: delivery.reason,
            time: delivery.time * 10, releasesPayloads: false)))
    }
    if intended > 0 { result.append(.intended(through: intended)) }
    return result
  }

  /// Messages without a state at the beginning of `deliveries` make no difference.
  package static func == (left: StoredOutbox, right: StoredOutbox) -> Bool {
    guard left.nextDelivery == right.nextDelivery, left.intended == right.intended, left.messages == right.messages
    else { return false }
    let count = UInt64(max(left.deliveries.count, right.deliveries.count))
    let first = left.nextDelivery > count ? left.nextDelivery - count : 1
    return (first..<left.nextDelivery).allSatisfy { left.delivery($0) == right.delivery($0) }
  }
}

// MARK: Bytes

extension OutboxChange {
  package func write(_ coder: inout JournalCoder) {
    switch self {
    case .accepted(let message):
      _ = coder.byte(6)
      _ = StoredMessage(message, &coder)
    case .intended(let number):
      _ = coder.byte(8)
      _ = coder.count(number)
    case .settled(let settlement):
      _ = coder.byte(9)
      _ = StoredSettlement(settlement, &coder)
    }
  }

  /// Returns nil if the tag is not a tag of these changes.
  package init?(tag: UInt8, _ coder: inout JournalCoder) {
    switch tag {
    case 6: self = .accepted(StoredMessage(nil, &coder))
    case 8: self = .intended(through: coder.count(nil))
    case 9: self = .settled(StoredSettlement(nil, &coder))
    default: return nil
    }
  }
}

extension StoredMessage: JournalRecord {
  package init(_ message: Self?, _ coder: inout JournalCoder) {
    number = coder.number(message?.number)
    kind = coder.raw(message?.kind, or: .text)
    time = coder.signed(message?.time)
    deadline = coder.optional(message?.deadline) { $0.signed($1) }
    topic = coder.optional(message?.topic) { $0.text($1) }
    payload = coder.byteString(message?.payload)
  }
}

extension StoredSettlement: JournalRecord {
  package init(_ settlement: Self?, _ coder: inout JournalCoder) {
    first = coder.count(settlement?.first)
    last = coder.count(settlement?.last)
    state = coder.byte(settlement?.state)
    reason = coder.byte(settlement?.reason)
    time = coder.signed(settlement?.time)
    releasesPayloads = coder.flag(settlement?.releasesPayloads)
  }
}
