import ByteStreams
import Testing

@Suite struct ResponseDeadlineTests {
  private let start = MonotonicTime(nanoseconds: 1_000_000_000_000)

  private func seconds(_ deadline: ResponseDeadline) -> Double { (deadline.deadline - start).seconds }

  @Test func isTheTimeoutIfNothingIsReported() {
    let deadline = ResponseDeadline(.seconds(10), from: start, received: 0)
    #expect(seconds(deadline) == 10 && !deadline.isBeingSent)
  }

  @Test func beginsAgainWithEachAcknowledgementUpToItsPosition() {
    var deadline = ResponseDeadline(.seconds(10), from: start, received: nil, position: 100)
    deadline.acknowledged(through: 40, at: start + .seconds(7))
    #expect(seconds(deadline) == 17 && deadline.isBeingSent)
    deadline.acknowledged(through: 40, at: start + .seconds(8))
    #expect(seconds(deadline) == 17, "no progress")
    deadline.acknowledged(through: 100, at: start + .seconds(9))
    #expect(seconds(deadline) == 19 && !deadline.isBeingSent)
    deadline.acknowledged(through: 500, at: start + .seconds(18))
    #expect(seconds(deadline) == 19, "later output does not extend the deadline")
  }

  @Test func bytesInBuffersExtendTheTimeoutUpToALimit() {
    let rate = UInt64(ResponseDeadline.minimumRate)
    var deadline = ResponseDeadline(.seconds(10), from: start, received: rate, position: 1 << 40)
    deadline.acknowledged(through: rate, at: start)
    #expect(seconds(deadline) == 10, "the acknowledged bytes have arrived")
    deadline.acknowledged(through: 5 * rate, at: start)
    #expect(seconds(deadline) == 14)
    deadline.acknowledged(through: 1 << 39, at: start)
    #expect(seconds(deadline) == 138)
  }

  @Test func onlyTheFirstPositionCounts() {
    var deadline = ResponseDeadline(.seconds(10), from: start, received: nil)
    deadline.queued(through: 10)
    deadline.queued(through: 20)
    #expect(deadline.position == 10)
  }

  @Test func anAcknowledgementFromBeforeTheWaitDoesNotBringTheDeadlineForward() {
    var deadline = ResponseDeadline(.seconds(10), from: start, received: nil, position: 100)
    deadline.acknowledged(through: 50, at: .zero)
    #expect(seconds(deadline) == 10)
  }

  @Test func theWaitIsLimitedUnlessThePeerMayTakeAnyTime() {
    for isLimited in [true, false] {
      var deadline = ResponseDeadline(.seconds(10), from: start, received: nil, position: 100, isLimited: isLimited)
      deadline.acknowledged(through: 1, at: start + .hours(1))
      #expect(seconds(deadline) == (isLimited ? 138 : 3_610))
      #expect(deadline.postponement(from: start) == .seconds(isLimited ? 128 : 3_600))
    }
  }
}
