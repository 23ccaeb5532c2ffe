import ByteStreams

extension Span where Element == UInt8 {
  /// A number of seconds (`delta-seconds`, RFC 9111 §1.2.2). Values above 2³¹ become 2³¹, as the RFC requires. Returns
  /// nil unless all bytes are digits.
  package func deltaSeconds() -> Int? {
    guard !isEmpty, isAllDigits() else { return nil }
    guard let value = withoutLeadingZeros().decimalValue() else { return 1 << 31 }
    return Swift.min(value, 1 << 31)
  }

  /// These bytes without leading zeros, but at least the last byte.
  @_lifetime(copy self)
  func withoutLeadingZeros() -> Span<UInt8> {
    var start = 0
    while start &+ 1 < count, self[start] == UInt8(ascii: "0") { start &+= 1 }
    return extracting(start..<count)
  }
}
