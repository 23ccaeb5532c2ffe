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
}
