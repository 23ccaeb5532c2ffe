import ByteStreams

extension Span where Element == UInt8 {
  /// A whole number of seconds (`delta-seconds`, RFC 9111 §1.2.2): digits only; what is above 2³¹ becomes 2³¹, as
  /// the RFC wants. nil for anything else.
  package func deltaSeconds() -> Int? {
    guard !isEmpty, isAllDigits() else { return nil }
    guard let value = withoutLeadingZeros().decimalValue() else { return 1 << 31 }
    return Swift.min(value, 1 << 31)
  }

  /// The digits that count: at least one.
  @_lifetime(copy self)
  func withoutLeadingZeros() -> Span<UInt8> {
    var start = 0
    while start &+ 1 < count, self[start] == UInt8(ascii: "0") { start &+= 1 }
    return extracting(start..<count)
  }

  /// A length of time as people write it: `25s`, `500ms`, `10m`, `2h`, or whole seconds without a unit. nil for anything
  /// else: no signs, no fractions, no white space, and nothing above 2³¹ seconds.
  package func humanTimeSpan() -> TimeSpan? {
    var digits = 0
    while digits < count, ASCII.isDigit(self[digits]) { digits &+= 1 }
    guard let value = extracting(first: digits).decimalValue(), value <= 1 << 31 else { return nil }
    let unit = extracting(digits..<count)
    let milliseconds: Int
    if unit.isEmpty || unit.equals("s") {
      milliseconds = 1000
    } else if unit.equals("ms") {
      milliseconds = 1
    } else if unit.equals("m") {
      milliseconds = 60_000
    } else if unit.equals("h") {
      milliseconds = 3_600_000
    } else {
      return nil
    }
    let total = value * milliseconds
    return total <= 1000 << 31 ? .milliseconds(Int64(total)) : nil
  }
}
