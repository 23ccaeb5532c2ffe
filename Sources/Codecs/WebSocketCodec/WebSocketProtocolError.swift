/// A protocol violation by the peer: the close code to send (RFC 6455 §7.4.1), and a sentence for people.
package struct WebSocketProtocolError: Error, Hashable, Sendable, CustomStringConvertible {
  package let closeCode: UInt16
  /// What was wrong. Of the data that the peer has sent, the text contains only numbers.
  package let reason: String

  package var description: String { "\(reason) (\(closeCode))" }

  /// 1002: a frame or sequence of frames that violates the protocol.
  static func protocolError(_ reason: String) -> WebSocketProtocolError {
    WebSocketProtocolError(closeCode: 1002, reason: reason)
  }

  /// 1007: a text message or the reason of a close frame is not UTF-8 (§8.1).
  static let notUTF8 = WebSocketProtocolError(
    closeCode: 1007, reason: "a text message or close reason is not valid UTF-8")

  /// 1007: a compressed message is not valid DEFLATE data. RFC 7692 names no code; ws (Node) sends this code.
  static let notDeflate = WebSocketProtocolError(
    closeCode: 1007, reason: "a compressed message is not valid DEFLATE data")

  /// 1009: a message exceeds one of the connection's limits.
  static func tooBig(_ reason: String) -> WebSocketProtocolError {
    WebSocketProtocolError(closeCode: 1009, reason: reason)
  }
}
