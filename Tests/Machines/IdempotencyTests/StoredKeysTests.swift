import ByteStreams
import Idempotency
import JournalCoding
import TestSupport
import Testing

@Suite struct StoredKeysTests {
  @Test func expiredKeysAreDropped() {
    var keys = StoredKeys()
    for number in 1...3 as ClosedRange<UInt64> {
      keys.apply(StoredKey(number, accepted: Int64(number) * 100, lifetime: 150))
    }
    #expect(keys.changes.map(\.acceptance.first) == [2, 3])
  }

  @Test func aKeyWithALongLifetimeDoesNotDelayTheRemovalOfOtherKeys() {
    let long = IdempotencyTable.retention.millisecondsRoundedUp
    var keys = StoredKeys()
    keys.apply(StoredKey(1, accepted: 0, lifetime: long))
    for number in 2...590 as ClosedRange<UInt64> {
      keys.apply(StoredKey(number, accepted: Int64(number) * 1_000, lifetime: 30_000))
      // At most 31 have not expired, for which the ring has 64 places.
      #expect(keys.changes.count <= 64)
    }
    let left = keys.changes.map(\.acceptance.first)
    #expect(left.first == 1 && left.suffix(30) == Array(561...590)[...] && left == left.sorted())
  }

  /// Stored entries, and the entries that replace them, restore a table with the same decisions as the table that
  /// accepted the keys.
  @Test(arguments: 0..<10 as Range<UInt64>)
  func theStoredKeysAreTheKeysOfTheTable(seed: UInt64) {
    var random = SeededGenerator(seed: seed)
    var now = MonotonicTime.zero + .seconds(1_000)
    let limits = IdempotencyTable.Limits(keys: 1_000, keysPerClient: 1_000)
    var table = IdempotencyTable(limits)
    var stored = StoredKeys()
    let clock = KeyClock(stored, at: JournalClock(now: now, wallClock: 1_800_000_000_000))
    for _ in 0..<40 {
      for _ in 0..<10 {
        now = now + .milliseconds(Int64.random(in: 0...20_000, using: &random))
        let key = StoredKey(
          UInt64.random(in: 1...60, using: &random), accepted: clock.time(at: now),
          lifetime: IdempotencyTable.retention.millisecondsRoundedUp)
        guard table.begin(key.key, key.fingerprint, by: 0, now: now) == .first else { continue }
        table.accept(key.key, key.acceptance, now: now)
        stored.apply(Self.coded(key))
      }
      var rebuilt = StoredKeys()
      for key in stored.changes { rebuilt.apply(key) }
      #expect(rebuilt == stored)
      // Another process starts. Its clock begins at the newest key.
      var restored = IdempotencyTable(limits)
      let keys = stored.changes.map { (stored: $0, end: now + clock.rest(of: $0, at: now)) }.filter { $0.end > now }
      _ = restored.restore(keys[...])
      for number in 1...60 as ClosedRange<UInt64> {
        let key = StoredKey(number, accepted: 0, lifetime: 0)
        var (left, right) = (table, restored)
        #expect(
          left.begin(key.key, key.fingerprint, by: 0, now: now)
            == right.begin(key.key, key.fingerprint, by: 0, now: now))
      }
    }
  }

  private static func coded(_ key: StoredKey) -> StoredKey {
    var coder = JournalCoder(appendingTo: ByteQueue())
    _ = StoredKey(key, &coder)
    let bytes = coder.finish()
    var reader = JournalCoder(reading: bytes.bytes)
    return StoredKey(nil, &reader)
  }
}
