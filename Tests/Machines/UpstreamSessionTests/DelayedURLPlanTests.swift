import ByteStreams
import Testing

@testable import UpstreamSession

@Suite struct DelayedURLPlanTests {
  private let now = MonotonicTime(nanoseconds: 1_000_000_000_000)

  private func plan(slotIn wait: TimeSpan, readingTook time: TimeSpan) -> DelayedURLPlan {
    DelayedURLPlan(slot: now + wait, readingTook: time, now: now)
  }

  @Test func aURLIsKeptForAShortWait() {
    for time in [.zero, .milliseconds(100), .seconds(4)] as [TimeSpan] {
      let plan = plan(slotIn: .seconds(10), readingTook: time)
      #expect(plan.attempt == now + .seconds(10))
      #expect(plan.end == plan.attempt + HostAttemptLimiter.ticketLifetime)
    }
  }

  /// More than 240 sessions of one host, whose commands take longer than a ticket is valid after its slot.
  @Test(arguments: [.zero, .milliseconds(1), .seconds(3), .seconds(12)] as [TimeSpan])
  func aSlowCommandKeepsItsSlot(time: TimeSpan) {
    let slot = now + .minutes(1)
    let plan = plan(slotIn: .minutes(1), readingTook: time)
    #expect(plan.end == nil, "the URL would be too old")
    // The next reading takes as long as the last, or a little longer.
    for second in [time, time + min(time, DelayedURLPlan.allowance)] {
      let end = plan.attempt + second
      #expect(end <= slot)
      let next = DelayedURLPlan(slot: slot, readingTook: second, now: end)
      #expect(next.attempt == slot && next.end != nil)
    }
  }

  @Test func aReadingThatWasMuchFasterIsRepeated() {
    let slot = now + .minutes(1)
    let plan = plan(slotIn: .minutes(1), readingTook: .seconds(30))
    let next = DelayedURLPlan(slot: slot, readingTook: .seconds(1), now: plan.attempt + .seconds(1))
    #expect(next == DelayedURLPlan(slot: slot, readingTook: .seconds(1), now: now))
  }
}
