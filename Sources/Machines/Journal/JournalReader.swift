import ByteStreams
import Continuity

/// Reads what `JournalCoder` has written. The bytes may be damaged: nothing in them can stop the program or allocate more than they are long.
package struct JournalReader: ~Copyable, ~Escapable {
  private let bytes: Span<UInt8>
  private var offset = 0

  package struct Damaged: Error {}

  @_lifetime(copy bytes)
  package init(_ bytes: Span<UInt8>) { self.bytes = bytes }

  /// The next entry; nil at the end.
  package mutating func next() throws(Damaged) -> JournalEntry? {
    guard offset < bytes.count else { return nil }
    switch try byte() {
    case JournalCoder.Tag.opened:
      return .opened(JournalTerm(term: try count(), firstPush: try number(), firstDelivery: try number()))
    case JournalCoder.Tag.push: return .push(try push())
    case JournalCoder.Tag.gap: return .gap(JournalGaps(rawValue: try byte()))
    case JournalCoder.Tag.trimmed: return .trimmed(before: try count())
    case JournalCoder.Tag.retained: return .retained(try retention())
    case JournalCoder.Tag.accepted: return .accepted(try message())
    case JournalCoder.Tag.keyed: return .keyed(try key())
    case JournalCoder.Tag.intended: return .intended(through: try count())
    case JournalCoder.Tag.settled:
      return .settled(
        JournalSettlement(
          first: try count(), last: try count(), state: try byte(), reason: try byte(), time: try signed(),
          releasesPayloads: try flag()))
    case JournalCoder.Tag.subscribed:
      return .subscribed(JournalSubscription(key: try sized(), kind: try kind(), payload: SharedBytes(try sized())))
    case JournalCoder.Tag.unsubscribed: return .unsubscribed(key: try sized())
    case JournalCoder.Tag.resume:
      guard let value = ResumeValue(rawValue: try byte()) else { throw Damaged() }
      return .resume(value, try flag() ? try sized() : nil)
    case JournalCoder.Tag.continued:
      return .continued(
        namespace: try text(), Continuation(pid: try sized(), offset: try flag() ? try sized() : nil))
    case JournalCoder.Tag.discontinued: return .discontinued
    case JournalCoder.Tag.speaks:
      guard let spoken = StoredProtocol(rawValue: try byte()) else { throw Damaged() }
      return .speaks(spoken)
    case JournalCoder.Tag.desired: return .desired(isOpen: try flag())
    case JournalCoder.Tag.consumer: return .consumer(name: try text(), try consumerChange())
    case JournalCoder.Tag.closed: return .closed
    default: throw Damaged()
    }
  }

  // MARK: Parts

  private mutating func push() throws(Damaged) -> JournalPush {
    JournalPush(
      number: try number(), time: try signed(), layout: try varint(), rendered: SharedBytes(try sized()))
  }

  private mutating func retention() throws(Damaged) -> JournalRetention {
    let first = try number()
    let firstArrival = try flag() ? try signed() : nil
    let newestArrival = try flag() ? try signed() : nil
    let gap = try flag() ? RestoredSession.Gap(after: try count(), reasons: JournalGaps(rawValue: try byte())) : nil
    return JournalRetention(
      first: first, firstArrival: firstArrival, newestTrimmedArrival: newestArrival, newestTrimmedGap: gap)
  }

  private mutating func message() throws(Damaged) -> JournalMessage {
    let number = try number()
    let kind = try kind()
    let time = try signed()
    let deadline = try flag() ? try signed() : nil
    let topic = try flag() ? try text() : nil
    return JournalMessage(
      number: number, payload: SharedBytes(try sized()), kind: kind, topic: topic, deadline: deadline, time: time)
  }

  private mutating func key() throws(Damaged) -> JournalKey {
    let key = JournalKey.Digest(high: try fixed(), low: try fixed())
    let fingerprint = JournalKey.Digest(high: try fixed(), low: try fixed())
    let principal = JournalKey.Digest(high: try fixed(), low: try fixed())
    let first = try number()
    let batchCount = try flag() ? Int32(truncatingIfNeeded: try signed()) : nil
    return JournalKey(
      key: key, fingerprint: fingerprint, principal: principal, first: first, batchCount: batchCount, kind: try kind(),
      position: try position(), accepted: try signed(), end: try signed())
  }

  private mutating func consumerChange() throws(Damaged) -> ConsumerChange {
    switch try byte() {
    case JournalCoder.ConsumerTag.put:
      let position = try position()
      var settings = JournalConsumerSettings()
      settings.isShared = try flag()
      settings.visibility = TimeSpan(nanoseconds: try signed())
      settings.maximumDeliveries = try attempts()
      settings.order = try flag() ? try text() : nil
      settings.idle = TimeSpan(nanoseconds: try signed())
      let count = try varint()
      guard count <= UInt64(bytes.count - offset) else { throw Damaged() }
      for _ in 0..<count { settings.topics.append(try text()) }
      return .put(settings, position: position)
    case JournalCoder.ConsumerTag.moved:
      var progress = JournalConsumerProgress(position: try position(), frontier: try position())
      progress.missed = try count()
      progress.missedTotal = try count()
      progress.reasons = JournalGaps(rawValue: try byte())
      progress.droppedDead = try count()
      progress.time = try signed()
      return .moved(progress)
    case JournalCoder.ConsumerTag.leased:
      return .leased(
        JournalLease(
          number: try number(), attempt: try attempts(), bits: try fixed(), end: try deadline()))
    case JournalCoder.ConsumerTag.released:
      return .released(
        JournalRelease(number: try number(), attempts: try attempts(), end: try deadline()))
    case JournalCoder.ConsumerTag.settled:
      let (first, last) = (try number(), try number())
      guard first <= last else { throw Damaged() }
      return .settled(first: first, last: last)
    case JournalCoder.ConsumerTag.buried:
      return .buried(
        JournalDeadLetter(push: try push(), isRejected: try flag(), deliveries: try attempts()))
    case JournalCoder.ConsumerTag.deadDropped: return .deadDropped(number: try number())
    case JournalCoder.ConsumerTag.deadRemoved: return .deadRemoved
    case JournalCoder.ConsumerTag.deadRetried: return .deadRetried
    case JournalCoder.ConsumerTag.used: return .used(at: try signed())
    case JournalCoder.ConsumerTag.removed: return .removed
    default: throw Damaged()
    }
  }

  // MARK: Values

  private mutating func byte() throws(Damaged) -> UInt8 {
    guard offset < bytes.count else { throw Damaged() }
    defer { offset += 1 }
    return bytes[offset]
  }

  private mutating func flag() throws(Damaged) -> Bool {
    switch try byte() {
    case 0: false
    case 1: true
    default: throw Damaged()
    }
  }

  private mutating func kind() throws(Damaged) -> MessageKind {
    guard let kind = MessageKind(rawValue: try byte()) else { throw Damaged() }
    return kind
  }

  private mutating func varint() throws(Damaged) -> UInt64 {
    var value: UInt64 = 0
    var shift: UInt64 = 0
    while true {
      let byte = try byte()
      let bits = UInt64(byte & 0x7F)
      guard shift < 63 || shift == 63 && bits <= 1 else { throw Damaged() }
      value |= bits << shift
      if byte & 0x80 == 0 { return value }
      shift += 7
    }
  }

  /// Numbers of pushes and messages, twice of which must fit into 63 bits.
  private mutating func number() throws(Damaged) -> UInt64 {
    let value = try varint()
    guard value > 0, value < 1 << 62 else { throw Damaged() }
    return value
  }

  /// A number, or how many there are. There is room to count further.
  private mutating func count() throws(Damaged) -> UInt64 {
    let value = try varint()
    guard value < 1 << 62 else { throw Damaged() }
    return value
  }

  /// How often a push was delivered, or may be.
  private mutating func attempts() throws(Damaged) -> UInt32 {
    let value = try varint()
    guard value <= Self.maximumAttempts else { throw Damaged() }
    return UInt32(value)
  }

  private static var maximumAttempts: UInt64 { 1 << 20 }

  /// Twice the number of a push, and one more after a gap.
  private mutating func position() throws(Damaged) -> UInt64 {
    let value = try varint()
    guard value < 1 << 63 else { throw Damaged() }
    return value
  }

  private mutating func deadline() throws(Damaged) -> JournalDeadline {
    JournalDeadline(time: try signed(), rest: try signed())
  }

  private mutating func signed() throws(Damaged) -> Int64 {
    let value = try varint()
    return Int64(bitPattern: value >> 1) ^ -Int64(bitPattern: value & 1)
  }

  private mutating func fixed() throws(Damaged) -> UInt64 {
    guard bytes.count - offset >= 8 else { throw Damaged() }
    var value: UInt64 = 0
    for index in 0..<8 { value |= UInt64(bytes[offset + index]) << UInt64(8 * index) }
    offset += 8
    return value
  }

  private mutating func sized() throws(Damaged) -> [UInt8] {
    let count = try varint()
    guard count <= UInt64(bytes.count - offset) else { throw Damaged() }
    defer { offset += Int(count) }
    return [UInt8](copying: bytes.extracting(offset..<offset + Int(count)))
  }

  private mutating func text() throws(Damaged) -> String {
    let bytes = try sized()
    guard let text = String(validating: bytes, as: UTF8.self) else { throw Damaged() }
    return text
  }
}
