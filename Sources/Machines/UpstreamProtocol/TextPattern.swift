import ByteStreams

/// A text that is searched for in messages. The search is linear in the size of the message (Knuth, Morris, Pratt), so
/// that no message of an upstream can make it slow.
package struct TextPattern: Hashable, Sendable {
  package let text: String
  private let bytes: [UInt8]
  /// For each number of bytes that match so far: the length of the longest proper suffix of these bytes that is also a
  /// prefix of the text.
  private let fallbacks: [Int]

  package init(_ text: String) {
    self.text = text
    bytes = Array(text.utf8)
    var fallbacks = [0]
    for index in bytes.indices.dropFirst() {
      var length = fallbacks[index - 1]
      while length > 0, bytes[length] != bytes[index] { length = fallbacks[length - 1] }
      fallbacks.append(bytes[length] == bytes[index] ? length + 1 : 0)
    }
    self.fallbacks = fallbacks
  }

  /// Length of the text, in bytes.
  var count: Int { bytes.count }

  package func isContained(in payload: Span<UInt8>) -> Bool { end(in: payload) != nil }

  /// The end of the text at the beginning of `payload`; nil if `payload` does not begin with it.
  func end(atStartOf payload: Span<UInt8>) -> Int? {
    guard payload.count >= bytes.count, payload.extracting(first: bytes.count).equals(bytes.span) else { return nil }
    return bytes.count
  }

  /// The end of the first occurrence of the text; nil if there is none.
  func end(in payload: Span<UInt8>) -> Int? {
    if bytes.isEmpty { return 0 }
    guard payload.count >= bytes.count else { return nil }
    let (bytes, fallbacks) = (bytes.span, fallbacks.span)
    var length = 0
    for index in payload.indices {
      let byte = payload[index]
      while length > 0, bytes[length] != byte { length = fallbacks[length - 1] }
      if bytes[length] == byte { length += 1 }
      if length == bytes.count { return index + 1 }
    }
    return nil
  }
}
