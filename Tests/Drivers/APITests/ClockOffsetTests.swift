import ByteStreams
import Testing

@testable import API

@Suite struct ClockOffsetTests {
  private let start = MonotonicTime.zero + .seconds(50)

  private func time(_ offset: ClockOffset, wallClock: Int64, after span: TimeSpan) -> Int64 {
    offset.wallClock(of: start, wallClock: wallClock, now: start + span)
  }

  @Test func aTimeIsShownByThePresentWallClock() {
    let offset = ClockOffset()
    #expect(time(offset, wallClock: 1_000_000, after: .zero) == 1_000_000)
    // The wall clock is set forward, and back.
    #expect(time(offset, wallClock: 4_601_000, after: .seconds(1)) == 4_600_000)
    #expect(time(offset, wallClock: 502_000, after: .seconds(2)) == 500_000)
  }

  @Test func theSameTimeIsShownAgainThoughTheClocksAreRounded() {
    let offset = ClockOffset()
    #expect(time(offset, wallClock: 1_000_000, after: .zero) == 1_000_000)
    #expect(time(offset, wallClock: 1_001_001, after: .seconds(1)) == 1_000_000)
    #expect(time(offset, wallClock: 1_001_999, after: .seconds(2)) == 1_000_000)
  }
}
