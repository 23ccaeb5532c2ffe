import ByteStreams
import Testing

@testable import HTTPServer

@Suite struct TransferPaceTests {
  private let start = MonotonicTime.zero + .seconds(1000)

  private func deadline(_ pace: TransferPace, minimumRate: Int = 100) -> TimeSpan {
    pace.deadline(pause: .seconds(10), minimumRate: minimumRate) - start
  }

  /// Attack: a body that is announced and never arrives.
  @Test func allowsOnePauseBeforeTheFirstByte() {
    #expect(deadline(TransferPace(at: start)) == .seconds(10))
  }

  /// Attack: one byte a second would keep a connection open for as many seconds as the body has bytes.
  @Test func occasionalBytesAreNotEnough() {
    var pace = TransferPace(at: start)
    for second in 1...9 { pace.advance(by: 1, at: start + .seconds(Int64(second))) }
    #expect(deadline(pace) == .seconds(10))
  }

  @Test func bytesAtTheMinimumRateExtendTheTimeout() {
    var pace = TransferPace(at: start)
    for second in 1...100 {
      pace.advance(by: 100, at: start + .seconds(Int64(second)))
      #expect(deadline(pace) == .seconds(Int64(second + 10)))
    }
    #expect(pace.bytes == 10_000)
  }

  /// Attack: nearly the whole body arrives at once, which earns hours at the minimum rate, and then nothing follows.
  @Test func quickBytesDoNotExtendTheTimeoutOfALaterPause() {
    var pace = TransferPace(at: start)
    pace.advance(by: 16 << 20, at: start + .seconds(1))
    #expect(deadline(pace) == .seconds(11))
  }

  @Test func withoutARateOnlyThePauseCounts() {
    var pace = TransferPace(at: start)
    for second in 1...500 { pace.advance(by: 1, at: start + .seconds(Int64(second))) }
    #expect(deadline(pace, minimumRate: 0) == .seconds(510))
  }
}
