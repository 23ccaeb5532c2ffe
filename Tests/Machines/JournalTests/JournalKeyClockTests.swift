import ByteStreams
import Journal
import JournalSupport
import Testing

/// Idempotency keys whose session changes its process, or its gateway, between clocks that differ.
@Suite struct JournalKeyClockTests {
  private static let lifetime: Int64 = 600_000
  private static let forwarded: Int64 = 20_000
  private static let noon: Int64 = 1_800_000_000_000

  /// A process that has the session.
  private struct Holder {
    var session: RestoredSession
    let clock: JournalKeyClock
    private(set) var now: MonotonicTime
    private var last: UInt64 = 0

    /// - Parameter wallClock: at its beginning.
    init(_ session: RestoredSession, wallClock: Int64) {
      self.session = session
      // Each machine has started at another time.
      now = MonotonicTime.zero + .seconds(wallClock % 97)
      clock = JournalKeyClock(session, at: JournalClock(now: now, wallClock: wallClock))
    }

    mutating func pass(_ milliseconds: Int64) { now = now + .milliseconds(milliseconds) }

    mutating func accept(_ number: UInt64, lifetime: Int64 = JournalKeyClockTests.lifetime) {
      _ = session.apply(.keyed(RandomSession.key(number, accepted: clock.time(at: now), lifetime: lifetime)))
    }

    /// By number, in seconds.
    var rests: [UInt64: Double] {
      let rests = session.storedKeys.map { ($0.first, clock.rest(of: $0, at: now).seconds) }
      return Dictionary(uniqueKeysWithValues: rests.filter { $0.1 > 0 })
    }

    func next(wallClock: Int64) -> Holder { Holder(session, wallClock: wallClock) }
  }

  @Test(arguments: [-60_000, -5_000, 0, 5_000, 60_000, 500_000] as [Int64])
  func whatIsLeftOfAKeyDoesNotDependOnTheClockOfTheNextGateway(difference: Int64) {
    var first = Holder(RestoredSession(epoch: 1), wallClock: Self.noon)
    first.accept(1, lifetime: Self.forwarded)
    first.pass(5_000)
    first.accept(2, lifetime: Self.forwarded)
    first.accept(3)
    first.pass(2_000)
    var second = first.next(wallClock: Self.noon + 7_000 + difference)
    #expect(second.rests == [1: 15, 2: 20, 3: 600])
    // Its own keys do not remove these from what is stored, nor does the next one with yet another clock.
    second.pass(1_000)
    second.accept(4)
    var third = second.next(wallClock: Self.noon + 8_000 - difference)
    #expect(third.rests == [1: 14, 2: 19, 3: 599, 4: 600])
    third.pass(14_000)
    #expect(third.rests == [2: 5, 3: 585, 4: 586])
    third.pass(585_000)
    #expect(third.rests == [4: 1])
  }

  @Test func aStepOfTheClockWhileTheSessionIsHeldEndsNoKey() {
    var first = Holder(RestoredSession(epoch: 1), wallClock: Self.noon)
    first.accept(1)
    // The wall clock is set forward by years here, and nobody asks it.
    first.pass(60_000)
    first.accept(2)
    #expect(first.rests == [1: 540, 2: 600])
    first.pass(540_000)
    first.accept(3)
    #expect(first.session.storedKeys.map(\.first) == [2, 3])
  }

  @Test func aKeyEndsAlsoIfNothingIsStoredBetweenMuchRestarting() {
    var holder = Holder(RestoredSession(epoch: 1), wallClock: Self.noon)
    holder.accept(1)
    var hour = Self.noon
    for _ in 0..<3 {
      hour += 300_000
      holder = holder.next(wallClock: hour)
      #expect(holder.rests == [1: hour > Self.noon + 600_000 ? 300 : 600])
    }
    holder = holder.next(wallClock: Self.noon + 1_200_000)
    #expect(holder.rests.isEmpty)
  }

  @Test(arguments: [0, -86_400_000, .min, .max] as [Int64])
  func aKeyIsNeverRememberedForLongerThanItWasGranted(time: Int64) {
    var session = RestoredSession(epoch: 1)
    _ = session.apply(.keyed(RandomSession.key(1, accepted: Self.noon, lifetime: Self.lifetime)))
    let rests = Holder(session, wallClock: time == .min ? 0 : Self.noon + (time == .max ? 0 : time)).rests
    #expect(rests == [1: 600])
    // Of a damaged file.
    _ = session.apply(.keyed(RandomSession.key(2, accepted: time, lifetime: 0)))
    #expect(Holder(session, wallClock: Self.noon).rests.values.allSatisfy { $0 <= 600 })
  }

  @Test func withoutKeysItIsTheClockOfTheWall() {
    let holder = Holder(RestoredSession(epoch: 1), wallClock: Self.noon)
    #expect(holder.clock.time(at: holder.now + .seconds(1)) == Self.noon + 1_000)
  }
}
