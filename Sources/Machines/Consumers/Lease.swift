import ByteStreams

/// The right of one worker to handle one push, until the lease expires. The text form is `l-number.attempt.bits`, which
/// clients treat as opaque.
package struct Lease: Hashable, Sendable {
  /// The number of the push.
  package let number: UInt64
  /// The number of this delivery, counted from 1.
  package let attempt: UInt32
  /// 64 random bits: a lease cannot be guessed, and a lease of a removed consumer is not valid for a later consumer
  /// with the same name.
  package let bits: UInt64

  package init(number: UInt64, attempt: UInt32, bits: UInt64) {
    self.number = number
    self.attempt = attempt
    self.bits = bits
  }

  private static let prefix: StaticString = "l-"
  private static let digits = 16
  /// Maximum bytes of a lease: the prefix, 19 digits, a dot, 10 digits, a dot, and the random bits.
  package static let maximumTextLength = 2 + 19 + 1 + 10 + 1 + digits

  package func write(into output: inout ByteQueue) {
    output.append(Self.prefix)
    output.append(decimal: number)
    output.append(UInt8(ascii: "."))
    output.append(decimal: Int(attempt))
    output.append(UInt8(ascii: "."))
    output.append(hexadecimal: bits, digits: Self.digits)
  }

  package init?(_ text: Span<UInt8>) {
    let start = Self.prefix.utf8CodeUnitCount
    guard text.count <= Self.maximumTextLength, text.starts(with: Self.prefix),
      let firstDot = text.firstIndex(of: UInt8(ascii: "."), from: start),
      let secondDot = text.firstIndex(of: UInt8(ascii: "."), from: firstDot + 1),
      text.count == secondDot + 1 + Self.digits,
      let number = text.extracting(start..<firstDot).decimalValue(), number > 0,
      let count = text.extracting(firstDot + 1..<secondDot).decimalValue(), count > 0,
      let attempt = UInt32(exactly: count)
    else { return nil }
    var bits: UInt64 = 0
    for index in secondDot + 1..<text.count {
      let byte = text[index]
      // Only lower case, as it is written, so that each lease has exactly one text.
      guard let digit = ASCII.hexValue(byte), ASCII.lowercased(byte) == byte else { return nil }
      bits = bits << 4 | UInt64(digit)
    }
    self.init(number: UInt64(number), attempt: attempt, bits: bits)
  }
}
