import CBytes

/// Validates UTF-8 that arrives in pieces (RFC 3629). It fails as soon as no continuation can make the text valid, so a
/// WebSocket text message is rejected before all of it has arrived.
package struct UTF8StreamValidator: Sendable {
  /// The number of continuation bytes that the current sequence still needs, and the range that the next of these bytes
  /// must be in.
  private var needed: UInt8 = 0
  private var lowest: UInt8 = 0x80
  private var highest: UInt8 = 0xBF

  package init() {}

  /// Whether the input so far ends at a character boundary.
  package var isComplete: Bool { needed == 0 }

  /// Validates the next piece. Returns whether the input so far is UTF-8 or a prefix of it.
  package mutating func append(_ bytes: Span<UInt8>) -> Bool {
    var start = 0
    while needed > 0, start < bytes.count {
      guard step(bytes[start]) else { return false }
      start &+= 1
    }
    // Of the rest, only a sequence that does not end in this piece is validated byte by byte. All other bytes are
    // validated at full speed.
    var end = bytes.count
    var back = 0
    while back < 3, end &- back > start {
      let byte = bytes[end &- back &- 1]
      back &+= 1
      guard byte >= 0x80 else { break }
      if byte >= 0xC0 {
        let length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2
        if length > back { end &-= back }
        break
      }
    }
    if end > start {
      guard Self.isValid(bytes.extracting(start..<end)) else { return false }
    }
    for index in max(start, end)..<bytes.count {
      guard step(bytes[index]) else { return false }
    }
    return true
  }

  /// Whether `bytes` are complete, valid UTF-8.
  package static func isValid(_ bytes: Span<UInt8>) -> Bool {
    let result = unsafe bytes.withUnsafeBufferPointer { bytes in
      bytes.isEmpty ? 1 : unsafe cbytes_is_utf8(bytes.baseAddress, bytes.count)
    }
    return result < 0 ? isValidByStandardLibrary(bytes) : result == 1
  }

  /// This function is used on processors without the instructions that the fast function needs, and as the reference in
  /// tests.
  package static func isValidByStandardLibrary(_ bytes: Span<UInt8>) -> Bool {
    do {
      _ = try UTF8Span(validating: bytes)
      return true
    } catch {
      return false
    }
  }

  private mutating func step(_ byte: UInt8) -> Bool {
    if needed > 0 {
      guard byte >= lowest, byte <= highest else { return false }
      needed &-= 1
      lowest = 0x80
      highest = 0xBF
      return true
    }
    switch byte {
    case 0x00...0x7F: return true
    case 0xC2...0xDF: needed = 1
    case 0xE0...0xEF:
      needed = 2
      if byte == 0xE0 { lowest = 0xA0 }
      if byte == 0xED { highest = 0x9F }
    case 0xF0...0xF4:
      needed = 3
      if byte == 0xF0 { lowest = 0x90 }
      if byte == 0xF4 { highest = 0x8F }
    default: return false
    }
    return true
  }
}
