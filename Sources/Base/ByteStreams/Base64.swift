/// Base64 with the standard alphabet and padding (RFC 4648 §4).
package enum Base64 {
  private static let alphabet: StaticString = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

  /// Length in characters of the encoding of `count` bytes, padding included.
  package static func encodedCount(_ count: Int) -> Int { (count + 2) / 3 * 4 }

  package static func encode(_ bytes: Span<UInt8>, into output: inout ByteQueue) {
    guard !bytes.isEmpty else { return }
    let size = encodedCount(bytes.count)
    _ = unsafe output.withWritableBytes(minimum: size) { room in
      let letters = unsafe alphabet.utf8Start
      var write = 0
      var read = 0
      while read < bytes.count {
        let rest = bytes.count &- read
        let first = UInt32(bytes[read]) << 16
        let second = rest > 1 ? UInt32(bytes[read &+ 1]) << 8 : 0
        let third = rest > 2 ? UInt32(bytes[read &+ 2]) : 0
        let group = first | second | third
        unsafe room[write] = letters[Int(group >> 18)]
        unsafe room[write &+ 1] = letters[Int(group >> 12 & 63)]
        unsafe room[write &+ 2] = rest > 1 ? letters[Int(group >> 6 & 63)] : UInt8(ascii: "=")
        unsafe room[write &+ 3] = rest > 2 ? letters[Int(group & 63)] : UInt8(ascii: "=")
        write &+= 4
        read &+= 3
      }
      return size
    }
  }

  /// Whether `text` is the canonical encoding of `count` bytes: padded, and with the unused bits of the last digit
  /// zero.
  package static func isEncoding(_ text: Span<UInt8>, ofBytes count: Int) -> Bool {
    guard text.count == encodedCount(count) else { return false }
    let padding = (3 - count % 3) % 3
    let digits = text.count - padding
    var last: UInt8 = 0
    for index in text.indices {
      if index < digits {
        guard let value = value(text[index]) else { return false }
        last = value
      } else if text[index] != UInt8(ascii: "=") {
        return false
      }
    }
    return last & ((1 << (2 * padding)) - 1) == 0
  }

  /// Number of bytes that `text` encodes.
  package static func decodedCount(_ text: Span<UInt8>) -> Int { text.count / 4 * 3 - padding(of: text) }

  /// Number of characters of padding, at most two.
  private static func padding(of text: Span<UInt8>) -> Int {
    var padding = 0
    while padding < min(2, text.count), text[text.count - 1 - padding] == UInt8(ascii: "=") { padding += 1 }
    return padding
  }

  /// Appends the bytes that `text` encodes. `text` must be an encoding by `encode`.
  package static func decode(_ text: Span<UInt8>, into output: inout ByteQueue) {
    let digits = text.extracting(first: text.count - padding(of: text))
    output.reserve(digits.count / 4 * 3 + 2)
    _ = decode(digits, .standard) { output.append($0) }
  }

  /// Returns the bytes that `text` encodes. Returns nil unless `text` is a canonical encoding: padded, and with the
  /// unused bits of the last digit zero.
  package static func decode(_ text: Span<UInt8>) -> [UInt8]? {
    guard text.count % 4 == 0 else { return nil }
    let digits = text.extracting(first: text.count - padding(of: text))
    var output: [UInt8] = []
    output.reserveCapacity(text.count / 4 * 3)
    return decode(digits, .standard) { output.append($0) } ? output : nil
  }

  /// Returns the bytes that `text` encodes with the URL-safe alphabet, without padding (RFC 7515 §2). Returns nil
  /// unless `text` is the canonical encoding: no padding, no other characters, and the unused bits of the last digit
  /// zero. So a token has exactly one accepted text.
  package static func decodeURL(_ text: Span<UInt8>) -> [UInt8]? {
    guard text.count % 4 != 1 else { return nil }
    var output: [UInt8] = []
    output.reserveCapacity(text.count / 4 * 3 + 2)
    return decode(text, .url) { output.append($0) } ? output : nil
  }

  private enum Alphabet { case standard, url }

  /// Passes the decoded bytes to `append`, up to the first character that is not in the alphabet. Returns whether all
  /// characters are in the alphabet and the unused bits of the last character are zero.
  @inline(__always)
  private static func decode(_ digits: Span<UInt8>, _ alphabet: Alphabet, _ append: (UInt8) -> Void) -> Bool {
    var group: UInt32 = 0
    var bits: UInt32 = 0
    for index in digits.indices {
      guard let value = value(digits[index], alphabet) else { return false }
      group = group << 6 | UInt32(value)
      bits &+= 6
      guard bits >= 8 else { continue }
      bits &-= 8
      append(UInt8(truncatingIfNeeded: group >> bits))
    }
    return group & ((1 << bits) - 1) == 0
  }

  @inline(__always)
  private static func value(_ digit: UInt8, _ alphabet: Alphabet = .standard) -> UInt8? {
    switch digit {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"): digit &- 0x41
    case UInt8(ascii: "a")...UInt8(ascii: "z"): digit &- 0x61 &+ 26
    case UInt8(ascii: "0")...UInt8(ascii: "9"): digit &- 0x30 &+ 52
    case UInt8(ascii: "+") where alphabet == .standard: 62
    case UInt8(ascii: "/") where alphabet == .standard: 63
    case UInt8(ascii: "-") where alphabet == .url: 62
    case UInt8(ascii: "_") where alphabet == .url: 63
    default: nil
    }
  }

  package static func encode(_ bytes: Span<UInt8>) -> String {
    var output = ByteQueue()
    encode(bytes, into: &output)
    return output.bytes.text()
  }
}
