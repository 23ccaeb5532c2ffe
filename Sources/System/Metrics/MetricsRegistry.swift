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

    var kind: String {
      switch self {
      case .counter, .computedCounter: "counter"
      case .gauge, .computedGauge: "gauge"
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

  package init() {}

  /// Registers a counter. Metrics of one name with different labels are one family. Registering the same name and
  /// labels twice stops the program.
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

  /// A gauge computed on every `render`, on the thread that calls it.
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

  private func add(_ name: String, _ help: String, _ labels: Labels, _ source: Source) {
    let written = labels.map { "\($0.name)=\"\(Self.escaped($0.value, quotes: true))\"" }.joined(separator: ",")
    families.withLock { families in
      let series = Series(labels: written, source: source)
      if let index = families.firstIndex(where: { $0.name == name }) {
        precondition(!families[index].series.contains { $0.labels == written }, "metric \(name) was registered twice")
        families[index].series.append(series)
      } else {
        families.append(Family(name: name, help: help, series: [series]))
      }
    }
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
    for family in families.withLock({ $0 }) {
      output.append("# HELP \(family.name) \(Self.escaped(family.help, quotes: false))\n")
      if let first = family.series.first { output.append("# TYPE \(family.name) \(first.source.kind)\n") }
      for series in family.series {
        let labels = series.labels.isEmpty ? "" : "{\(series.labels)}"
        switch series.source {
        case .counter(let counter): output.append("\(family.name)\(labels) \(counter.total)\n")
        case .gauge(let gauge): output.append("\(family.name)\(labels) \(gauge.current)\n")
        case .computedGauge(let compute), .computedCounter(let compute):
          output.append("\(family.name)\(labels) \(Self.number(compute()))\n")
        }
      }
    }
  }

  private static func number(_ value: Double) -> String {
    if value.isNaN { return "NaN" }
    if value.isInfinite { return value > 0 ? "+Inf" : "-Inf" }
    return value == value.rounded() && value.magnitude < 1e15 ? String(Int64(value)) : String(value)
  }
}
