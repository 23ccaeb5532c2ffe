import ByteStreams

/// The reply to a call: a message of the upstream in which the client's id replaces the gateway's id. It has three
/// pieces, so that a large message is not copied.
package struct CallReply: Sendable {
  private let message: SharedBytes
  /// The range of the gateway's id.
  private let range: Range<Int>
  private let token: SharedBytes

  init(_ message: SharedBytes, _ range: Range<Int>, token: SharedBytes) {
    self.message = message
    self.range = range
    self.token = token
  }

  package var pieces: [SharedSlice] {
    [
      SharedSlice(message, range: 0..<range.lowerBound), SharedSlice(token),
      SharedSlice(message, range: range.upperBound..<message.count),
    ]
  }

  var count: Int { message.count }
}
