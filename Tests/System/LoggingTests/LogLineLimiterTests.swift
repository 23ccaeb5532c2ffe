import ByteStreams
import Testing

import Logging

@Suite struct LogLineLimiterTests {
  @Test func admitsSomeLinesASecondAndCountsTheOthers() {
    let log = LogLineLimiter()
    let start = MonotonicTime.zero + .seconds(7)
    for line in 0..<LogLineLimiter.linesPerSecond { #expect(log.admit(at: start + .milliseconds(Int64(line))) == 0) }
    for _ in 0..<1000 { #expect(log.admit(at: start + .milliseconds(999)) == nil) }
    #expect(log.admit(at: start + .seconds(1)) == 1000)
    #expect(log.admit(at: start + .seconds(1)) == 0)
  }

  @Test func admitsALineAMinute() {
    let log = LogLineLimiter(lines: 1, per: .seconds(60))
    let start = MonotonicTime.zero + .seconds(7)
    #expect(log.admit(at: start) == 0)
    #expect(log.admit(at: start + .seconds(59)) == nil)
    #expect(log.admit(at: start + .seconds(60)) == 1)
  }
}
