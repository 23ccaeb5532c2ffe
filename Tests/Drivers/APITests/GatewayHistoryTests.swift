import ByteStreams
import Testing

@testable import API

/// The samples behind the plots of the status page, without a clock.
@Suite struct GatewayHistoryTests {
  private let start = MonotonicTime(nanoseconds: 1_000_000_000_000)

  private func sample(_ seconds: Int64, received: UInt64 = 0, accepted: UInt64 = 0) -> HistorySample {
    HistorySample(time: start + .seconds(seconds), received: received, accepted: accepted)
  }

  @Test func aRateIsComputedFromTheTimeBetweenTwoSamples() {
    var history = GatewayHistory()
    #expect(history.points.isEmpty)
    history.append(sample(0, received: 100, accepted: 7))
    #expect(history.points.isEmpty, "one sample has no interval")
    history.append(sample(5, received: 110, accepted: 7))
    // The loop was late.
    history.append(sample(15, received: 130, accepted: 12))
    #expect(history.points.map(\.receivedPerSecond) == [2, 2] && history.points.map(\.acceptedPerSecond) == [0, 0.5])
    // A total that is smaller than before gives no rate.
    history.append(sample(20, received: 90, accepted: 12))
    #expect(history.points.last?.receivedPerSecond == 0)
  }

  @Test func exactlyTenMinutesAreKept() {
    var history = GatewayHistory()
    for index in 0..<1_000 { history.append(sample(Int64(index) * 5, received: UInt64(index))) }
    #expect(GatewayHistory.capacity == 121 && history.points.count == 120)
    #expect(history.points.first?.sample.time == start + .seconds(999 * 5 - 595))
    #expect(history.points.allSatisfy { $0.receivedPerSecond == 0.2 })
    #expect(MemoryLayout<HistorySample>.stride * GatewayHistory.capacity <= 8_192)
  }

  @Test func samplesFromBeforeAPauseOfTheProcessAreDropped() {
    var history = GatewayHistory()
    for index in 0..<50 { history.append(sample(Int64(index) * 5)) }
    history.append(sample(3_600))
    #expect(history.points.isEmpty)
    history.append(sample(3_605))
    #expect(history.points.count == 1)
  }

  @Test func samplesMoreOftenThanTheIntervalDoNotExceedTheCapacity() {
    var history = GatewayHistory()
    for index in 0..<500 { history.append(HistorySample(time: start + .milliseconds(Int64(index)))) }
    #expect(history.points.count == GatewayHistory.capacity - 1)
  }
}
