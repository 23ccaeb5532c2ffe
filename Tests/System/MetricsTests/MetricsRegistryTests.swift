import ByteStreams
import Testing

@testable import Metrics

@Suite struct MetricsRegistryTests {
  private func render(_ registry: MetricsRegistry) -> [String] {
    var output = ByteQueue()
    registry.render(into: &output)
    return output.bytes.text().split(separator: "\n").map(String.init)
  }

  @Test func writesCountersGaugesAndTheirHelp() {
    let registry = MetricsRegistry()
    registry.counter("a_total", "Line one\nline \\ two.").add(3)
    registry.gauge("b", "B.").set(-4)
    registry.gauge("c", "C.") { 1.5 }
    #expect(
      render(registry) == [
        "# HELP a_total Line one\\nline \\\\ two.", "# TYPE a_total counter", "a_total 3", "# HELP b B.",
        "# TYPE b gauge", "b -4",
        "# HELP c C.", "# TYPE c gauge", "c 1.5",
      ])
  }

  @Test func seriesOfOneNameHaveOneHelpAndEscapedLabels() {
    let registry = MetricsRegistry()
    registry.counter("a_total", "A.", [("k", "x\"y\\z\n")]).add()
    registry.counter("a_total", "A.", [("k", "other")]).add(2)
    #expect(
      render(registry) == [
        "# HELP a_total A.", "# TYPE a_total counter", "a_total{k=\"x\\\"y\\\\z\\n\"} 1", "a_total{k=\"other\"} 2",
      ])
  }

  @Test func theTotalOfANameIsTheSumOfItsCounters() {
    let registry = MetricsRegistry()
    registry.counter("a_total", "A.", [("k", "x")]).add(3)
    registry.counter("a_total", "A.", [("k", "y")]).add(4)
    registry.counter("b_total", "B.").add(100)
    #expect(registry.total(of: "a_total") == 7 && registry.total(of: "c_total") == 0)
  }

  /// Two additions together exceed a limit. The second addition is refused, and does not affect the first.
  @Test func aRefusedLimitedAdditionAddsNothing() {
    let gauge = Gauge()
    #expect(gauge.add(100, ifAtMost: 150))
    #expect(!gauge.add(100, ifAtMost: 150) && gauge.current == 100)
    #expect(gauge.add(50, ifAtMost: 150) && gauge.current == 150)
  }
}
