import ByteStreams
import TestSupport
import Testing

@testable import WebSocketCodec

/// Text must be UTF-8, and is validated while it arrives (RFC 6455 §8.1).
@Suite struct TextValidationTests {
  /// Bytes, and how many of them can be the beginning of valid UTF-8.
  static let bad: [(bytes: [UInt8], good: Int)] = [
    ([0x80], 0), ([0x61, 0xBF], 1), ([0xC0, 0xAF], 0), ([0xC1, 0x80], 0), ([0xC3, 0x28], 1), ([0xC3, 0xC3], 1),
    ([0xE0, 0x80, 0x80], 1), ([0xE0, 0x9F, 0xBF], 1), ([0xE2, 0x28, 0xA1], 1), ([0xE2, 0x82, 0x28], 2),
    ([0xED, 0xA0, 0x80], 1), ([0xED, 0xBF, 0xBF], 1), ([0xF0, 0x80, 0x80, 0x80], 1), ([0xF0, 0x8F, 0xBF, 0xBF], 1),
    ([0xF0, 0x9F, 0x98, 0x41], 3), ([0xF4, 0x90, 0x80, 0x80], 1), ([0xF5, 0x80, 0x80, 0x80], 0), ([0xFE], 0),
    ([0xFF], 0),
    (Array("κόσμε".utf8) + [0xED, 0xA0, 0x80] + Array("edited".utf8), 11),
    (.init(repeating: 0x61, count: 100) + [0xFF] + .init(repeating: 0x61, count: 100), 100),
  ]

  /// The number of bytes of `wire` after which the connection refuses the message, if the bytes arrive in pieces of
  /// `size`.
  private func bytesUntilRefused(
    _ wire: [UInt8], size: Int = 1, role: WebSocketRole = .client, compression: MessageCompression.Settings? = nil
  ) -> Int? {
    var connection = WebSocketConnection(role: role, compression: compression)
    var offset = 0
    while offset < wire.count {
      let end = min(wire.count, offset + size)
      connection.receive(wire.span.extracting(offset..<end))
      offset = end
      do throws(WebSocketProtocolError) {
        while try connection.nextEvent() != nil {}
      } catch {
        return error == .notUTF8 ? offset : nil
      }
    }
    return nil
  }

  /// The close code is right, and the message is refused at its first invalid byte, long before the frame is complete.
  @Test(arguments: bad)
  func failsAtTheFirstBadByte(bytes: [UInt8], good: Int) {
    let rest = [UInt8](repeating: 0x61, count: 300)
    let whole = Frames.frame(1, bytes + rest)
    #expect(bytesUntilRefused(whole) == 4 + good + 1)
    let masked = Frames.frame(1, bytes + rest, key: [9, 8, 7, 6])
    #expect(bytesUntilRefused(masked, role: .server) == 8 + good + 1)
    // Each byte is a fragment of its own, with pings between the fragments.
    var fragments = Frames.frame(1, final: false)
    for byte in bytes { fragments += Frames.frame(9) + Frames.frame(0, [byte], final: false) }
    #expect(bytesUntilRefused(fragments) == 2 + 5 * (good + 1))
    // The whole frame arrives in one piece.
    #expect(bytesUntilRefused(whole, size: 10_000) == whole.count)
  }

  @Test(arguments: bad)
  func failsWhileTheCompressedFormStillArrives(bytes: [UInt8], good: Int) throws {
    let settings = MessageCompression.Settings()
    // The first fragment inflates to all of `bytes`. The message does not end.
    let wire = Frames.frame(1, Frames.deflated(bytes), final: false, reserved: 4) + [0x00, 0x7D]
    let refused = try #require(bytesUntilRefused(wire, compression: settings))
    #expect(refused <= wire.count - 2)
    #expect(bytesUntilRefused(wire, size: 10_000, compression: settings) == wire.count)
  }

  @Test func refusesTextThatEndsInsideACharacter() {
    for bytes: [UInt8] in [[0xC3], [0xE2, 0x82], [0xF0, 0x9F, 0x98], [0x61, 0xF0]] {
      expectEvents(["error 1007"], from: Frames.frame(1, bytes)) { transcript($0) }
      expectEvents(["error 1007"], from: Frames.frame(1, bytes, final: false) + Frames.frame(0)) { transcript($0) }
      expectEvents(["error 1007"], from: Frames.frame(1, Frames.deflated(bytes), reserved: 4)) {
        transcript($0, compression: .init())
      }
    }
  }

  @Test func acceptsCharactersSplitByFragmentsAndAnyBinaryData() {
    let text = "aä€😀\u{10FFFF}\u{0}z"
    var wire = Frames.frame(1, final: false)
    for byte in text.utf8 { wire += Frames.frame(0, [byte], final: false) }
    expectEvents(["text \(text)"], from: wire + Frames.frame(0)) { transcript($0) }
    expectEvents(["binary [255, 254]"], from: Frames.frame(2, [0xFF, 0xFE])) { transcript($0) }
    // An incomplete character of a binary message does not affect the next message.
    expectEvents(["binary [195]", "text a"], from: Frames.frame(2, [0xC3]) + Frames.text("a")) { transcript($0) }
  }
}
