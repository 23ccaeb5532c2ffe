import ByteStreams
import Consumers
import Continuity
import Idempotency
import Inbox
import Journal
import JournalCoding
import Outbox
import TestSupport
import UpstreamProtocol

/// Generates sequences of entries as a session submits them.
package struct RandomSession {
  private var random: SeededGenerator
  private var term: UInt64 = 0
  private var nextPush: UInt64 = 1
  private var firstRetained: UInt64 = 1
  private var nextDelivery: UInt64 = 1
  private var time: Int64 = 1_700_000_000_000
  private var consumers: [String] = []
  private let opensTerms: Bool

  /// - Parameter opensTerms: whether the sequence contains `opened` entries, which the store itself submits.
  package init(seed: UInt64, opensTerms: Bool = true) {
    random = SeededGenerator(seed: seed)
    self.opensTerms = opensTerms
  }

  package static func push(_ number: UInt64, time: Int64 = 0, size: Int = 10) -> StoredPush {
    let bytes = (0..<size).map { UInt8(truncatingIfNeeded: number &* 31 &+ UInt64($0)) }
    return StoredPush(number: number, time: time, layout: number &* 0x1_0001, rendered: ByteString(bytes))
  }

  package static func message(_ number: UInt64, time: Int64 = 0) -> StoredMessage {
    StoredMessage(
      number: number, payload: ByteString(Array("message \(number)".utf8)), kind: number % 3 == 0 ? .binary : .text,
      topic: number % 4 == 0 ? "topic é" : nil, deadline: number % 5 == 0 ? nil : time + 30_000, time: time)
  }

  package static func key(_ number: UInt64, accepted: Int64, lifetime: Int64) -> StoredKey {
    let digest = IdempotencyTable.Key(high: number, low: ~number)
    return StoredKey(
      key: digest, fingerprint: digest, principal: digest,
      acceptance: IdempotencyTable.Acceptance(
        first: number, batchCount: number % 2 == 0 ? 3 : nil, kind: .text, position: number << 1),
      accepted: accepted, end: accepted + lifetime)
  }

  package mutating func nextPushEntry() -> JournalEntry {
    defer { nextPush += 1 }
    return .push(Self.push(nextPush, time: time))
  }

  package mutating func nextEntries() -> [JournalEntry] {
    time += Int64.random(in: 0...2_000, using: &random)
    switch Int.random(in: 0..<16, using: &random) {
    case 0 where opensTerms && (term == 0 || Bool.random(using: &random)):
      term += 1
      return [.opened(JournalTerm(term: term, firstPush: nextPush, firstDelivery: nextDelivery)), .gap(.upstream)]
    case 1...4: return push(count: Int.random(in: 1...3, using: &random))
    case 5: return [.gap(Bool.random(using: &random) ? .upstream : .store)]
    case 6:
      firstRetained = UInt64.random(in: firstRetained...nextPush, using: &random)
      return [.trimmed(before: firstRetained)]
    case 7...9: return accept()
    case 10: return [.intended(through: UInt64.random(in: 0..<nextDelivery, using: &random))]
    case 11: return settle()
    case 12: return [subscription()]
    case 13: return [resumption()]
    default: return consumer()
    }
  }

  private mutating func push(count: Int) -> [JournalEntry] {
    let entries = (0..<UInt64(count)).map {
      JournalEntry.push(Self.push(nextPush + $0, time: time, size: Int.random(in: 0...200, using: &random)))
    }
    nextPush += UInt64(count)
    return entries
  }

  private mutating func accept() -> [JournalEntry] {
    // Some numbers belong to messages that are not stored.
    nextDelivery += UInt64.random(in: 0...1, using: &random)
    let message = Self.message(nextDelivery, time: time)
    nextDelivery += 1
    guard Bool.random(using: &random) else { return [.accepted(message)] }
    return [.accepted(message), .keyed(Self.key(message.number, accepted: time, lifetime: 60_000))]
  }

  private mutating func settle() -> [JournalEntry] {
    guard nextDelivery > 1 else { return [] }
    let first = UInt64.random(in: 1..<nextDelivery, using: &random)
    return [
      .settled(
        StoredSettlement(
          first: first, last: min(nextDelivery - 1, first + UInt64.random(in: 0...9, using: &random)),
          state: UInt8.random(in: 1...7, using: &random), reason: UInt8.random(in: 0...6, using: &random), time: time,
          releasesPayloads: Bool.random(using: &random)))
    ]
  }

  private mutating func subscription() -> JournalEntry {
    let key: [UInt8] = [UInt8.random(in: 0...5, using: &random)]
    if Bool.random(using: &random) { return .unsubscribed(key: key) }
    return .subscribed(
      StoredSubscription(key: key, kind: .text, payload: ByteString([UInt8.random(in: 0...255, using: &random)])))
  }

  private mutating func resumption() -> JournalEntry {
    switch Int.random(in: 0..<9, using: &random) {
    case 8: .desired(isOpen: Bool.random(using: &random))
    case 0: .discontinued
    case 2 where Bool.random(using: &random):
      .memory(
        .captured(
          name: "c\(Int.random(in: 0..<3, using: &random))",
          Bool.random(using: &random)
            ? StoredCapture(value: CapturedValue([0x61], isText: Bool.random(using: &random)), client: [7, 8])
            : nil))
    case 1: .speaks(Bool.random(using: &random) ? .socketIO : .websocket)
    case 2...4:
      .continued(
        namespace: Bool.random(using: &random) ? "/" : "/é",
        Continuation(pid: Array("pid \(nextPush)".utf8), offset: Bool.random(using: &random) ? nil : [1, 2, 3]))
    default: .cursor(Bool.random(using: &random) ? [1, 2, 3] : nil)
    }
  }

  // MARK: Consumers

  private mutating func consumer() -> [JournalEntry] {
    guard let name = consumers.randomElement(using: &random) else { return [put("c\(nextPush)")] }
    let number = UInt64.random(in: max(1, firstRetained)...max(nextPush, firstRetained), using: &random)
    let change: ConsumerChange
    switch Int.random(in: 0..<12, using: &random) {
    case 0: return [put("c\(nextPush)")]
    case 1:
      consumers.removeAll { $0 == name }
      change = .removed
    case 2:
      var progress = ConsumerProgress(
        position: UInt64.random(in: 0...nextPush, using: &random) << 1,
        frontier: UInt64.random(in: 0...nextPush, using: &random) << 1 | 1)
      progress.missed = UInt64.random(in: 0...2, using: &random)
      progress.missedTotal = UInt64.random(in: 2...9, using: &random)
      progress.droppedDead = UInt64.random(in: 0...9, using: &random)
      progress.reasons = Bool.random(using: &random) ? [] : [.retention, .upstream]
      progress.unused = time
      change = .moved(progress)
    case 3, 4:
      change = .leased(Lease(number: number, attempt: 2, bits: random.next()), end: deadline(30_000))
    case 5:
      let attempts = UInt32.random(in: 0...2, using: &random)
      change = .released(number: number, attempts: attempts, end: deadline(0))
    case 6, 7:
      change = .settled(first: number, last: number + UInt64.random(in: 0...3, using: &random))
    case 8:
      change = .buried(
        StoredDeadLetter(
          push: Self.push(number), reason: Bool.random(using: &random) ? .rejected : .deliveries, deliveries: 5))
    case 9: change = .deadRetried
    case 10: change = Bool.random(using: &random) ? .deadRemoved : .deadDropped(number: number)
    default: change = .unused(max(0, time))
    }
    return [.consumer(name: name, change)]
  }

  private func deadline(_ rest: Int64) -> JournalDeadline { JournalDeadline(time: time + rest, rest: rest) }

  private mutating func put(_ name: String) -> JournalEntry {
    if !consumers.contains(name) { consumers.append(name) }
    var settings = ConsumerSettings()
    settings.isWorkSharing = Bool.random(using: &random)
    settings.visibility = .milliseconds(Int64.random(in: 100...100_000, using: &random))
    settings.order = Bool.random(using: &random) ? ConsumerOrder("/a/b") : nil
    if Bool.random(using: &random) { for topic in ["a.*", "é"] { _ = settings.add(topic: Array(topic.utf8)) } }
    settings.maximumDeliveries = 5
    settings.idle = .hours(1)
    return .consumer(name: name, .put(settings, position: nextPush << 1))
  }
}

/// Short forms for entries of the parts of a session.
extension JournalEntry {
  package static func push(_ push: StoredPush) -> JournalEntry { .log(.push(push)) }
  package static func gap(_ marks: GapMarks) -> JournalEntry { .log(.gap(marks)) }
  package static func trimmed(before number: UInt64) -> JournalEntry { .log(.trimmed(before: number)) }
  package static func retained(_ retention: StoredRetention) -> JournalEntry { .log(.retained(retention)) }
  package static func accepted(_ message: StoredMessage) -> JournalEntry { .outbox(.accepted(message)) }
  package static func intended(through number: UInt64) -> JournalEntry { .outbox(.intended(through: number)) }
  package static func subscribed(_ subscription: StoredSubscription) -> JournalEntry {
    .memory(.subscribed(subscription))
  }
  package static func unsubscribed(key: [UInt8]) -> JournalEntry { .memory(.unsubscribed(key: key)) }
  package static func cursor(_ value: [UInt8]?) -> JournalEntry { .memory(.cursor(value)) }
  package static func continued(namespace: String, _ continuation: Continuation) -> JournalEntry {
    .memory(.continued(namespace: namespace, continuation))
  }
  package static var discontinued: JournalEntry { .memory(.discontinued) }
  package static func speaks(_ kind: UpstreamKind) -> JournalEntry { .memory(.speaks(kind)) }
  package static func settled(_ settlement: StoredSettlement) -> JournalEntry { .outbox(.settled(settlement)) }
}

extension JournalEntry {
  package struct Damaged: Error {}

  package static func all(in bytes: [UInt8]) throws(Damaged) -> [JournalEntry] {
    var entries: [JournalEntry] = []
    let isWhole = read(bytes.span) {
      entries.append($0)
      return true
    }
    guard isWhole else { throw Damaged() }
    return entries
  }
}
