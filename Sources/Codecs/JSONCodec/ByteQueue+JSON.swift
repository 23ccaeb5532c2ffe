import ByteStreams

extension ByteQueue {
  /// Appends `text`, which must be UTF-8, as a quoted JSON string. The bytes between two escapes are copied as a block.
  package mutating func append(jsonString text: Span<UInt8>) {
    append(UInt8(ascii: "\""))
    append(jsonEscaped: text)
    append(UInt8(ascii: "\""))
  }

  package mutating func append(jsonString text: String) { append(jsonString: Array(text.utf8).span) }

  /// Like `append(jsonString:)`, but without the quotes. Returns whether no byte had to be escaped.
  @discardableResult
  package mutating func append(jsonEscaped text: Span<UInt8>) -> Bool {
    let before = count
    var start = 0
    while true {
      let special = text.firstJSONSpecial(from: start)
      append(text.extracting(start..<special))
      guard special < text.count else { return count &- before == text.count }
      // Up to `escapedAtOnce` bytes are escaped at a time, since special bytes are often close together: JSON inside a
      // string has a quote every few bytes.
      let end = min(special &+ Self.escapedAtOnce, text.count)
      _ = unsafe withWritableBytes(minimum: (end &- special) &* 6 &+ 8) { room in
        unsafe text.extracting(special..<end).writeJSONEscaped(to: room)
      }
      start = end
    }
  }

  /// Number of bytes escaped at a time. The buffer for them has six times as many bytes plus eight.
  private static var escapedAtOnce: Int { 256 }
}

extension Span where Element == UInt8 {
  /// Escapes these bytes into `room`, which must have six times as many bytes plus eight. Returns the number of bytes
  /// written.
  fileprivate func writeJSONEscaped(to room: UnsafeMutableRawBufferPointer) -> Int {
    unsafe withUnsafeBytes { source in
      var read = 0
      var written = 0
      while read < source.count {
        if read &+ 8 <= source.count {
          // The whole word is written. After that, the bytes from its first special byte on are overwritten.
          let word = unsafe source.loadUnaligned(fromByteOffset: read, as: UInt64.self)
          unsafe room.storeBytes(of: word, toByteOffset: written, as: UInt64.self)
          let plain = JSONSpecials.plainBytes(before: UInt64(littleEndian: word))
          read &+= plain
          written &+= plain
          if plain == 8 { continue }
        }
        let byte = unsafe source[read]
        read &+= 1
        guard JSONSpecials.isSpecial(byte) else {
          unsafe room[written] = byte
          written &+= 1
          continue
        }
        unsafe room[written] = 0x5C
        switch byte {
        case 0x22, 0x5C: unsafe room[written &+ 1] = byte
        case 0x0A: unsafe room[written &+ 1] = UInt8(ascii: "n")
        case 0x0D: unsafe room[written &+ 1] = UInt8(ascii: "r")
        case 0x09: unsafe room[written &+ 1] = UInt8(ascii: "t")
        default:
          unsafe room[written &+ 1] = UInt8(ascii: "u")
          unsafe room[written &+ 2] = 0x30
          unsafe room[written &+ 3] = 0x30
          unsafe room[written &+ 4] = byte >> 4 &+ 0x30
          unsafe room[written &+ 5] = byte & 15 < 10 ? byte & 15 &+ 0x30 : byte & 15 &+ 0x57
          written &+= 4
        }
        written &+= 2
      }
      return written
    }
  }

  /// The index of the next byte that must be escaped in a JSON string, or `count` if there is none.
  func firstJSONSpecial(from start: Int) -> Int {
    unsafe withUnsafeBytes { bytes in
      var index = start
      while index &+ 8 <= bytes.count {
        let word = unsafe UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self))
        let plain = JSONSpecials.plainBytes(before: word)
        index &+= plain
        if plain < 8 { return index }
      }
      while index < bytes.count {
        if JSONSpecials.isSpecial(unsafe bytes[index]) { return index }
        index &+= 1
      }
      return index
    }
  }
}

/// The bytes that must be escaped in a JSON string (RFC 8259 §7): `"`, `\`, and bytes below 0x20.
private enum JSONSpecials {
  @inline(__always)
  static func isSpecial(_ byte: UInt8) -> Bool { byte < 0x20 || byte == 0x22 || byte == 0x5C }

  /// The number of bytes of `word`, from the lowest, before the first special byte; 8 if there is none.
  @inline(__always)
  static func plainBytes(before word: UInt64) -> Int {
    let ones: UInt64 = 0x0101_0101_0101_0101
    let quote = word ^ (ones &* 0x22)
    let backslash = word ^ (ones &* 0x5C)
    let control = (word &- ones &* 0x20) & ~word
    // A borrow in the subtraction may also flag the byte above a special byte, but the lowest flag is always correct.
    let flags = (((quote &- ones) & ~quote) | ((backslash &- ones) & ~backslash) | control) & (ones &* 0x80)
    return flags.trailingZeroBitCount >> 3
  }
}
