import ByteStreams
import TestSupport
import Testing
import WebSocketCodec

@testable import SocketIO

/// The sample sessions of the protocol documents, as frames of a server, split at every place.
@Suite struct TranscriptTests {
  private enum Message {
    case text(String)
    case binary([UInt8])
  }

  @Test func theSampleSessionOfVersionFour() {
    let events = #"""
      opened lv_VI97HAXpY6yYWAAAC
      connected 0
      push 0 "hey"("Jude")
      connected 1
      partial
      acknowledged 1 ({"_placeholder":true,"num":0}) id 1 [[1, 2, 3, 4]]
      partial
      ping 
      partial
      push 1 "baz"({"_placeholder":true,"num":0},{"_placeholder":true,"num":1}) [[1, 2], [3, 4]]
      push 0 "foo"() id 12
      disconnected 1
      closed
      """#
    expect(
      events, .four,
      [
        .text(
          #"0{"sid":"lv_VI97HAXpY6yYWAAAC","upgrades":["websocket"],"pingInterval":25000,"pingTimeout":5000,"maxPayload":1000000}"#
        ), .text(#"40{"sid":"wZX3oN0bSVIhsaknAAAI"}"#), .text(#"42["hey","Jude"]"#),
        .text(#"40/admin,{"sid":"-G5j-67EZFp-q59rADQM"}"#), .text(#"461-/admin,1[{"_placeholder":true,"num":0}]"#),
        .binary([1, 2, 3, 4]),
        .text(#"452-/admin,["baz",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#), .text("2"),
        .binary([1, 2]), .binary([3, 4]), .text(#"4212["foo"]"#), .text("41/admin,"), .text("1"),
      ])
  }

  @Test func theSampleSessionOfVersionThree() {
    let events = #"""
      opened lv_VI97HAXpY6yYWAAAC
      connected 0
      push 0 "hey"("Jude")
      connected 1
      partial
      acknowledged 1 ({"_placeholder":true,"num":0}) id 1 [[1, 2, 3, 4]]
      pong
      partial
      push 1 "project:delete"({"_placeholder":true,"num":0}) id 456 [[1, 2, 3]]
      closed
      """#
    expect(
      events, .three,
      [
        .text(#"0{"sid":"lv_VI97HAXpY6yYWAAAC","upgrades":["websocket"],"pingInterval":25000,"pingTimeout":5000}"#),
        .text("40"), .text(#"42["hey","Jude"]"#), .text("40/admin,"),
        .text(#"461-/admin,1[{"_placeholder":true,"num":0}]"#), .binary([4, 1, 2, 3, 4]), .text("3"),
        .text(#"451-/admin,456["project:delete",{"_placeholder":true,"num":0}]"#), .binary([4, 1, 2, 3]), .text("1"),
      ])
  }

  private func expect(_ events: String, _ version: EngineIOVersion, _ messages: [Message]) {
    var server = WebSocketConnection(role: .server, compression: nil)
    var wire = ByteQueue()
    var generator = SeededGenerator(seed: 1)
    for message in messages {
      switch message {
      case .text(let text):
        server.sendMessage(.text, Array(text.utf8).span, fragmentBytes: 40, using: &generator, into: &wire)
      case .binary(let bytes):
        server.sendMessage(.binary, bytes.span, fragmentBytes: 40, using: &generator, into: &wire)
      }
    }
    expectEvents(events.split(separator: "\n").map(String.init), from: wire.copyBytes()) { pieces in
      var client = WebSocketConnection(role: .client, compression: nil)
      var talk = Talk(version, ["/", "/admin"])
      // The client's messages do not depend on received messages.
      for namespace in 0..<2 { _ = talk.connect(namespace) }
      talk.conversation.expectAcknowledgement(1, namespace: 1)
      var events: [String] = []
      for piece in pieces {
        client.receive(piece.span)
        while let event = try? client.nextEvent() {
          guard case .message(let kind) = event else { continue }
          events.append(talk.receive([UInt8](copying: client.payload), kind))
        }
      }
      return events
    }
  }
}
