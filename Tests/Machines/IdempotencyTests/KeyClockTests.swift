import ByteStreams
import Idempotency
import JournalCoding
import Testing

/// Idempotency keys of a session that moves to another process or gateway, with a different clock.
@Suite struct KeyClockTests {
  private static let lifetime: Int64 = 600_000
  private static let forwarded: Int64 = 20_000
  private static let noon: Int64 = 1_800_000_000_000

  /// A process that is the holder of the session.
  private struct Holder {
    var keys: StoredKeys
    let clock: KeyClock
    private(set) var now: MonotonicTime
    private var last: UInt64 = 0

    /// - Parameter wallClock: the wall clock when the process starts.
    init(_ keys: StoredKeys = StoredKeys(), wallClock: Int64) {
      self.keys = keys
      // The machines have started at different times.
      now = MonotonicTime.zero + .seconds(wallClock % 97)
      clock = KeyClock(keys, at: JournalClock(now: now, wallClock: wallClock))
    }

    mutating func pass(_ milliseconds: Int64) { now = now + .milliseconds(milliseconds) }

    mutating func accept(_ number: UInt64, lifetime: Int64 = KeyClockTests.lifetime) {
      keys.apply(StoredKey(number, accepted: clock.time(at: now), lifetime: lifetime))
    }

    /// The remaining lifetime of each key in seconds, by the key's number.
    var rests: [UInt64: Double] {
      let rests = keys.changes.map { ($0.acceptance.first, clock.rest(of: $0, at: now).seconds) }
      return Dictionary(uniqueKeysWithValues: rests.filter { $0.1 > 0 })
    }

    func next(wallClock: Int64) -> Holder { Holder(keys, wallClock: wallClock) }
  }

  @Test(arguments: [-86_400_000, -60_000, -5_000, 0, 5_000, 60_000, 86_400_000] as [Int64])
  func theRemainingTimeOfAKeyDoesNotDependOnTheClockOfTheNextGateway(difference: Int64) {
    var first = Holder(wallClock: Self.noon)
    first.accept(1, lifetime: Self.forwarded)
    first.pass(5_000)
    first.accept(2, lifetime: Self.forwarded)
    first.accept(3)
    first.pass(2_000)
    var second = first.next(wallClock: Self.noon + 7_000 + difference)
    #expect(second.rests == [1: 15, 2: 20, 3: 600])
    // A new key of this process does not remove the stored keys, nor does the next process, with a third clock.
    second.pass(1_000)
    second.accept(4)
    var third = second.next(wallClock: Self.noon + 8_000 - difference)
    #expect(third.rests == [1: 14, 2: 19, 3: 599, 4: 600])
    third.pass(14_000)
    #expect(third.rests == [2: 5, 3: 585, 4: 586])
    third.pass(585_000)
    #expect(third.rests == [4: 1])
  }

  @Test func aStepOfTheHoldersClockEndsNoKey() {
    var first = Holder(wallClock: Self.noon)
    first.accept(1)
    // The wall clock is set forward by years here, but the keys do not depend on it.
    first.pass(60_000)
    first.accept(2)
    #expect(first.rests == [1: 540, 2: 600])
    first.pass(540_000)
    first.accept(3)
    #expect(first.keys.changes.map(\.acceptance.first) == [2, 3])
  }

  @Test func onlyTimeWithAHolderCounts() {
    var holder = Holder(wallClock: Self.noon)
    holder.accept(1)
    holder.pass(300_000)
    holder.accept(2)
    // The session has no holder for a year.
    holder = holder.next(wallClock: Self.noon + 365 * 86_400_000)
    #expect(holder.rests == [1: 300, 2: 600])
    holder.pass(300_000)
    #expect(holder.rests == [2: 300])
    holder.pass(300_000)
    #expect(holder.rests.isEmpty)
  }

  @Test(arguments: [0, -86_400_000, .min, .max] as [Int64])
  func aKeyIsNeverRememberedForLongerThanItWasGranted(time: Int64) {
    var keys = StoredKeys()
    keys.apply(StoredKey(1, accepted: Self.noon, lifetime: Self.lifetime))
    let rests = Holder(keys, wallClock: time == .min ? 0 : Self.noon + (time == .max ? 0 : time)).rests
    #expect(rests == [1: 600])
    // Such a key comes from a damaged file.
    keys.apply(StoredKey(2, accepted: time, lifetime: 0))
    #expect(Holder(keys, wallClock: Self.noon).rests.values.allSatisfy { $0 <= 600 })
  }

  @Test func withoutKeysTheClockIsTheWallClock() {
    let holder = Holder(wallClock: Self.noon)
    #expect(holder.clock.time(at: holder.now + .seconds(1)) == Self.noon + 1_000)
  }
}

extension StoredKey {
  /// - Parameter lifetime: in milliseconds.
  init(_ number: UInt64, accepted: Int64, lifetime: Int64) {
    let digest = IdempotencyTable.Key(high: number &* 0x9E37_79B9_7F4A_7C15, low: ~number)
    self.init(
      key: digest, fingerprint: digest, principal: IdempotencyTable.Key(high: 0, low: 0),
      acceptance: IdempotencyTable.Acceptance(first: number, batchCount: nil, kind: .text, position: number << 1),
      accepted: accepted, end: accepted + lifetime)
  }
}
