import ByteStreams
import TestSupport
import Testing

@testable import WebSocketCodec

/// The events of frames, however the frames are split (RFC 6455 §5).
@Suite struct FrameTranscriptTests {
  private let trailing = Frames.text("more")

  private func expect(
    _ events: [String], from bytes: [UInt8], role: WebSocketRole = .client,
    limits: WebSocketLimits = WebSocketLimits(), sourceLocation: SourceLocation = #_sourceLocation
  ) {
    expectEvents(events, from: bytes, trailing: trailing, sourceLocation: sourceLocation) {
      transcript($0, role: role, limits: limits)
    }
  }

  /// §5.7.
  @Test func readsTheExamplesOfTheStandard() {
    expect(["text Hello"], from: [0x81, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F])
    expect(
      ["text Hello"], from: [0x81, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58], role: .server)
    expect(["text Hello"], from: [0x01, 0x03, 0x48, 0x65, 0x6C, 0x80, 0x02, 0x6C, 0x6F])
    expect(["ping Hello"], from: [0x89, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F])
    expect(
      ["pong Hello"], from: [0x8A, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58], role: .server)
    expect(["binary \([UInt8](repeating: 7, count: 256))"], from: Frames.frame(2, .init(repeating: 7, count: 256)))
  }

  @Test(arguments: [0, 1, 2, 125, 126, 127, 128, 1000])
  func readsEveryFormOfLength(size: Int) {
    let payload = [UInt8](repeating: 0x61, count: size)
    let text = String(decoding: payload, as: UTF8.self)
    expect(["text \(text)"], from: Frames.frame(1, payload))
    expect(["text \(text)"], from: Frames.frame(1, payload, key: [1, 2, 3, 4]), role: .server)
  }

  @Test(arguments: [65_535, 65_536, 65_537, 1_000_000])
  func readsLongFramesSplitInTheirHeader(size: Int) {
    let text = String(repeating: "abcdefghijklmnop", count: size / 16 + 1).prefix(size)
    let bytes = Frames.text(String(text)) + Frames.frame(9)
    for split in [0, 1, 2, 3, 4, 9, 10, 11, 1000, bytes.count - 3, bytes.count - 2, bytes.count - 1, bytes.count] {
      #expect(transcript([Array(bytes[..<split]), Array(bytes[split...])]) == ["text \(text)", "ping "])
    }
  }

  @Test func readsControlFramesBetweenFragments() {
    expect(
      ["ping a", "pong ", "text Hello", "binary [1]"],
      from: Frames.text("He", final: false) + Frames.frame(9, [0x61]) + Frames.frame(0, Array("l".utf8), final: false)
        + Frames.frame(0, final: false) + Frames.frame(10) + Frames.frame(0, Array("lo".utf8)) + Frames.frame(2, [1]))
  }

  @Test func readsMessagesOfEmptyFragments() {
    expect(
      ["text "], from: Frames.frame(1, final: false) + Frames.frame(0, final: false) + Frames.frame(0))
  }

  /// Each of these violates a rule of §5 for the other side.
  @Test func refusesFramesThatTheProtocolForbids() {
    // §5.2: reserved bits and opcodes.
    for reserved: UInt8 in 1...7 { expect(["error 1002"], from: Frames.frame(1, [0x61], reserved: reserved)) }
    for opcode: UInt8 in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] { expect(["error 1002"], from: Frames.frame(opcode)) }
    // §5.1: a server does not mask, a client does.
    expect(["error 1002"], from: Frames.frame(1, [0x61], key: [0, 0, 0, 0]))
    expect(["error 1002"], from: Frames.frame(1, [0x61]), role: .server)
    // §5.5: control frames are unfragmented and short.
    for opcode: UInt8 in [8, 9, 10] {
      expect(["error 1002"], from: Frames.frame(opcode, final: false))
      expect(["error 1002"], from: Frames.frame(opcode, .init(repeating: 0x61, count: 126)))
      expect(["error 1002"], from: Frames.frame(opcode, lengthBytes: 2))
    }
    // §5.4: fragments.
    expect(["error 1002"], from: Frames.frame(0, [0x61]))
    expect(["error 1002"], from: Frames.frame(0, [0x61], final: false))
    expect(["error 1002"], from: Frames.text("a", final: false) + Frames.text("b"))
    expect(["error 1002"], from: Frames.text("a", final: false) + Frames.frame(2, [1], final: false))
    expect(["text ab", "error 1002"], from: Frames.text("a", final: false) + Frames.frame(0, [0x62]) + Frames.frame(0))
    // §5.2: a length must use the fewest bytes.
    expect(["error 1002"], from: Frames.frame(2, .init(repeating: 0, count: 125), lengthBytes: 2))
    expect(["error 1002"], from: Frames.frame(2, [1], lengthBytes: 8))
    expect(["error 1002"], from: [0x82, 127, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF])
    // §5.2: a length has 63 bits.
    expect(["error 1002"], from: [0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0])
    expect(["error 1002"], from: [0x82, 127, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF])
  }

  @Test func refusesAFrameAtItsFirstInvalidByte() {
    #expect(transcript([[0x83]]) == ["error 1002"])
    #expect(transcript([[0x09]]) == ["error 1002"])
    #expect(transcript([[0x81, 0x80]]) == ["error 1002"])
    #expect(transcript([[0x89, 0x7E]]) == ["error 1002"])
    #expect(transcript([Frames.text("a", final: false) + [0x81, 0x01]]) == ["error 1002"])
  }

  // MARK: Close frames (§5.5.1, §7.4)

  @Test func readsCloseFrames() {
    expect(["close - "], from: Frames.frame(8))
    for code: UInt16 in [
      1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999,
    ] {
      expect(["close \(code) "], from: Frames.close(code))
      expect(["close \(code) Grüße"], from: Frames.close(code, Array("Grüße".utf8)))
    }
    expect(
      ["close 1000 \(String(repeating: "a", count: 123))"], from: Frames.close(1000, .init(repeating: 0x61, count: 123))
    )
  }

  @Test func refusesInvalidCloseFrames() {
    expect(["error 1002"], from: Frames.frame(8, [3]))
    for code: UInt16 in [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535] {
      expect(["error 1002"], from: Frames.close(code))
    }
    expect(["error 1007"], from: Frames.close(1000, [0xFF]))
    expect(["error 1007"], from: Frames.close(1000, [0xE2, 0x82]))
  }

  @Test func ignoresAllBytesAfterACloseFrame() {
    expect(["text a", "close 1000 "], from: Frames.text("a") + Frames.close(1000) + [0xFF, 0xFF] + Frames.text("b"))
    expect(["close 1000 "], from: Frames.text("a", final: false) + Frames.close(1000) + Frames.frame(0))
  }

  @Test func ignoresAllBytesAfterAnError() {
    expect(["text a", "error 1002"], from: Frames.text("a") + Frames.frame(3) + Frames.text("b") + Frames.close(1000))
  }
}
