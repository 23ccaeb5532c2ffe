import ByteStreams
import TestSupport
import Testing

@testable import WebSocketCodec

/// Large messages whose payload is appended a part at a time.
@Suite struct FramePayloadTests {
  private static let content = (0..<4_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }

  private func socket(_ role: WebSocketRole, compresses: Bool = false) -> WebSocketConnection {
    WebSocketConnection(role: role, compression: compresses ? MessageCompression.Settings() : nil)
  }

  private func append(_ payload: FramePayload, inPartsOf size: Int, to output: inout ByteQueue) {
    while payload.count > 0 {
      let before = (payload.count, output.count)
      payload.append(atMost: size, to: &output)
      #expect(output.count - before.1 == min(size, before.0), "a part has the requested size")
      #expect(payload.count == before.0 - (output.count - before.1))
    }
  }

  @Test(arguments: [1, 2, 3, 7, 999, 1_000, 100_000], [WebSocketRole.client, .server])
  func thePartsAreTheBytesOfTheWholeMessage(size: Int, role: WebSocketRole) {
    for (head, tail) in [("", ""), ("42[\"e\",", "]"), ("4", "")] {
      let (head, tail) = (Array(head.utf8), Array(tail.utf8))
      var whole = ByteQueue()
      var parts = ByteQueue()
      var generator = SeededGenerator(seed: 1)
      var first = socket(role)
      first.sendMessage(
        .text, MessageParts(head: head.span, Self.content.span, tail: tail.span), using: &generator, into: &whole)
      generator = SeededGenerator(seed: 1)
      var second = socket(role)
      let slice = ByteSlice(ByteString(Self.content))
      let payload = second.beginMessage(
        .text, MessageParts(head: head.span, slice.bytes, tail: tail.span), slice, using: &generator, into: &parts)
      #expect(parts.count == whole.count - payload.count, "nothing of the content is appended before its turn")
      append(payload, inPartsOf: size, to: &parts)
      #expect(parts.copyBytes() == whole.copyBytes())
    }
  }

  @Test func aMessageThatWasCompressedAheadIsSentCompressed() throws {
    var sender = socket(.client, compresses: true)
    var generator = SeededGenerator(seed: 1)
    var output = ByteQueue()
    let slice = ByteSlice(ByteString(Array(repeating: UInt8(ascii: "a"), count: 4_000)))
    sender.compressAhead(slice.bytes, number: 1, atMost: 4_000)
    let payload = sender.beginMessage(
      .text, MessageParts(slice.bytes), slice, number: 1, using: &generator, into: &output)
    #expect(payload.count < 100)
    append(payload, inPartsOf: 3, to: &output)
    sender.sendMessage(.text, slice.bytes, using: &generator, into: &output)
    var peer = socket(.server, compresses: true)
    peer.receive(output.bytes)
    for _ in 0..<2 {
      #expect(try peer.nextEvent() == .message(.text))
      #expect(peer.payload.text() == slice.bytes.text())
    }
  }

  @Test func aPendingPongPrecedesALargeMessage() throws {
    var sender = socket(.client)
    var generator = SeededGenerator(seed: 1)
    var output = ByteQueue()
    let ping: [UInt8] = [0x89, 0x01, 0x78]
    sender.receive(ping.span)
    #expect(try sender.nextEvent() == .ping)
    let slice = ByteSlice(ByteString(Self.content))
    let payload = sender.beginMessage(.binary, MessageParts(slice.bytes), slice, using: &generator, into: &output)
    append(payload, inPartsOf: 1_000, to: &output)
    var peer = socket(.server)
    peer.receive(output.bytes)
    #expect(try peer.nextEvent() == .pong)
    #expect(try peer.nextEvent() == .message(.binary))
    #expect(peer.payload.count == Self.content.count)
  }
}
