import ByteStreams
import Testing

@Suite struct TimeSpanTextTests {
  @Test(arguments: [
    ("0", TimeSpan.zero), ("7", .seconds(7)), ("500ms", .milliseconds(500)), ("25s", .seconds(25)),
    ("10m", .minutes(10)), ("2h", .hours(2)), ("2d", .hours(48)), ("1h30m", .minutes(90)),
    ("1d2h3m4s5ms", .milliseconds(93_784_005)),
    ("90m", .minutes(90)), ("1s500ms", .milliseconds(1500)), ("0h5m", .minutes(5)), ("007s", .seconds(7)),
    ("2147483648", .seconds(1 << 31)),
  ])
  func readsTimesAsPeopleWriteThem(text: String, expected: TimeSpan) { #expect(TimeSpan(text) == expected) }

  @Test(arguments: [
    "", "s", "1.5s", "-1s", "-5", "+5s", "1 s", " 1s", "5x", "1S", "1sec", "1h30", "30m1h", "1h1h", "1ms1s", "h1",
    "1h 30m", "2147483649", "2147483648s1ms", "2147483648h", "99999999999999999999s", "9223372036854775807d",
  ])
  func refusesEverythingElse(text: String) { #expect(TimeSpan(text) == nil) }

  @Test(arguments: [
    (TimeSpan.zero, "0s"), (.milliseconds(1), "1ms"), (.milliseconds(1500), "1500ms"), (.seconds(20), "20s"),
    (.minutes(90), "90m"), (.hours(1), "1h"), (.hours(48), "2d"), (.nanoseconds(1), "0s"),
  ])
  func writesTheLargestUnitThatDivides(span: TimeSpan, text: String) { #expect(span.text == text) }

  @Test(arguments: [
    (TimeSpan.zero, "0"), (.nanoseconds(213_456), "0.000213"), (.nanoseconds(1), "0"), (.microseconds(7), "0.000007"),
    (.milliseconds(50), "0.05"), (.nanoseconds(23_456_789), "0.0235"), (.milliseconds(999), "0.999"),
    (.nanoseconds(999_999_999), "1"), (.seconds(5), "5"), (.nanoseconds(1_253_600_001), "1.25"),
    (.milliseconds(12_345), "12.3"), (.milliseconds(600_400), "600"), (.milliseconds(99_960), "100"),
    (.hours(1), "3600"), (.milliseconds(-1_500), "-1.5"), (.nanoseconds(.max), "9223372037"),
  ])
  func writesSecondsWithFewDigits(span: TimeSpan, text: String) { #expect(span.secondsText == text) }
}
