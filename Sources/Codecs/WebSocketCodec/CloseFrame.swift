import ByteStreams

/// The payload of a close frame: empty, or a status code and a reason (RFC 6455 §5.5.1).
package enum CloseFrame {
  /// The maximum length of a reason in bytes: 125 for a control frame (§5.5), less two for the code.
  package static let maximumReason = 123

  /// Whether a close frame may contain `code`: registered and not reserved for local use (§7.4.1, IANA), or 3000–4999.
  package static func isSendable(_ code: UInt16) -> Bool {
    switch code {
    case 1000...1003, 1007...1014, 3000...4999: true
    default: false
    }
  }

  static func read(_ payload: Span<UInt8>) throws(WebSocketProtocolError) -> WebSocketEvent {
    guard !payload.isEmpty else { return .close(code: nil, reason: "") }
    guard payload.count >= 2 else {
      throw .protocolError("a close frame has a payload of one byte; a close code has two")
    }
    let code = UInt16(payload[0]) << 8 | UInt16(payload[1])
    guard isSendable(code) else { throw .protocolError("close code \(code) is not allowed in a close frame") }
    let reason = payload.extracting(2..<payload.count)
    guard UTF8StreamValidator.isValid(reason) else { throw .notUTF8 }
    return .close(code: code, reason: reason.text())
  }

  /// Appends the payload. `reason` is cut to `maximumReason` bytes, between characters.
  static func write(code: UInt16, reason: String, into output: inout ByteQueue) {
    precondition(isSendable(code), "close code \(code) is not allowed in a close frame")
    output.append(UInt8(code >> 8))
    output.append(UInt8(code & 0xFF))
    var text = ""
    for character in reason {
      guard text.utf8.count + character.utf8.count <= maximumReason else { break }
      text.append(character)
    }
    output.append(text)
  }
}
