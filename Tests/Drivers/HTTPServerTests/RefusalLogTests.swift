import ByteStreams
import Testing

@testable import HTTPServer

@Suite struct RefusalLogTests {
  @Test func admitsSomeLinesASecondAndCountsTheOthers() {
    var log = RefusalLog()
    let start = MonotonicTime.zero + .seconds(7)
    for line in 0..<RefusalLog.linesPerSecond { #expect(log.admit(at: start + .milliseconds(Int64(line))) == 0) }
    for _ in 0..<1000 { #expect(log.admit(at: start + .milliseconds(999)) == nil) }
    #expect(log.admit(at: start + .seconds(1)) == 1000)
    #expect(log.admit(at: start + .seconds(1)) == 0)
  }
}
