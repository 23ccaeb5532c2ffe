import ByteStreams
import Testing

@testable import Metrics

@Suite struct HistogramTests {
  private func render(_ registry: MetricsRegistry) -> String {
    var output = ByteQueue()
    registry.render(into: &output)
    return output.bytes.text()
  }

  @Test func countsADurationInEveryRangeThatIncludesIt() {
    let histogram = Histogram()
    histogram.observe(.microseconds(50))
    histogram.observe(.nanoseconds(50_001))
    histogram.observe(.seconds(60))
    histogram.observe(.seconds(61))
    let (counts, sum) = histogram.snapshot
    #expect(counts == [1] + Array(repeating: 2, count: 17) + [3, 4])
    #expect(abs(sum - 121.000100001) < 1e-9)
  }

  @Test func addsTheObservationsOfAllThreads() {
    let histogram = Histogram()
    let (first, second) = (histogram.makePart(), histogram.makePart())
    first.observe(.milliseconds(1), count: 3)
    second.observe(.milliseconds(2))
    histogram.observe(.milliseconds(3))
    #expect(histogram.snapshot.cumulative.last == 5)
    #expect(abs(histogram.snapshot.sum - 0.008) < 1e-9)
  }

  @Test func aNegativeDurationIsZero() {
    let histogram = Histogram()
    histogram.observe(.milliseconds(-5))
    #expect(histogram.snapshot.cumulative.first == 1)
    #expect(histogram.snapshot.sum == 0)
  }

  @Test func aNameWithItsLabelsIsOneHistogram() {
    let registry = MetricsRegistry()
    let histogram = registry.histogram("a_seconds", "A.", [("k", "x")])
    #expect(registry.histogram("a_seconds", "A.", [("k", "x")]) === histogram)
    #expect(registry.histogram("a_seconds", "A.", [("k", "y")]) !== histogram)
    histogram.observe(.seconds(2))
    let text = render(registry)
    let start = "# HELP a_seconds A.\n# TYPE a_seconds histogram\n"
    #expect(text.hasPrefix(start + "a_seconds_bucket{k=\"x\",le=\"5e-05\"} 0\n"))
    #expect(text.contains("a_seconds_bucket{k=\"x\",le=\"1.0\"} 0\na_seconds_bucket{k=\"x\",le=\"2.5\"} 1\n"))
    let end = "a_seconds_sum{k=\"x\"} 2.0\na_seconds_count{k=\"x\"} 1\n"
    #expect(text.contains("a_seconds_bucket{k=\"x\",le=\"+Inf\"} 1\n" + end))
  }
}
