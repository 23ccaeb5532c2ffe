import ByteStreams

/// The reply to a call: a message of the upstream in which the client's id replaces the gateway's id. It has three
/// pieces, so that a large message is not copied.
package struct CallReply: Sendable {
  private let message: ByteString
  /// The range of the gateway's id.
  private let range: Range<Int>
  private let token: ByteString

  init(_ message: ByteString, _ range: Range<Int>, token: ByteString) {
    self.message = message
    self.range = range
    self.token = token
  }

  package var pieces: [ByteSlice] {
    [
      ByteSlice(message, range: 0..<range.lowerBound), ByteSlice(token),
      ByteSlice(message, range: range.upperBound..<message.count),
    ]
  }

  var count: Int { message.count }
}
