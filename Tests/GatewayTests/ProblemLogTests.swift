import ByteStreams
import Testing

@testable import Gateway

@Suite struct ProblemLogTests {
  @Test func admitsSomeLinesASecondAndCountsTheOthers() {
    var log = ProblemLog()
    let start = MonotonicTime.zero + .seconds(7)
    for line in 0..<ProblemLog.linesPerSecond { #expect(log.admit(at: start + .milliseconds(Int64(line))) == 0) }
    for _ in 0..<1000 { #expect(log.admit(at: start + .milliseconds(999)) == nil) }
    #expect(log.admit(at: start + .seconds(1)) == 1000)
    #expect(log.admit(at: start + .seconds(1)) == 0)
  }
}
