import ByteStreams
import Journal
import JournalSupport
import TestSupport
import Testing

@Suite struct JournalCoderTests {
  private func decoded(_ bytes: Span<UInt8>) throws(JournalReader.Damaged) -> [JournalEntry] {
    var reader = JournalReader(bytes)
    var entries: [JournalEntry] = []
    while let entry = try reader.next() { entries.append(entry) }
    return entries
  }

  @Test(arguments: 0..<20 as Range<UInt64>)
  func everyEntryIsReadAsItWasWritten(seed: UInt64) throws {
    var writer = RandomSession(seed: seed)
    let entries = (0..<300).flatMap { _ in writer.nextEntries() } + [.closed, .retained(Self.retention)]
    var bytes = ByteQueue()
    for entry in entries { JournalCoder.append(entry, to: &bytes) }
    #expect(try decoded(bytes.bytes) == entries)
  }

  @Test func theLargestAndSmallestValuesAreReadAsTheyWereWritten() throws {
    let digest = JournalKey.Digest(high: .max, low: 0)
    let entries: [JournalEntry] = [
      .opened(JournalTerm(term: .max, firstPush: .max, firstDelivery: 0)), .intended(through: .max),
      .settled(JournalSettlement(first: 0, last: .max, state: 255, reason: 0, time: .min, releasesPayloads: false)),
      .keyed(
        JournalKey(
          key: digest, fingerprint: digest, principal: digest, first: .max, batchCount: .min, kind: .binary,
          position: .max, accepted: .max, end: .min)),
      .consumer(name: "", .used(at: .max)),
    ]
    var bytes = ByteQueue()
    for entry in entries { JournalCoder.append(entry, to: &bytes) }
    #expect(try decoded(bytes.bytes) == entries)
  }

  /// What is cut off or changed is an error or another entry, and never stops the program.
  @Test(arguments: 0..<20 as Range<UInt64>)
  func damagedBytesAreAnErrorOrOtherEntries(seed: UInt64) {
    var writer = RandomSession(seed: seed)
    var random = SeededGenerator(seed: seed)
    var bytes = ByteQueue()
    for _ in 0..<40 { for entry in writer.nextEntries() { JournalCoder.append(entry, to: &bytes) } }
    let whole = bytes.copyBytes()
    for _ in 0..<200 {
      var changed = Array(whole.prefix(Int.random(in: 0...whole.count, using: &random)))
      if !changed.isEmpty, Bool.random(using: &random) {
        changed[Int.random(in: changed.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
      }
      var state = RestoredSession(epoch: 1)
      do throws(JournalReader.Damaged) {
        for entry in try decoded(changed.span) { _ = state.apply(entry) }
      } catch {
        continue
      }
    }
  }

  private static let retention = JournalRetention(
    first: 9, firstArrival: -1, newestTrimmedArrival: 12,
    newestTrimmedGap: RestoredSession.Gap(after: 3, reasons: .store))
}
