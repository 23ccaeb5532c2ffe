import ByteStreams
import Continuity

/// The bytes of entries, as the store keeps them: a sequence of entries, each with a tag.
///
/// Integers are written in groups of seven bits, the lowest first. The tags never change their meaning; a newer schema of the store adds tags.
package enum JournalCoder {
  enum Tag {
    static let opened: UInt8 = 1
    static let push: UInt8 = 2
    static let gap: UInt8 = 3
    static let trimmed: UInt8 = 4
    static let retained: UInt8 = 5
    static let accepted: UInt8 = 6
    static let keyed: UInt8 = 7
    static let intended: UInt8 = 8
    static let settled: UInt8 = 9
    static let subscribed: UInt8 = 10
    static let unsubscribed: UInt8 = 11
    static let resume: UInt8 = 12
    static let consumer: UInt8 = 13
    static let closed: UInt8 = 14
    static let continued: UInt8 = 15
    static let discontinued: UInt8 = 16
    static let speaks: UInt8 = 17
    static let desired: UInt8 = 18
  }

  enum ConsumerTag {
    static let put: UInt8 = 1
    static let moved: UInt8 = 2
    static let leased: UInt8 = 3
    static let released: UInt8 = 4
    static let settled: UInt8 = 5
    static let buried: UInt8 = 6
    static let deadDropped: UInt8 = 7
    static let deadRemoved: UInt8 = 8
    static let deadRetried: UInt8 = 9
    static let used: UInt8 = 10
    static let removed: UInt8 = 11
  }

  package static func append(_ entry: JournalEntry, to output: inout ByteQueue) {
    switch entry {
    case .opened(let term):
      output.append(Tag.opened)
      output.append(varint: term.term)
      output.append(varint: term.firstPush)
      output.append(varint: term.firstDelivery)
    case .push(let push):
      output.append(Tag.push)
      append(push, to: &output)
    case .gap(let reasons):
      output.append(Tag.gap)
      output.append(reasons.rawValue)
    case .trimmed(let number):
      output.append(Tag.trimmed)
      output.append(varint: number)
    case .retained(let retention): append(retention, to: &output)
    case .accepted(let message): append(message, to: &output)
    case .keyed(let key): append(key, to: &output)
    case .intended(let number):
      output.append(Tag.intended)
      output.append(varint: number)
    case .settled(let settlement):
      output.append(Tag.settled)
      output.append(varint: settlement.first)
      output.append(varint: settlement.last)
      output.append(settlement.state)
      output.append(settlement.reason)
      output.append(signed: settlement.time)
      output.append(settlement.releasesPayloads ? 1 : 0)
    case .subscribed(let subscription):
      output.append(Tag.subscribed)
      output.append(sized: subscription.key.span)
      output.append(subscription.kind.rawValue)
      output.append(sized: subscription.payload.bytes)
    case .unsubscribed(let key):
      output.append(Tag.unsubscribed)
      output.append(sized: key.span)
    case .resume(let value, let bytes):
      output.append(Tag.resume)
      output.append(value.rawValue)
      output.append(bytes == nil ? 0 : 1)
      if let bytes { output.append(sized: bytes.span) }
    case .continued(let namespace, let continuation):
      output.append(Tag.continued)
      output.append(sized: namespace)
      output.append(sized: continuation.pid.span)
      output.append(continuation.offset == nil ? 0 : 1)
      if let offset = continuation.offset { output.append(sized: offset.span) }
    case .discontinued: output.append(Tag.discontinued)
    case .speaks(let spoken):
      output.append(Tag.speaks)
      output.append(spoken.rawValue)
    case .desired(let isOpen):
      output.append(Tag.desired)
      output.append(isOpen ? 1 : 0)
    case .consumer(let name, let change):
      output.append(Tag.consumer)
      output.append(sized: name)
      append(change, to: &output)
    case .closed: output.append(Tag.closed)
    }
  }

  private static func append(_ push: JournalPush, to output: inout ByteQueue) {
    output.append(varint: push.number)
    output.append(signed: push.time)
    output.append(varint: push.layout)
    output.append(sized: push.rendered.bytes)
  }

  private static func append(_ retention: JournalRetention, to output: inout ByteQueue) {
    output.append(Tag.retained)
    output.append(varint: retention.first)
    output.append(optional: retention.firstArrival)
    output.append(optional: retention.newestTrimmedArrival)
    output.append(retention.newestTrimmedGap == nil ? 0 : 1)
    if let gap = retention.newestTrimmedGap {
      output.append(varint: gap.after)
      output.append(gap.reasons.rawValue)
    }
  }

  private static func append(_ message: JournalMessage, to output: inout ByteQueue) {
    output.append(Tag.accepted)
    output.append(varint: message.number)
    output.append(message.kind.rawValue)
    output.append(signed: message.time)
    output.append(optional: message.deadline)
    output.append(message.topic == nil ? 0 : 1)
    if let topic = message.topic { output.append(sized: topic) }
    output.append(sized: message.payload.bytes)
  }

  private static func append(_ key: JournalKey, to output: inout ByteQueue) {
    output.append(Tag.keyed)
    for digest in [key.key, key.fingerprint, key.principal] {
      output.append(fixed: digest.high)
      output.append(fixed: digest.low)
    }
    output.append(varint: key.first)
    output.append(optional: key.batchCount.map { Int64($0) })
    output.append(key.kind.rawValue)
    output.append(varint: key.position)
    output.append(signed: key.accepted)
    output.append(signed: key.end)
  }

  private static func append(_ change: ConsumerChange, to output: inout ByteQueue) {
    switch change {
    case .put(let settings, let position):
      output.append(ConsumerTag.put)
      output.append(varint: position)
      output.append(settings.isShared ? 1 : 0)
      output.append(signed: settings.visibility.nanoseconds)
      output.append(varint: UInt64(settings.maximumDeliveries))
      output.append(settings.order == nil ? 0 : 1)
      if let order = settings.order { output.append(sized: order) }
      output.append(signed: settings.idle.nanoseconds)
      output.append(varint: UInt64(settings.topics.count))
      for topic in settings.topics { output.append(sized: topic) }
    case .moved(let progress):
      output.append(ConsumerTag.moved)
      output.append(varint: progress.position)
      output.append(varint: progress.frontier)
      output.append(varint: progress.missed)
      output.append(varint: progress.missedTotal)
      output.append(progress.reasons.rawValue)
      output.append(varint: progress.droppedDead)
      output.append(signed: progress.time)
    case .leased(let lease):
      output.append(ConsumerTag.leased)
      output.append(varint: lease.number)
      output.append(varint: UInt64(lease.attempt))
      output.append(fixed: lease.bits)
      append(lease.end, to: &output)
    case .released(let release):
      output.append(ConsumerTag.released)
      output.append(varint: release.number)
      output.append(varint: UInt64(release.attempts))
      append(release.end, to: &output)
    case .settled(let first, let last):
      output.append(ConsumerTag.settled)
      output.append(varint: first)
      output.append(varint: last)
    case .buried(let letter):
      output.append(ConsumerTag.buried)
      append(letter.push, to: &output)
      output.append(letter.isRejected ? 1 : 0)
      output.append(varint: UInt64(letter.deliveries))
    case .deadDropped(let number):
      output.append(ConsumerTag.deadDropped)
      output.append(varint: number)
    case .deadRemoved: output.append(ConsumerTag.deadRemoved)
    case .deadRetried: output.append(ConsumerTag.deadRetried)
    case .used(let time):
      output.append(ConsumerTag.used)
      output.append(signed: time)
    case .removed: output.append(ConsumerTag.removed)
    }
  }

  private static func append(_ deadline: JournalDeadline, to output: inout ByteQueue) {
    output.append(signed: deadline.time)
    output.append(signed: deadline.rest)
  }
}

extension ByteQueue {
  fileprivate mutating func append(varint value: UInt64) {
    var rest = value
    while rest >= 0x80 {
      append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    append(UInt8(truncatingIfNeeded: rest))
  }

  /// Small magnitudes are short, whatever their sign.
  fileprivate mutating func append(signed value: Int64) {
    append(varint: UInt64(bitPattern: value << 1 ^ value >> 63))
  }

  fileprivate mutating func append(fixed value: UInt64) {
    for shift in stride(from: 0 as UInt64, to: 64, by: 8) { append(UInt8(truncatingIfNeeded: value >> shift)) }
  }

  fileprivate mutating func append(optional value: Int64?) {
    append(value == nil ? 0 : 1)
    if let value { append(signed: value) }
  }

  fileprivate mutating func append(sized bytes: Span<UInt8>) {
    append(varint: UInt64(bytes.count))
    append(bytes)
  }

  fileprivate mutating func append(sized text: String) {
    append(varint: UInt64(text.utf8.count))
    append(text)
  }
}
