import ByteStreams
import Consumers
import Continuity
import Idempotency
import Inbox
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
    case .log(let change): change.write(&coder)
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
    let tag = coder.byte(nil)
    switch tag {
    case 1: self = .opened(JournalTerm(nil, &coder))
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
    default:
      guard let change = LogChange(tag: tag, &coder) else { return nil }
      self = .log(change)
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
