import ByteStreams
import Dialing
import Testing

@Suite struct RetryAfterTests {
  @Test func readsRetryAfterInBothForms() {
    #expect(RetryAfter.parse("120", now: 0) == .seconds(120))
    #expect(RetryAfter.parse("99999999999999999999", now: 0) == .seconds(1 << 31))
    #expect(RetryAfter.parse("Fri, 31 Dec 9999 23:59:59 GMT", now: 0) == .seconds(1 << 31))
    let moment: Int64 = 784_111_777
    for date in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
      #expect(RetryAfter.parse(date, now: moment - 30) == .seconds(30))
      #expect(RetryAfter.parse(date, now: moment + 30) == .zero)
      // The date is relative to the server's own clock, which differs from our clock by an hour.
      #expect(RetryAfter.parse(date, date: "Sun, 06 Nov 1994 08:49:17 GMT", now: moment + 3_600) == .seconds(20))
      #expect(RetryAfter.parse(date, date: "yesterday", now: moment - 5) == .seconds(5))
    }
    for nonsense in ["-1", "soon", "", "1.5", "1 2", "Sun, 31 Feb 1994 08:49:37 GMT"] {
      #expect(RetryAfter.parse(nonsense, now: 0) == nil)
    }
  }
}
