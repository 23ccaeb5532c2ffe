import ByteStreams
import Testing

@testable import SocketIO

@Suite struct EngineIOPacketTests {
  private func parse(_ bytes: [UInt8], _ kind: MessageKind, _ version: EngineIOVersion) -> EngineIOPacket? {
    try? EngineIOPacket(bytes.span, kind, version)
  }

  @Test(
    arguments: [
      ("0{}", .open), ("1", .close), ("2", .ping), ("2probe", .ping), ("3probe", .pong), ("4hello", .message),
      ("4€", .message), ("5", .upgrade), ("6", .noop),
    ] as [(String, EngineIOPacket.Kind)])
  func textBeginsWithTheDigitOfItsType(text: String, kind: EngineIOPacket.Kind) throws {
    for version in EngineIOVersion.allCases {
      let packet = try #require(parse(Array(text.utf8), .text, version))
      #expect(packet.kind == kind && packet.encoding == .text)
      #expect(packet.content == 1..<text.utf8.count)
    }
  }

  @Test(arguments: ["", "7", "9", "a", "/", " 4", "\u{0}", "é"])
  func otherTextIsAViolation(text: String) {
    for version in EngineIOVersion.allCases { #expect(parse(Array(text.utf8), .text, version) == nil) }
  }

  @Test func binaryDataIsAnUnchangedMessageInVersionFour() throws {
    for bytes in [[], [4], [0x34, 1], [1, 2, 3, 4]] as [[UInt8]] {
      let packet = try #require(parse(bytes, .binary, .four))
      #expect(packet.kind == .message && packet.encoding == .binary && packet.content == 0..<bytes.count)
    }
  }

  @Test func binaryDataHasTheTypeAsANumberInVersionThree() throws {
    let packet = try #require(parse([4, 1, 2], .binary, .three))
    #expect(packet.kind == .message && packet.encoding == .binary && packet.content == 1..<3)
    for bytes in [[], [0x34, 1], [0], [2], [255]] as [[UInt8]] { #expect(parse(bytes, .binary, .three) == nil) }
    #expect(EngineIOPacket.binaryPrefix(.three) == [4] && EngineIOPacket.binaryPrefix(.four).isEmpty)
  }

  /// The example from both protocol documents.
  @Test func base64TextIsBinaryData() throws {
    let four = Array("bAQIDBA==".utf8)
    let three = Array("b4AQIDBA==".utf8)
    for (bytes, version) in [(four, EngineIOVersion.four), (three, .three)] {
      let packet = try #require(parse(bytes, .text, version))
      #expect(packet.kind == .message && packet.encoding == .base64)
      let decoded = try EngineIOPacket.decoded(base64: Array(bytes[packet.content]).span)
      #expect(decoded == [1, 2, 3, 4])
    }
    for bytes in ["b", "b3AA==", "bAA=="] { #expect(parse(Array(bytes.utf8), .text, .three) == nil) }
  }

  @Test(arguments: ["A", "AA", "AAA", "AA=", "A===", "====", "AB==", "AA==AA==", "AA-_", " AA=="])
  func otherBase64IsAViolation(text: String) {
    #expect(throws: SocketIOViolation.invalidBase64) { try EngineIOPacket.decoded(base64: Array(text.utf8).span) }
  }

  @Test func writesPingsAndPongs() {
    var output = ByteQueue()
    EngineIOPacket.write(.ping, into: &output)
    EngineIOPacket.write(.pong, content: Array("probe".utf8).span, into: &output)
    EngineIOPacket.write(.close, into: &output)
    #expect(output.bytes.text() == "23probe1")
  }
}
