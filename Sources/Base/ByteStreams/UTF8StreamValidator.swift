/// Judges UTF-8 that comes in pieces, and fails at the first byte that no continuation can make right (RFC 3629): so a
/// WebSocket text message is refused while it still arrives.
package struct UTF8StreamValidator: Sendable {
  /// Continuation bytes that the sequence at hand still needs, and what the next of them may be.
  private var needed: UInt8 = 0
  private var lowest: UInt8 = 0x80
  private var highest: UInt8 = 0xBF

  package init() {}

  /// Whether everything so far is whole characters.
  package var isComplete: Bool { needed == 0 }

  /// Whether all so far is UTF-8 or the beginning of some.
  package mutating func append(_ bytes: Span<UInt8>) -> Bool {
    var start = 0
    while needed > 0, start < bytes.count {
      guard step(bytes[start]) else { return false }
      start &+= 1
    }
    // A sequence that the end of this piece cuts is judged byte by byte, the rest at full speed.
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

  /// Whether `bytes` are UTF-8, whole.
  package static func isValid(_ bytes: Span<UInt8>) -> Bool {
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
