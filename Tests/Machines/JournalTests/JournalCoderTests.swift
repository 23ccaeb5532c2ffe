import ByteStreams
import Consumers
import Idempotency
import Inbox
import Journal
import JournalCoding
import JournalSupport
import Outbox
import TestSupport
import Testing

@Suite struct JournalCoderTests {
  @Test(arguments: 0..<20 as Range<UInt64>)
  func everyEntryIsReadAsItWasWritten(seed: UInt64) throws {
    var writer = RandomSession(seed: seed)
    let entries = (0..<300).flatMap { _ in writer.nextEntries() } + [.closed, .retained(Self.retention)]
    var bytes = ByteQueue()
    for entry in entries { entry.append(to: &bytes) }
    #expect(try JournalEntry.all(in: bytes.copyBytes()) == entries)
  }

  @Test func theLargestAndSmallestValuesAreReadAsTheyWereWritten() throws {
    let digest = IdempotencyTable.Key(high: .max, low: 0)
    let largest = 1 << 62 - 1 as UInt64
    let entries: [JournalEntry] = [
      .opened(JournalTerm(term: largest, firstPush: largest, firstDelivery: 1)), .intended(through: largest),
      .settled(StoredSettlement(first: 0, last: largest, state: 255, reason: 0, time: .min, releasesPayloads: false)),
      .keyed(
        StoredKey(
          key: digest, fingerprint: digest, principal: digest,
          acceptance: IdempotencyTable.Acceptance(
            first: largest, batchCount: .min, kind: .binary, position: 2 * largest),
          accepted: .max, end: .min)),
      .consumer(name: "", .unused(1 << 60)),
    ]
    var bytes = ByteQueue()
    for entry in entries { entry.append(to: &bytes) }
    #expect(try JournalEntry.all(in: bytes.copyBytes()) == entries)
  }

  /// The program increments, doubles and compares numbers. Numbers above the limit would overflow and stop it.
  @Test func numbersThatAreTooLargeAreDamage() {
    let (digest, largest) = (IdempotencyTable.Key(high: 0, low: 0), 1 << 62 as UInt64)
    var progress = ConsumerProgress(position: 0, frontier: 0)
    progress.missed = .max
    let gap = StoredGap(after: .max, marks: .store)
    let end = JournalDeadline(time: .max, rest: .max)
    let entries: [JournalEntry] = [
      .opened(JournalTerm(term: 1, firstPush: largest, firstDelivery: 1)),
      .opened(JournalTerm(term: 1, firstPush: 1, firstDelivery: .max)), .trimmed(before: .max),
      .retained(StoredRetention(first: 9, firstArrival: nil, newestTrimmedArrival: nil, newestTrimmedGap: gap)),
      .intended(through: .max),
      .settled(StoredSettlement(first: 1, last: largest, state: 1, reason: 0, time: 0, releasesPayloads: true)),
      .keyed(
        StoredKey(
          key: digest, fingerprint: digest, principal: digest,
          acceptance: IdempotencyTable.Acceptance(first: .max, batchCount: nil, kind: .text, position: 0),
          accepted: 0, end: 0)),
      .consumer(name: "a", .moved(progress)),
      .consumer(name: "a", .released(number: 1, attempts: .max, end: end)),
    ]
    for entry in entries {
      var bytes = ByteQueue()
      entry.append(to: &bytes)
      #expect(throws: JournalEntry.Damaged.self, "\(entry)") { try JournalEntry.all(in: bytes.copyBytes()) }
    }
  }

  /// Truncated or changed bytes give an error or another entry, and never stop the program.
  @Test(arguments: 0..<20 as Range<UInt64>)
  func damagedBytesAreAnErrorOrOtherEntries(seed: UInt64) {
    var writer = RandomSession(seed: seed)
    var random = SeededGenerator(seed: seed)
    var bytes = ByteQueue()
    for _ in 0..<40 { for entry in writer.nextEntries() { entry.append(to: &bytes) } }
    let whole = bytes.copyBytes()
    for _ in 0..<200 {
      var changed = Array(whole.prefix(Int.random(in: 0...whole.count, using: &random)))
      if !changed.isEmpty, Bool.random(using: &random) {
        changed[Int.random(in: changed.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
      }
      var state = RestoredSession(epoch: 1)
      do throws(JournalEntry.Damaged) {
        for entry in try JournalEntry.all(in: changed) { _ = state.apply(entry) }
      } catch {
        continue
      }
    }
  }

  private static let retention = StoredRetention(
    first: 9, firstArrival: -1, newestTrimmedArrival: 12,
    newestTrimmedGap: StoredGap(after: 3, marks: .store))
}
