import ByteStreams
import Threading

/// All metrics of the process, rendered in Prometheus' text format (version 0.0.4). Safe for use from any thread.
package final class MetricsRegistry: Sendable {
  package typealias Labels = [(name: String, value: String)]

  private enum Source: Sendable {
    case counter(Counter)
    case gauge(Gauge)
    case computedGauge(@Sendable () -> Double)
    case computedCounter(@Sendable () -> Double)
    case histogram(Histogram)

    var kind: String {
      switch self {
      case .counter, .computedCounter: "counter"
      case .gauge, .computedGauge: "gauge"
      case .histogram: "histogram"
      }
    }
  }

  private struct Series: Sendable {
    let labels: String
    let source: Source
  }

  private struct Family: Sendable {
    let name: String
    let help: String
    var series: [Series]
  }

  private let families = Locked<[Family]>([])
  private let figures = Locked<[@Sendable () -> Void]>([])

  package init() {}

  /// Registers a counter. Metrics of one name with different labels are one family. A debug build stops if the same
  /// name and labels are registered twice.
  package func counter(_ name: String, _ help: String, _ labels: Labels = []) -> Counter {
    let counter = Counter()
    add(name, help, labels, .counter(counter))
    return counter
  }

  package func gauge(_ name: String, _ help: String, _ labels: Labels = []) -> Gauge {
    let gauge = Gauge()
    add(name, help, labels, .gauge(gauge))
    return gauge
  }

  /// Returns the histogram with this name and these labels, which several parts of the program may use.
  package func histogram(_ name: String, _ help: String, _ labels: Labels = []) -> Histogram {
    let written = Self.written(labels)
    let known = families.withLock { families in
      families.first { $0.name == name }?.series.first { $0.labels == written }
    }
    if case .histogram(let histogram) = known?.source { return histogram }
    let histogram = Histogram()
    add(name, help, labels, .histogram(histogram))
    return histogram
  }

  /// Registers a gauge whose value is computed in every `render`, on the thread that calls `render`.
  package func gauge(
    _ name: String, _ help: String, _ labels: Labels = [], computedBy compute: @escaping @Sendable () -> Double
  ) {
    add(name, help, labels, .computedGauge(compute))
  }

  package func counter(
    _ name: String, _ help: String, _ labels: Labels = [], computedBy compute: @escaping @Sendable () -> Double
  ) {
    add(name, help, labels, .computedCounter(compute))
  }

  /// A value that several metrics read. It is computed once per `render`, on the thread that calls `render`.
  package final class Figures<Value: Sendable>: Sendable {
    private let latest: Locked<Value>

    fileprivate init(_ value: Value) { latest = Locked(value) }

    package var value: Value { latest.withLock { $0 } }

    fileprivate func update(_ value: Value) { latest.withLock { $0 = value } }
  }

  package func figures<Value: Sendable>(computedBy compute: @escaping @Sendable () -> Value) -> Figures<Value> {
    let result = Figures(compute())
    figures.withLock { $0.append { result.update(compute()) } }
    return result
  }

  /// Returns the sum of the counters with this name; 0 if there is no such counter.
  package func total(of name: String) -> UInt64 {
    let series = families.withLock { families in families.first { $0.name == name }?.series ?? [] }
    return series.reduce(0) { sum, series in
      if case .counter(let counter) = series.source { sum &+ counter.total } else { sum }
    }
  }

  /// Removes all metrics. Computed metrics refer to objects that may refer to the registry. So this call breaks
  /// reference cycles.
  func removeAll() {
    families.withLock { $0 = [] }
    figures.withLock { $0 = [] }
  }

  private func add(_ name: String, _ help: String, _ labels: Labels, _ source: Source) {
    let written = Self.written(labels)
    families.withLock { families in
      let series = Series(labels: written, source: source)
      if let index = families.firstIndex(where: { $0.name == name }) {
        // This is checked only in debug builds: with a thousand sessions, the check would take most of the time of the
        // start.
        assert(!families[index].series.contains { $0.labels == written }, "metric \(name) was registered twice")
        families[index].series.append(series)
      } else {
        families.append(Family(name: name, help: help, series: [series]))
      }
    }
  }

  private static func written(_ labels: Labels) -> String {
    labels.map { "\($0.name)=\"\(escaped($0.value, quotes: true))\"" }.joined(separator: ",")
  }

  private static func escaped(_ text: String, quotes: Bool) -> String {
    var result = ""
    for character in text {
      switch character {
      case "\\": result += "\\\\"
      case "\n": result += "\\n"
      case "\"" where quotes: result += "\\\""
      default: result.append(character)
      }
    }
    return result
  }

  package static let contentType: StaticString = "text/plain; version=0.0.4; charset=utf-8"

  package func render(into output: inout ByteQueue) {
    for update in figures.withLock({ $0 }) { update() }
    for family in families.withLock({ $0 }) {
      output.append("# HELP \(family.name) \(Self.escaped(family.help, quotes: false))\n")
      if let first = family.series.first { output.append("# TYPE \(family.name) \(first.source.kind)\n") }
      for series in family.series {
        if case .histogram(let histogram) = series.source {
          Self.append(histogram, family.name, series.labels, to: &output)
          continue
        }
        // A line is appended part by part, so that no string is allocated per series: a thousand sessions have some
        // forty thousand series.
        output.append(family.name)
        if !series.labels.isEmpty {
          output.append("{" as StaticString)
          output.append(series.labels)
          output.append("}" as StaticString)
        }
        output.append(UInt8(ascii: " "))
        switch series.source {
        case .counter(let counter): output.append(decimal: counter.total)
        case .gauge(let gauge): output.append(decimal: gauge.current)
        case .computedGauge(let compute), .computedCounter(let compute): Self.append(compute(), to: &output)
        case .histogram: break
        }
        output.append(UInt8(ascii: "\n"))
      }
    }
  }

  private static func append(_ histogram: Histogram, _ name: String, _ labels: String, to output: inout ByteQueue) {
    let (counts, sum) = histogram.snapshot
    for (index, count) in counts.enumerated() {
      let bound = index < Histogram.bounds.count ? "\(Histogram.bounds[index])" : "+Inf"
      output.append("\(name)_bucket{\(labels)\(labels.isEmpty ? "" : ",")le=\"\(bound)\"} \(count)\n")
    }
    let braced = labels.isEmpty ? "" : "{\(labels)}"
    output.append("\(name)_sum\(braced) \(sum)\n\(name)_count\(braced) \(counts.last ?? 0)\n")
  }

  private static func append(_ value: Double, to output: inout ByteQueue) {
    if value == value.rounded(), value.magnitude < 1e15 {
      output.append(decimal: Int(value))
    } else {
      output.append(value.isNaN ? "NaN" : value.isInfinite ? value > 0 ? "+Inf" : "-Inf" : String(value))
    }
  }
}
