import ByteStreams
import Continuity
import Idempotency
import JournalCoding

/// The bytes of entries, as the store keeps them: a sequence of entries, each with a tag. The tags never change their meaning; a newer schema of the
/// store adds tags.
extension JournalEntry {
  package func append(to output: inout ByteQueue) {
    var coder = JournalCoder(appendingTo: output)
    write(&coder)
    output = coder.finish()
  }

  /// Calls `body` with each entry. Returns false if the bytes are damaged, or `body` did.
  package static func read(_ bytes: Span<UInt8>, _ body: (JournalEntry) -> Bool) -> Bool {
    var coder = JournalCoder(reading: bytes)
    while coder.rest > 0 {
      guard let entry = JournalEntry(&coder), !coder.isDamaged, body(entry) else { return false }
    }
    return true
  }

  private func write(_ coder: inout JournalCoder) {
    func tag(_ tag: UInt8) { _ = coder.byte(tag) }
    switch self {
    case .opened(let term):
      tag(1)
      _ = JournalTerm(term, &coder)
    case .push(let push):
      tag(2)
      _ = JournalPush(push, &coder)
    case .gap(let reasons):
      tag(3)
      _ = JournalGaps(reasons, &coder)
    case .trimmed(let number):
      tag(4)
      _ = coder.count(number)
    case .retained(let retention):
      tag(5)
      _ = JournalRetention(retention, &coder)
    case .accepted(let message):
      tag(6)
      _ = JournalMessage(message, &coder)
    case .keyed(let key):
      tag(7)
      _ = StoredKey(key, &coder)
    case .intended(let number):
      tag(8)
      _ = coder.count(number)
    case .settled(let settlement):
      tag(9)
      _ = JournalSettlement(settlement, &coder)
    case .subscribed(let subscription):
      tag(10)
      _ = JournalSubscription(subscription, &coder)
    case .unsubscribed(let key):
      tag(11)
      _ = coder.bytes(key)
    case .resume(let value, let bytes):
      tag(12)
      _ = coder.raw(value, or: .cursor)
      if coder.flag(bytes != nil) { _ = coder.bytes(bytes) }
    case .consumer(let name, let change):
      tag(13)
      _ = coder.text(name)
      change.write(&coder)
    case .closed: tag(14)
    case .continued(let namespace, let continuation):
      tag(15)
      _ = coder.text(namespace)
      _ = Continuation(continuation, &coder)
    case .discontinued: tag(16)
    case .speaks(let spoken):
      tag(17)
      _ = coder.raw(spoken, or: .webSocket)
    case .desired(let isOpen):
      tag(18)
      _ = coder.flag(isOpen)
    }
  }

  /// Returns nil if the tag is unknown.
  private init?(_ coder: inout JournalCoder) {
    switch coder.byte(nil) {
    case 1: self = .opened(JournalTerm(nil, &coder))
    case 2: self = .push(JournalPush(nil, &coder))
    case 3: self = .gap(JournalGaps(nil, &coder))
    case 4: self = .trimmed(before: coder.count(nil))
    case 5: self = .retained(JournalRetention(nil, &coder))
    case 6: self = .accepted(JournalMessage(nil, &coder))
    case 7: self = .keyed(StoredKey(nil, &coder))
    case 8: self = .intended(through: coder.count(nil))
    case 9: self = .settled(JournalSettlement(nil, &coder))
    case 10: self = .subscribed(JournalSubscription(nil, &coder))
    case 11: self = .unsubscribed(key: coder.bytes(nil))
    case 12: self = .resume(coder.raw(nil, or: .cursor), coder.flag(nil) ? coder.bytes(nil) : nil)
    case 13:
      let name = coder.text(nil)
      guard let change = ConsumerChange(&coder) else { return nil }
      self = .consumer(name: name, change)
    case 14: self = .closed
    case 15: self = .continued(namespace: coder.text(nil), Continuation(nil, &coder))
    case 16: self = .discontinued
    case 17: self = .speaks(coder.raw(nil, or: .webSocket))
    case 18: self = .desired(isOpen: coder.flag(nil))
    default: return nil
    }
  }
}

extension JournalTerm: JournalRecord {
  package init(_ start: Self?, _ coder: inout JournalCoder) {
    term = coder.count(start?.term)
    firstPush = coder.number(start?.firstPush)
    firstDelivery = coder.number(start?.firstDelivery)
  }
}

// MARK: Pushes

extension JournalPush: JournalRecord {
  package init(_ push: Self?, _ coder: inout JournalCoder) {
    number = coder.number(push?.number)
    time = coder.signed(push?.time)
    layout = coder.varint(push?.layout)
    rendered = coder.shared(push?.rendered)
  }
}

extension JournalGaps: JournalRecord {
  package init(_ reasons: Self?, _ coder: inout JournalCoder) { rawValue = coder.byte(reasons?.rawValue) }
}

extension JournalRetention: JournalRecord {
  package init(_ retention: Self?, _ coder: inout JournalCoder) {
    first = coder.number(retention?.first)
    let firstArrival = retention?.firstArrival
    self.firstArrival = coder.flag(firstArrival != nil) ? coder.signed(firstArrival) : nil
    let newestTrimmedArrival = retention?.newestTrimmedArrival
    self.newestTrimmedArrival = coder.flag(newestTrimmedArrival != nil) ? coder.signed(newestTrimmedArrival) : nil
    let gap = retention?.newestTrimmedGap
    newestTrimmedGap = coder.flag(gap != nil) ? RestoredSession.Gap(gap, &coder) : nil
  }
}

extension RestoredSession.Gap: JournalRecord {
  package init(_ gap: Self?, _ coder: inout JournalCoder) {
    after = coder.count(gap?.after)
    reasons = JournalGaps(gap?.reasons, &coder)
  }
}

// MARK: Messages

extension JournalMessage: JournalRecord {
  package init(_ message: Self?, _ coder: inout JournalCoder) {
    number = coder.number(message?.number)
    kind = coder.raw(message?.kind, or: .text)
    time = coder.signed(message?.time)
    deadline = coder.flag(message?.deadline != nil) ? coder.signed(message?.deadline) : nil
    topic = coder.flag(message?.topic != nil) ? coder.text(message?.topic) : nil
    payload = coder.shared(message?.payload)
  }
}

extension JournalSettlement: JournalRecord {
  package init(_ settlement: Self?, _ coder: inout JournalCoder) {
    first = coder.count(settlement?.first)
    last = coder.count(settlement?.last)
    state = coder.byte(settlement?.state)
    reason = coder.byte(settlement?.reason)
    time = coder.signed(settlement?.time)
    releasesPayloads = coder.flag(settlement?.releasesPayloads)
  }
}

// MARK: The upstream

extension JournalSubscription: JournalRecord {
  package init(_ subscription: Self?, _ coder: inout JournalCoder) {
    key = coder.bytes(subscription?.key)
    kind = coder.raw(subscription?.kind, or: .text)
    payload = coder.shared(subscription?.payload)
  }
}

extension Continuation: JournalRecord {
  package init(_ continuation: Self?, _ coder: inout JournalCoder) {
    let offset = continuation?.offset
    self.init(
      pid: coder.bytes(continuation?.pid), offset: coder.flag(offset != nil) ? coder.bytes(offset) : nil)
  }
}

// MARK: Consumers

extension ConsumerChange {
  fileprivate func write(_ coder: inout JournalCoder) {
    func tag(_ tag: UInt8) { _ = coder.byte(tag) }
    switch self {
    case .put(let settings, let position):
      tag(1)
      _ = coder.position(position)
      _ = JournalConsumerSettings(settings, &coder)
    case .moved(let progress):
      tag(2)
      _ = JournalConsumerProgress(progress, &coder)
    case .leased(let lease):
      tag(3)
      _ = JournalLease(lease, &coder)
    case .released(let release):
      tag(4)
      _ = JournalRelease(release, &coder)
    case .settled(let first, let last):
      tag(5)
      _ = coder.number(first)
      _ = coder.number(last)
    case .buried(let letter):
      tag(6)
      _ = JournalDeadLetter(letter, &coder)
    case .deadDropped(let number):
      tag(7)
      _ = coder.number(number)
    case .deadRemoved: tag(8)
    case .deadRetried: tag(9)
    case .used(let time):
      tag(10)
      _ = coder.signed(time)
    case .removed: tag(11)
    }
  }

  fileprivate init?(_ coder: inout JournalCoder) {
    switch coder.byte(nil) {
    case 1:
      let position = coder.position(nil)
      self = .put(JournalConsumerSettings(nil, &coder), position: position)
    case 2: self = .moved(JournalConsumerProgress(nil, &coder))
    case 3: self = .leased(JournalLease(nil, &coder))
    case 4: self = .released(JournalRelease(nil, &coder))
    case 5:
      let (first, last) = (coder.number(nil), coder.number(nil))
      coder.require(first <= last)
      self = .settled(first: first, last: last)
    case 6: self = .buried(JournalDeadLetter(nil, &coder))
    case 7: self = .deadDropped(number: coder.number(nil))
    case 8: self = .deadRemoved
    case 9: self = .deadRetried
    case 10: self = .used(at: coder.signed(nil))
    case 11: self = .removed
    default: return nil
    }
  }
}

extension JournalConsumerSettings: JournalRecord {
  package init(_ settings: Self?, _ coder: inout JournalCoder) {
    isShared = coder.flag(settings?.isShared)
    visibility = TimeSpan(nanoseconds: coder.signed(settings?.visibility.nanoseconds))
    maximumDeliveries = coder.attempts(settings?.maximumDeliveries)
    order = coder.flag(settings?.order != nil) ? coder.text(settings?.order) : nil
    idle = TimeSpan(nanoseconds: coder.signed(settings?.idle.nanoseconds))
    let topics = settings?.topics
    let count = coder.varint(topics.map { UInt64($0.count) })
    coder.require(count <= UInt64(coder.rest))
    guard !coder.isDamaged else { return }
    for index in 0..<Int(count) { self.topics.append(coder.text(topics?[index])) }
  }
}

extension JournalConsumerProgress: JournalRecord {
  package init(_ progress: Self?, _ coder: inout JournalCoder) {
    position = coder.position(progress?.position)
    frontier = coder.position(progress?.frontier)
    missed = coder.count(progress?.missed)
    missedTotal = coder.count(progress?.missedTotal)
    reasons = JournalGaps(progress?.reasons, &coder)
    droppedDead = coder.count(progress?.droppedDead)
    time = coder.signed(progress?.time)
  }
}

extension JournalLease: JournalRecord {
  package init(_ lease: Self?, _ coder: inout JournalCoder) {
    number = coder.number(lease?.number)
    attempt = coder.attempts(lease?.attempt)
    bits = coder.fixed(lease?.bits)
    end = JournalDeadline(lease?.end, &coder)
  }
}

extension JournalRelease: JournalRecord {
  package init(_ release: Self?, _ coder: inout JournalCoder) {
    number = coder.number(release?.number)
    attempts = coder.attempts(release?.attempts)
    end = JournalDeadline(release?.end, &coder)
  }
}

extension JournalDeadLetter: JournalRecord {
  package init(_ letter: Self?, _ coder: inout JournalCoder) {
    push = JournalPush(letter?.push, &coder)
    isRejected = coder.flag(letter?.isRejected)
    deliveries = coder.attempts(letter?.deliveries)
  }
}

extension JournalCoder {
  /// How often a push was delivered, or may be.
  fileprivate mutating func attempts(_ value: UInt32?) -> UInt32 {
    UInt32(varint(value.map { UInt64($0) }, through: Self.maximumAttempts))
  }

  private static var maximumAttempts: UInt64 { 1 << 20 }
}
