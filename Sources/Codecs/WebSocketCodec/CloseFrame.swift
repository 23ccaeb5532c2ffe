import ByteStreams

/// The payload of a close frame: a code and a reason, or nothing (RFC 6455 §5.5.1).
package enum CloseFrame {
  /// Bytes of a reason: a control frame has 125 (§5.5), and the code takes two.
  package static let maximumReason = 123

  /// Codes that may stand in a frame: registered ones that are not for local use only (§7.4.1, IANA), and 3000–4999.
  package static func isSendable(_ code: UInt16) -> Bool {
    switch code {
    case 1000...1003, 1007...1014, 3000...4999: true
    default: false
    }
  }

  static func read(_ payload: Span<UInt8>) throws(WebSocketProtocolError) -> WebSocketEvent {
    guard !payload.isEmpty else { return .close(code: nil, reason: "") }
    guard payload.count >= 2 else { throw .protocolError("a close frame has one byte where a code takes two") }
    let code = UInt16(payload[0]) << 8 | UInt16(payload[1])
    guard isSendable(code) else { throw .protocolError("close code \(code) may not be sent") }
    let reason = payload.extracting(2..<payload.count)
    guard UTF8StreamValidator.isValid(reason) else { throw .notUTF8 }
    return .close(code: code, reason: reason.text())
  }

  /// `reason` is cut at its maximum, between characters.
  static func write(code: UInt16, reason: String, into output: inout ByteQueue) {
    precondition(isSendable(code), "close code \(code) may not be sent")
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
