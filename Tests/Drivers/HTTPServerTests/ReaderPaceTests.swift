import ByteStreams
import Testing

@testable import HTTPServer

@Suite struct ReaderPaceTests {
  private let start = MonotonicTime.zero + .seconds(1000)
  private var timeouts: ConnectionTimeouts {
    var settings = HTTPServerSettings()
    settings.writeTimeout = .seconds(10)
    settings.writeMinimumRate = 100
    return ConnectionTimeouts(settings)
  }

  @Test func bytesThatOnlyTheKernelTakesAreNotProgress() {
    var pace = ReaderPace(at: start, unacknowledged: 1000)
    pace.advance(sent: 5000, unacknowledged: 6000, at: start + .seconds(5))
    #expect(pace.deadline(timeouts) == start + .seconds(10))
  }

  @Test func bytesThatTheClientTakesFromTheKernelsBufferAreProgress() {
    var pace = ReaderPace(at: start, unacknowledged: 100_000)
    for look in 1...5 {
      let now = start + .seconds(9 * Int64(look))
      pace.advance(sent: 0, unacknowledged: 100_000 - 1000 * look, at: now)
      #expect(pace.deadline(timeouts) == min(now + .seconds(10), start + .seconds(10 + 10 * Int64(look))))
    }
  }

  /// For a Unix-domain socket, the kernel counts the memory of its buffers, which may exceed the sent bytes.
  @Test func aBufferThatGrowsByMoreThanWasSentIsNotNegativeProgress() {
    var pace = ReaderPace(at: start, unacknowledged: 0)
    pace.advance(sent: 1000, unacknowledged: 2000, at: start)
    pace.advance(sent: 0, unacknowledged: 1000, at: start + .seconds(1))
    #expect(pace.deadline(timeouts) == start + .seconds(11))
  }
}
