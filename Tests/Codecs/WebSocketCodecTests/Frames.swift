import ByteStreams
import Deflate

@testable import WebSocketCodec

/// Valid and invalid frames, written without the code under test.
enum Frames {
  /// One frame. `lengthBytes` may be more than necessary. `key` masks the payload.
  static func frame(
    _ opcode: UInt8, _ payload: [UInt8] = [], final: Bool = true, reserved: UInt8 = 0, lengthBytes: Int? = nil,
    key: [UInt8]? = nil
  ) -> [UInt8] {
    var bytes = [opcode | (final ? 0x80 : 0) | reserved << 4]
    let mask: UInt8 = key == nil ? 0 : 0x80
    switch lengthBytes ?? (payload.count <= 125 ? 0 : payload.count <= 0xFFFF ? 2 : 8) {
    case 0: bytes.append(mask | UInt8(payload.count))
    case 2: bytes += [mask | 126] + bigEndian(payload.count, 2)
    default: bytes += [mask | 127] + bigEndian(payload.count, 8)
    }
    guard let key else { return bytes + payload }
    return bytes + key + payload.indices.map { payload[$0] ^ key[$0 % 4] }
  }

  static func text(_ text: String, final: Bool = true) -> [UInt8] { frame(1, Array(text.utf8), final: final) }

  static func close(_ code: UInt16, _ reason: [UInt8] = []) -> [UInt8] { frame(8, bigEndian(Int(code), 2) + reason) }

  /// The payload of a message, as permessage-deflate sends it with an empty compression history.
  static func deflated(_ payload: [UInt8]) -> [UInt8] {
    var deflater = Deflater()
    var output = ByteQueue()
    deflater.compress(payload.span, into: &output)
    return Array(output.copyBytes().dropLast(4))
  }

  private static func bigEndian(_ value: Int, _ count: Int) -> [UInt8] {
    (0..<count).reversed().map { UInt8(truncatingIfNeeded: value >> ($0 * 8)) }
  }
}

/// The result of a connection for these bytes, as text: its events, its error, and its pending replies. The result does
/// not depend on how the bytes are split.
func transcript(
  _ pieces: [[UInt8]], role: WebSocketRole = .client, limits: WebSocketLimits = WebSocketLimits(),
  compression: MessageCompression.Settings? = nil
) -> [String] {
  var connection = WebSocketConnection(role: role, limits: limits, compression: compression)
  var events: [String] = []
  for piece in pieces {
    connection.receive(piece.span)
    do throws(WebSocketProtocolError) {
      while let event = try connection.nextEvent() { events.append(describe(event, connection.payload)) }
    } catch {
      events.append("error \(error.closeCode)")
    }
  }
  return events
}

private func describe(_ event: WebSocketEvent, _ payload: Span<UInt8>) -> String {
  switch event {
  case .message(.text): "text \(payload.text())"
  case .message(.binary): "binary \([UInt8](copying: payload))"
  case .ping: "ping \(payload.text())"
  case .pong: "pong \(payload.text())"
  case .close(let code, let reason): "close \(code.map(String.init) ?? "-") \(reason)"
  }
}
