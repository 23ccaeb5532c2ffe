import ByteStreams
import Consumers
import Idempotency
import Inbox
import JournalCoding
import Outbox
import UpstreamProtocol

/// The bytes of entries in a store: a sequence of entries, each with a tag. A tag never changes its meaning. A newer
/// schema of the store adds tags.
extension JournalEntry {
  package func append(to output: inout ByteQueue) {
    var coder = JournalCoder(appendingTo: output)
    write(&coder)
    output = coder.finish()
  }

  /// Calls `body` with each entry. Returns false if the bytes are damaged, or `body` returned false.
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
    case .outbox(let change): change.write(&coder)
    case .keyed(let key):
      tag(7)
      _ = StoredKey(key, &coder)
    case .memory(let change): change.write(&coder)
    case .consumer(let name, let change):
      tag(13)
      _ = coder.text(name)
      change.write(&coder)
    case .closed: tag(14)
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
    case 7: self = .keyed(StoredKey(nil, &coder))
    case 13:
      let name = coder.text(nil)
      guard let change = ConsumerChange(&coder) else { return nil }
      self = .consumer(name: name, change)
    case 14: self = .closed
    case 18: self = .desired(isOpen: coder.flag(nil))
    default:
      if let change = LogChange(tag: tag, &coder) {
        self = .log(change)
      } else if let change = OutboxChange(tag: tag, &coder) {
        self = .outbox(change)
      } else if let change = MemoryChange(tag: tag, &coder) {
        self = .memory(change)
      } else {
        return nil
      }
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
