/// Durations as text, for requests and the configuration: `500ms`, `25s`, `10m`, `1h30m`, `2d`.
extension TimeSpan {
  /// The longest duration that can be parsed: 2³¹ seconds, the maximum of `delta-seconds` (RFC 9111 §1.2.2), about 68
  /// years.
  package static var longestParsable: TimeSpan { .seconds(1 << 31) }

  /// Parses whole numbers with the units d, h, m, s and ms, in descending order and each at most once, or a single
  /// number of seconds without a unit. Returns nil for anything else: signs, fractions, whitespace, or more than
  /// `longestParsable`.
  package init?(_ text: Span<UInt8>) {
    var total = TimeSpan.zero
    var lastUnit = TimeSpan(nanoseconds: .max)
    var end = 0
    repeat {
      let start = end
      while end < text.count, ASCII.isDigit(text[end]) { end &+= 1 }
      guard let count = text.extracting(start..<end).decimalValue() else { return nil }
      let unitStart = end
      while end < text.count, !ASCII.isDigit(text[end]) { end &+= 1 }
      let isWhole = start == 0 && unitStart == text.count
      guard let unit = isWhole ? .seconds(1) : Self.unit(text.extracting(unitStart..<end)), unit < lastUnit else {
        return nil
      }
      lastUnit = unit
      // Product and sum saturate instead of wrapping.
      total = total + unit * Int64(count)
    } while end < text.count
    guard total <= .longestParsable else { return nil }
    self = total
  }

  package init?(_ text: String) { self.init(Array(text.utf8).span) }

  private static func unit(_ name: Span<UInt8>) -> TimeSpan? {
    if name.equals("s") { return .seconds(1) }
    if name.equals("ms") { return .milliseconds(1) }
    if name.equals("m") { return .minutes(1) }
    if name.equals("h") { return .hours(1) }
    return name.equals("d") ? .hours(24) : nil
  }

  /// Formatted in the largest unit that divides the duration, down to milliseconds: `90m`, not `1h30m`.
  package var text: String {
    let milliseconds = nanoseconds / 1_000_000
    if milliseconds == 0 { return "0s" }
    for (name, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)] as [(String, Int64)]
    where milliseconds % size == 0 {
      return "\(milliseconds / size)\(name)"
    }
    return "\(milliseconds)ms"
  }

  /// The number of seconds, rounded to three significant digits, but never coarser than seconds or finer than
  /// microseconds: `0.000213`, `1.25`, `12.5`, `600`.
  package var secondsText: String {
    var microseconds = (nanoseconds.magnitude + 500) / 1_000
    var unit: UInt64 = 1
    while unit < 1_000_000, microseconds / unit >= 1_000 { unit *= 10 }
    microseconds = (microseconds + unit / 2) / unit * unit
    let sign = nanoseconds < 0 && microseconds > 0 ? "-" : ""
    let (whole, rest) = microseconds.quotientAndRemainder(dividingBy: 1_000_000)
    var fraction = rest
    guard fraction > 0 else { return "\(sign)\(whole)" }
    var digits = 6
    while fraction % 10 == 0 { (fraction, digits) = (fraction / 10, digits - 1) }
    let text = String(fraction)
    return "\(sign)\(whole).\(String(repeating: "0", count: digits - text.count))\(text)"
  }
}
