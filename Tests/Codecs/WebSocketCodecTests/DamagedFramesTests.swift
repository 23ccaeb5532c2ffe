import ByteStreams
import TestSupport
import Testing

@testable import WebSocketCodec

/// Streams of valid frames with damage. However they are split, the outcome is the same and the program does not crash.
@Suite struct DamagedFramesTests {
  @Test(arguments: 1...300)
  func splitsDoNotChangeTheOutcome(seed: UInt64) {
    var generator = SeededGenerator(seed: seed)
    let role: WebSocketRole = Bool.random(using: &generator) ? .client : .server
    let compression = Bool.random(using: &generator) ? MessageCompression.Settings() : nil
    var bytes = Self.stream(to: role, isCompressed: compression != nil, &generator)
    for _ in 0..<Int.random(in: 0...3, using: &generator) {
      bytes[Int.random(in: 0..<bytes.count, using: &generator)] = UInt8(truncatingIfNeeded: generator.next())
    }
    if seed % 7 == 0 { bytes.removeFirst() }
    let whole = transcript([bytes], role: role, compression: compression)
    #expect(transcript(bytes.map { [$0] }, role: role, compression: compression) == whole)
    for _ in 0..<10 {
      var pieces: [[UInt8]] = []
      var rest = bytes[...]
      while !rest.isEmpty {
        let piece = rest.prefix(Int.random(in: 1...30, using: &generator))
        pieces.append(Array(piece))
        rest = rest.dropFirst(piece.count)
      }
      #expect(transcript(pieces, role: role, compression: compression) == whole)
    }
  }

  /// A few messages and control frames, as the other side of `role` sends them.
  private static func stream(
    to role: WebSocketRole, isCompressed: Bool, _ generator: inout SeededGenerator
  ) -> [UInt8] {
    var settings = MessageCompression.Settings()
    settings.threshold = 20
    settings.inboundWindowBits = 12
    var sender = WebSocketConnection(role: role.peer, compression: isCompressed ? settings : nil)
    var wire = ByteQueue()
    for _ in 0..<4 {
      let text = String(
        (0..<Int.random(in: 0...80, using: &generator)).map { _ in "ab{}€😀".randomElement(using: &generator) ?? "a" })
      sender.sendMessage(
        .text, Array(text.utf8).span, fragmentBytes: Int.random(in: 5...300, using: &generator), using: &generator,
        into: &wire)
      sender.sendPing([0x70].span, using: &generator, into: &wire)
    }
    sender.sendClose(code: 1000, reason: "end", using: &generator, into: &wire)
    return wire.copyBytes()
  }
}
