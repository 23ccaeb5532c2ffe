/// What the peer did wrong: the close code that says so (RFC 6455 §7.4.1), and a sentence for a person.
package struct WebSocketProtocolError: Error, Hashable, Sendable, CustomStringConvertible {
  package let closeCode: UInt16
  /// Says what was wrong. Quotes nothing of what the peer sent but numbers.
  package let reason: String

  package var description: String { "\(reason) (\(closeCode))" }

  /// 1002: a frame or a sequence of frames that the protocol does not allow.
  static func protocolError(_ reason: String) -> WebSocketProtocolError {
    WebSocketProtocolError(closeCode: 1002, reason: reason)
  }

  /// 1007: what a text message or the reason of a close frame says is not UTF-8 (§8.1).
  static let notUTF8 = WebSocketProtocolError(closeCode: 1007, reason: "a text is not UTF-8")

  /// 1007: the data of a message are not of the kind they are said to be. RFC 7692 names no code; ws (Node) sends this one.
  static let notDeflate = WebSocketProtocolError(closeCode: 1007, reason: "a compressed message is not DEFLATE data")

  /// 1009: a limit of ours.
  static func tooBig(_ reason: String) -> WebSocketProtocolError {
    WebSocketProtocolError(closeCode: 1009, reason: reason)
  }
}
