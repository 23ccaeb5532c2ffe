import ByteStreams

/// Opcodes of RFC 6455 §5.2.
package enum Opcode: UInt8, Sendable {
  case continuation = 0x0
  case text = 0x1
  case binary = 0x2
  case close = 0x8
  case ping = 0x9
  case pong = 0xA

  var isControl: Bool { rawValue & 0x8 != 0 }
}

/// The header of one frame: 2 to 14 bytes (RFC 6455 §5.2).
package struct FrameHeader: Equatable, Sendable {
  /// The length in bytes of the longest header.
  static var maximumLength: Int { 14 }

  package var isFinal: Bool
  /// RSV1: the message is compressed (RFC 7692 §6).
  package var isCompressed: Bool
  package var opcode: Opcode
  package var maskingKey: MaskingKey?
  package var payloadLength: Int

  /// Parses a header from the front of `bytes`. Returns nil if it is incomplete. Each rule is checked at the first byte
  /// that can violate it.
  static func read(
    _ bytes: Span<UInt8>, from role: WebSocketRole, allowsCompression: Bool
  ) throws(WebSocketProtocolError) -> (header: FrameHeader, length: Int)? {
    guard !bytes.isEmpty else { return nil }
    let first = bytes[0]
    guard let opcode = Opcode(rawValue: first & 0x0F) else {
      throw .protocolError("opcode \(first & 0x0F) is reserved")
    }
    let isFinal = first & 0x80 != 0
    let isCompressed = first & 0x40 != 0
    // §5.2: reserved bits MUST be 0 unless a negotiated extension defines them.
    guard first & 0x30 == 0, !isCompressed || (allowsCompression && !opcode.isControl && opcode != .continuation) else {
      throw .protocolError("a reserved bit is set that no negotiated extension uses")
    }
    // §5.5: control frames MUST have at most 125 bytes and MUST NOT be fragmented.
    guard isFinal || !opcode.isControl else { throw .protocolError("a control frame is fragmented") }
    guard bytes.count >= 2 else { return nil }
    let isMasked = bytes[1] & 0x80 != 0
    // §5.1: a client masks every frame, a server masks none.
    switch role {
    case .client: guard isMasked else { throw .protocolError("a frame from the client is not masked") }
    case .server: guard !isMasked else { throw .protocolError("a frame from the server is masked") }
    }
    let short = Int(bytes[1] & 0x7F)
    guard short <= 125 || !opcode.isControl else {
      throw .protocolError("a control frame has a payload of more than 125 bytes")
    }
    let lengthBytes = short == 126 ? 2 : short == 127 ? 8 : 0
    let total = 2 + lengthBytes + (isMasked ? 4 : 0)
    guard bytes.count >= 2 + lengthBytes else { return nil }
    var length = UInt64(short)
    if lengthBytes > 0 {
      length = 0
      for index in 2..<(2 + lengthBytes) { length = length << 8 | UInt64(bytes[index]) }
      // §5.2: the most significant bit MUST be 0; the minimal number of bytes MUST be used.
      guard length >> 63 == 0 else { throw .protocolError("a payload length has its highest bit set") }
      guard length > (lengthBytes == 2 ? 125 : 0xFFFF) else {
        throw .protocolError("a payload length is not encoded in the fewest bytes")
      }
    }
    guard bytes.count >= total else { return nil }
    var key: MaskingKey?
    if isMasked {
      var word: UInt32 = 0
      for index in 0..<4 { word |= UInt32(bytes[total - 4 + index]) << UInt32(8 * index) }
      key = MaskingKey(bytes: word)
    }
    let header = FrameHeader(
      isFinal: isFinal, isCompressed: isCompressed, opcode: opcode, maskingKey: key, payloadLength: Int(length))
    return (header, total)
  }

  @inline(__always)
  func write(into output: inout ByteQueue) {
    _ = unsafe output.withWritableBytes(minimum: Self.maximumLength) { room in
      let masked: UInt8 = maskingKey == nil ? 0 : 0x80
      unsafe room[0] = opcode.rawValue | (isFinal ? 0x80 : 0) | (isCompressed ? 0x40 : 0)
      var length = 2
      if payloadLength <= 125 {
        unsafe room[1] = masked | UInt8(truncatingIfNeeded: payloadLength)
      } else if payloadLength <= 0xFFFF {
        unsafe room[1] = masked | 126
        let short = UInt16(truncatingIfNeeded: payloadLength)
        unsafe room.storeBytes(of: short.bigEndian, toByteOffset: 2, as: UInt16.self)
        length = 4
      } else {
        unsafe room[1] = masked | 127
        unsafe room.storeBytes(of: UInt64(payloadLength).bigEndian, toByteOffset: 2, as: UInt64.self)
        length = 10
      }
      if let key = maskingKey?.bytes {
        unsafe room.storeBytes(of: key.littleEndian, toByteOffset: length, as: UInt32.self)
        length &+= 4
      }
      return length
    }
  }
}
