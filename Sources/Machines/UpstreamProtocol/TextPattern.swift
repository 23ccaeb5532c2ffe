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

  package func isContained(in payload: Span<UInt8>) -> Bool {
    if bytes.isEmpty { return true }
    guard payload.count >= bytes.count else { return false }
    let (bytes, fallbacks) = (bytes.span, fallbacks.span)
    var length = 0
    for index in payload.indices {
      let byte = payload[index]
      while length > 0, bytes[length] != byte { length = fallbacks[length - 1] }
      if bytes[length] == byte { length += 1 }
      if length == bytes.count { return true }
    }
    return false
  }
}
