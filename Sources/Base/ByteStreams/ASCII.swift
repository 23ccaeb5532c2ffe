import CBytes

/// Comparisons and number parsing for bytes that a protocol defines as ASCII.
@usableFromInline
package enum ASCII {
  /// `byte` with A–Z mapped to a–z; any other byte unchanged.
  @inlinable @inline(__always)
  package static func lowercased(_ byte: UInt8) -> UInt8 {
    byte &- 0x41 < 26 ? byte | 0x20 : byte
  }

  @inlinable @inline(__always)
  package static func isDigit(_ byte: UInt8) -> Bool { byte &- 0x30 < 10 }

  /// The value of a hexadecimal digit; nil for anything else.
  @inlinable @inline(__always)
  package static func hexValue(_ byte: UInt8) -> UInt8? {
    if isDigit(byte) { return byte &- 0x30 }
    let letter = lowercased(byte) &- 0x61
    return letter < 6 ? letter &+ 10 : nil
  }

  @inlinable @inline(__always)
  package static func isHexDigit(_ byte: UInt8) -> Bool { hexValue(byte) != nil }

  /// A `tchar` of RFC 9110 §5.6.2.
  @inlinable @inline(__always)
  package static func isToken(_ byte: UInt8) -> Bool {
    // Two 64-bit sets as literals: no global, no lazy initialisation.
    let low: UInt64 = 0x03FF_6CFA_0000_0000
    let high: UInt64 = 0x57FF_FFFF_C7FF_FFFE
    return byte < 128 && ((byte < 64 ? low : high) >> UInt64(byte & 63)) & 1 != 0
  }

  /// Whether `byte` is `unreserved`: escaping it does not change the meaning of a URL (RFC 3986 §2.3).
  @inlinable @inline(__always)
  package static func isUnreserved(_ byte: UInt8) -> Bool {
    // - . 0-9
    let low: UInt64 = 0x03FF_6000_0000_0000
    // A-Z _ a-z ~
    let high: UInt64 = 0x47FF_FFFE_87FF_FFFE
    return byte < 128 && ((byte < 64 ? low : high) >> UInt64(byte & 63)) & 1 != 0
  }
}

extension Span where Element == UInt8 {
  /// Whether these bytes equal `text`, byte for byte.
  @inlinable package func equals(_ text: StaticString) -> Bool {
    guard count == text.utf8CodeUnitCount else { return false }
    return unsafe withUnsafeBytes { unsafe $0.equals(UnsafeRawPointer(text.utf8Start)) }
  }

  /// Whether these bytes equal `text`, ignoring the case of A–Z. `text` must be lower case.
  @inlinable package func equalsIgnoringCase(_ text: StaticString) -> Bool {
    guard count == text.utf8CodeUnitCount else { return false }
    for index in indices where unsafe text.utf8Start[index] != ASCII.lowercased(self[index]) { return false }
    return true
  }

  @inlinable package func equals(_ other: borrowing Span<UInt8>) -> Bool {
    guard count == other.count else { return false }
    return unsafe withUnsafeBytes { bytes in
      unsafe other.withUnsafeBytes { other in
        guard let start = other.baseAddress else { return true }
        return unsafe bytes.equals(start)
      }
    }
  }

  /// Whether these bytes equal `other`, ignoring the case of A–Z.
  @inlinable package func equalsIgnoringCase(_ other: borrowing Span<UInt8>) -> Bool {
    guard count == other.count else { return false }
    for index in indices where ASCII.lowercased(self[index]) != ASCII.lowercased(other[index]) { return false }
    return true
  }

  @inlinable package func starts(with text: StaticString) -> Bool {
    count >= text.utf8CodeUnitCount && extracting(first: text.utf8CodeUnitCount).equals(text)
  }

  @inlinable package func firstIndex(of byte: UInt8, from start: Int = 0) -> Int? {
    var index = start
    if count &- start >= 16 {
      let found = unsafe withUnsafeBufferPointer { bytes in
        unsafe cbytes_find(bytes.baseAddress.unsafelyUnwrapped + start, count &- start, byte)
      }
      return found < count &- start ? start &+ found : nil
    }
    while index < count {
      if self[index] == byte { return index }
      index &+= 1
    }
    return nil
  }

  /// Whether every byte is below 0x80.
  @inlinable package var isASCII: Bool {
    unsafe withUnsafeBytes { bytes in
      var index = 0
      var seen: UInt64 = 0
      while index &+ 8 <= bytes.count {
        seen |= unsafe bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self)
        index &+= 8
      }
      while index < bytes.count {
        seen |= unsafe UInt64(bytes[index])
        index &+= 1
      }
      return seen & 0x8080_8080_8080_8080 == 0
    }
  }

  /// These bytes without leading and trailing spaces and tabs (`OWS`, RFC 9110 §5.6.3).
  @_lifetime(copy self)
  @inlinable package func trimmingWhitespace() -> Span<UInt8> {
    var start = 0
    var end = count
    while start < end, self[start] == 0x20 || self[start] == 0x09 { start &+= 1 }
    while end > start, self[end &- 1] == 0x20 || self[end &- 1] == 0x09 { end &-= 1 }
    return extracting(start..<end)
  }

  /// The value of these decimal digits. Returns nil for empty input, other bytes, more than 19 digits, or a value above
  /// `Int.max`.
  @inlinable package func decimalValue() -> Int? {
    guard !isEmpty, count <= 19 else { return nil }
    var value = 0
    for index in indices {
      guard ASCII.isDigit(self[index]) else { return nil }
      let (product, overflow) = value.multipliedReportingOverflow(by: 10)
      let (sum, carry) = product.addingReportingOverflow(Int(self[index] &- 0x30))
      guard !overflow, !carry else { return nil }
      value = sum
    }
    return value
  }

  /// The value of these lower-case hexadecimal digits. Returns nil for empty input, other bytes, or more than 16
  /// digits.
  package func hexadecimalValue() -> UInt64? {
    guard !isEmpty, count <= 16 else { return nil }
    var value: UInt64 = 0
    for index in indices {
      let byte = self[index]
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"): value = value << 4 | UInt64(byte &- 0x30)
      case UInt8(ascii: "a")...UInt8(ascii: "f"): value = value << 4 | UInt64(byte &- 0x57)
      default: return nil
      }
    }
    return value
  }

  /// 64-bit FNV-1a. The result is the same in every process. The hash uses no key, so an attacker who chooses the bytes
  /// can choose their hash.
  @inlinable package func fnv1aHash() -> UInt64 {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325
    for index in indices { hash = (hash ^ UInt64(self[index])) &* 0x100_0000_01b3 }
    return hash
  }

  /// Like `text()`, but truncated to 64 bytes. For quoting part of a request in an error or a log line.
  package func excerpt() -> String { count <= 64 ? text() : extracting(first: 64).text() + "…" }

  /// A `String` of these bytes, with invalid UTF-8 replaced by U+FFFD. For text that people read.
  package func text() -> String {
    unsafe withUnsafeBytes { unsafe String(decoding: $0, as: UTF8.self) }
  }
}

extension UnsafeRawBufferPointer {
  /// Whether these bytes equal the bytes at `other`. Compares eight bytes at a time.
  @inlinable func equals(_ other: UnsafeRawPointer) -> Bool {
    var index = 0
    while index &+ 8 <= count {
      let word = unsafe loadUnaligned(fromByteOffset: index, as: UInt64.self)
      if unsafe word != other.loadUnaligned(fromByteOffset: index, as: UInt64.self) { return false }
      index &+= 8
    }
    while index < count {
      if unsafe self[index] != other.load(fromByteOffset: index, as: UInt8.self) { return false }
      index &+= 1
    }
    return true
  }
}
