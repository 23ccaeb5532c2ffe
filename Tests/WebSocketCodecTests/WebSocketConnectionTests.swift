import ByteStreams
import TestSupport
import Testing

@testable import WebSocketCodec

@Suite struct RoundTripTests {
  static let sizes = [0, 1, 125, 126, 127, 128, 1000, 65_535, 65_536, 200_000]

  /// What one end sends the other end receives, both ways, with and without compression, the bytes cut anywhere.
  @Test(arguments: sizes, [false, true])
  func messagesArriveAsTheyWereSent(size: Int, compressed: Bool) throws {
    var generator = SeededGenerator(seed: UInt64(size) + 1)
    let settings = compressed ? MessageCompression.Settings() : nil
    var inbound = MessageCompression.Settings()
    inbound.inboundWindowBits = 12
    for (from, to) in [(WebSocketRole.client, WebSocketRole.server), (.server, .client)] {
      var sender = WebSocketConnection(role: from, compression: settings)
      var receiver = WebSocketConnection(role: to, compression: compressed ? inbound : nil)
      for kind in [WebSocketMessageKind.text, .binary] {
        let payload = (0..<size).map { UInt8(32 + ($0 * 7 + size) % 90) }
        var wire = ByteQueue()
        sender.sendMessage(kind, payload.span, using: &generator, into: &wire)
        let bytes = wire.copyBytes()
        var events: [WebSocketEvent] = []
        var offset = 0
        while offset < bytes.count {
          let end = min(bytes.count, offset + Int.random(in: 1...max(1, bytes.count / 3), using: &generator))
          receiver.receive(bytes.span.extracting(offset..<end))
          offset = end
          while let event = try receiver.nextEvent() {
            events.append(event)
            #expect(receiver.payload.count == payload.count)
            let got = [UInt8](copying: receiver.payload)
            #expect(got == payload)
          }
        }
        #expect(events == [.message(kind)])
      }
    }
  }
}

@Suite struct UTF8StreamTests {
  @Test(arguments: 1...50)
  func agreesWithTheWholeTextJudgementAtEverySplit(seed: UInt64) {
    var generator = SeededGenerator(seed: seed)
    let bytes = (0..<12).map { _ in
      [0x41, 0x80, 0xBF, 0xC2, 0xC0, 0xE0, 0xA0, 0xED, 0x9F, 0xF0, 0x90, 0xF4, 0x8F, 0xF5, 0xE2, 0x82, 0xAC]
        .randomElement(
          using: &generator)! as UInt8
    }
    let whole = UTF8StreamValidator.isValid(bytes.span)
    for split in 0...bytes.count {
      var validator = UTF8StreamValidator()
      let first = validator.append(bytes.span.extracting(0..<split))
      let second = first && validator.append(bytes.span.extracting(split..<bytes.count))
      #expect((second && validator.isComplete) == whole)
    }
  }
}
