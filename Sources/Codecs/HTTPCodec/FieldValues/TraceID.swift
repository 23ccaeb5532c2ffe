import ByteStreams

/// The trace that a request belongs to: the `trace-id` of its `traceparent` (W3C Trace Context). Never zero.
package struct TraceID: Equatable, Sendable {
  private let high: UInt64
  private let low: UInt64

  /// Reads the value of a `traceparent`: `00-<32 digits>-<16 digits>-<2 digits>`. Returns nil for any other value, and
  /// for ids that consist of zeros.
  ///
  /// A later version may append fields. The standard requires that the known fields are read even then.
  package init?(traceparent value: Span<UInt8>) {
    guard value.count >= 55, value[2] == UInt8(ascii: "-"), value[35] == UInt8(ascii: "-"),
      value[52] == UInt8(ascii: "-"), let version = Self.number(value.extracting(0..<2)), version != 0xFF,
      value.count == 55 || version > 0 && value[55] == UInt8(ascii: "-"),
      let high = Self.number(value.extracting(3..<19)), let low = Self.number(value.extracting(19..<35)),
      let parent = Self.number(value.extracting(36..<52)), Self.number(value.extracting(53..<55)) != nil,
      high | low != 0, parent != 0
    else { return nil }
    self.high = high
    self.low = low
  }

  /// Only lower case is valid.
  private static func number(_ digits: Span<UInt8>) -> UInt64? {
    var value: UInt64 = 0
    for index in digits.indices {
      let digit: UInt8
      switch digits[index] {
      case UInt8(ascii: "0")...UInt8(ascii: "9"): digit = digits[index] - UInt8(ascii: "0")
      case UInt8(ascii: "a")...UInt8(ascii: "f"): digit = digits[index] - UInt8(ascii: "a") + 10
      default: return nil
      }
      value = value << 4 | UInt64(digit)
    }
    return value
  }

  package var value: (high: UInt64, low: UInt64) { (high, low) }

  /// 32 hexadecimal digits.
  package var text: String {
    var output = ByteQueue()
    output.append(hexadecimal: high, digits: 16)
    output.append(hexadecimal: low, digits: 16)
    return output.bytes.text()
  }
}

extension HTTPRequestHead {
  /// The trace that the request belongs to; nil if the request has no valid `traceparent`. A repeated field is not
  /// valid.
  package var traceID: TraceID? {
    guard fields.contains(.traceparent), !fields.isRepeated(.traceparent), let value = fields.first(.traceparent) else {
      return nil
    }
    return TraceID(traceparent: value)
  }
}
