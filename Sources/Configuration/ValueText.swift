import ByteStreams

/// Durations and sizes as people write them.
package enum ValueText {
  private static let units: [(name: String, span: TimeSpan)] = [
    ("ms", .milliseconds(1)), ("s", .seconds(1)), ("m", .minutes(1)), ("h", .hours(1)), ("d", .hours(24)),
  ]

  /// `500ms`, `20s`, `10m`, `1h`, `2d`; a bare number is seconds.
  package static func parseDuration(_ text: String) -> TimeSpan? {
    let digits = text.prefix { $0.isASCII && $0.isNumber }
    guard let count = Int64(digits), count <= 1_000_000_000 else { return nil }
    let unit = text.dropFirst(digits.count)
    if unit.isEmpty { return .seconds(count) }
    return units.first { $0.name == unit }.map { $0.span * count }
  }

  package static func duration(_ span: TimeSpan) -> String {
    let milliseconds = span.nanoseconds / 1_000_000
    if milliseconds == 0 { return "0s" }
    for unit in units.reversed() {
      let size = unit.span.nanoseconds / 1_000_000
      if milliseconds % size == 0 { return "\(milliseconds / size)\(unit.name)" }
    }
    return "\(milliseconds)ms"
  }

  /// `64KiB`, `16MiB`, `1GiB`, or plain bytes.
  package static func parseSize(_ text: String) -> Int? {
    let digits = text.prefix { $0.isASCII && $0.isNumber }
    guard let count = Int(digits), count <= 1 << 40 else { return nil }
    switch text.dropFirst(digits.count) {
    case "", "B": return count
    case "KiB": return count << 10
    case "MiB": return count << 20
    case "GiB": return count <= 1 << 20 ? count << 30 : nil
    default: return nil
    }
  }

  package static func size(_ bytes: Int) -> String {
    for (name, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] where bytes > 0 && bytes & ((1 << shift) - 1) == 0 {
      return "\(bytes >> shift)\(name)"
    }
    return String(bytes)
  }
}
