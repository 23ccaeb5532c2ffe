import ByteStreams
import Testing

@Suite struct MonotonicTimeTests {
  let start = MonotonicTime(nanoseconds: 1_000)

  @Test func addsAndSubtractsSpans() {
    #expect(start + .nanoseconds(5) == MonotonicTime(nanoseconds: 1_005))
    #expect(start - .nanoseconds(5) == MonotonicTime(nanoseconds: 995))
    #expect(start + .nanoseconds(-5) == MonotonicTime(nanoseconds: 995))
    #expect(start - start == .zero)
    #expect(start - (start + .seconds(2)) == .seconds(-2))
    #expect((start + .minutes(1)) - start == .seconds(60))
  }

  @Test func staysInsideItsRange() {
    #expect(start - .seconds(1) == .zero)
    #expect(MonotonicTime.distantFuture + .seconds(1) == .distantFuture)
    #expect(MonotonicTime.distantFuture - .zero == .distantFuture)
    #expect((MonotonicTime.distantFuture - start).nanoseconds == .max)
    #expect(TimeSpan(nanoseconds: .max) + .seconds(1) == TimeSpan(nanoseconds: .max))
    #expect(TimeSpan.seconds(4) * .max == TimeSpan(nanoseconds: .max))
    #expect(TimeSpan.seconds(-4) * .max == TimeSpan(nanoseconds: .min))
    for make in [TimeSpan.hours, TimeSpan.minutes, TimeSpan.seconds, TimeSpan.milliseconds, TimeSpan.microseconds] {
      #expect(make(.max) == TimeSpan(nanoseconds: .max) && make(.min) == TimeSpan(nanoseconds: .min))
    }
  }

  @Test func roundsWaitsUp() {
    #expect(TimeSpan.nanoseconds(1).millisecondsRoundedUp == 1)
    #expect(TimeSpan.milliseconds(20).millisecondsRoundedUp == 20)
    #expect(TimeSpan.zero.millisecondsRoundedUp == 0)
    #expect(TimeSpan(nanoseconds: .max).millisecondsRoundedUp == Int64.max / 1_000_000 + 1)
  }
}
