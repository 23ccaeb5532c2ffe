/// Strict percent-decoding (RFC 3986 §2.1). `%` must be followed by two hexadecimal digits. `%00` is rejected, since no
/// name or value may contain NUL.
package enum PercentDecoder {
  /// Decodes `encoded` and appends the result to `output`. Returns false if an escape is invalid, after the bytes
  /// before it have been appended.
  ///
  /// - Parameter plusIsSpace: decode `+` as a space, as in forms and queries (WHATWG URL,
  ///   `application/x-www-form-urlencoded`).
  package static func decode(_ encoded: Span<UInt8>, plusIsSpace: Bool, into output: inout ByteQueue) -> Bool {
    output.reserve(encoded.count)
    var index = 0
    while index < encoded.count {
      let byte = encoded[index]
      if byte == UInt8(ascii: "%") {
        guard index &+ 2 < encoded.count, let high = ASCII.hexValue(encoded[index &+ 1]),
          let low = ASCII.hexValue(encoded[index &+ 2]), high | low != 0
        else { return false }
        output.append(high << 4 | low)
        index &+= 3
      } else {
        output.append(plusIsSpace && byte == UInt8(ascii: "+") ? 0x20 : byte)
        index &+= 1
      }
    }
    return true
  }

  /// Decodes `encoded`. Returns nil if an escape is invalid. Invalid UTF-8 in the result is replaced by U+FFFD.
  package static func decoded(_ encoded: Substring) -> String? {
    var output = ByteQueue()
    guard decode(Array(encoded.utf8).span, plusIsSpace: false, into: &output) else { return nil }
    return output.bytes.text()
  }

  /// Appends `path` to `output` with the escapes of unreserved characters decoded, which does not change its meaning
  /// (RFC 3986 §6.2.2.2). Other escapes are kept: a decoded `%2F` would become a separator.
  package static func decodeUnreserved(_ path: Span<UInt8>, into output: inout ByteQueue) {
    output.reserve(path.count)
    var index = 0
    while index < path.count {
      if path[index] == UInt8(ascii: "%"), index &+ 2 < path.count, let high = ASCII.hexValue(path[index &+ 1]),
        let low = ASCII.hexValue(path[index &+ 2]), ASCII.isUnreserved(high << 4 | low)
      {
        output.append(high << 4 | low)
        index &+= 3
      } else {
        output.append(path[index])
        index &+= 1
      }
    }
  }

  /// Whether decoding would change `bytes`.
  package static func isNeeded(for bytes: Span<UInt8>, plusIsSpace: Bool) -> Bool {
    bytes.firstIndex(of: UInt8(ascii: "%")) != nil || plusIsSpace && bytes.firstIndex(of: UInt8(ascii: "+")) != nil
  }
}
