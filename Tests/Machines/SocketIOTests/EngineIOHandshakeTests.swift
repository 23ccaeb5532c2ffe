import ByteStreams
import Testing

@testable import SocketIO

@Suite struct EngineIOHandshakeTests {
  private func read(_ text: String) throws -> EngineIOHandshake { try EngineIOHandshake(Array(text.utf8).span) }

  /// The examples of the protocol documents.
  @Test func readsTheOpenPacketOfTheServer() throws {
    let four = try read(
      #"{"sid":"lv_VI97HAXpY6yYWAAAC","upgrades":["websocket"],"pingInterval":25000,"pingTimeout":20000,"maxPayload":1000000}"#
    )
    #expect(four.sessionID == Array("lv_VI97HAXpY6yYWAAAC".utf8))
    #expect(four.pingInterval == .seconds(25) && four.pingTimeout == .seconds(20) && four.maximumPayload == 1_000_000)
    let three = try read(#"{"sid":"lv_VI97HAXpY6yYWAAAC","pingInterval":25000,"pingTimeout":5000}"#)
    #expect(three.maximumPayload == nil && three.pingTimeout == .seconds(5))
    #expect(try read(#"{"sid":"a","pingInterval":1000.75,"pingTimeout":600000}"#).pingInterval == .seconds(1))
  }

  @Test(arguments: [
    "", "null", "[]", "{}", "{", #"{"pingInterval":25000,"pingTimeout":20000}"#,
    #"{"sid":1,"pingInterval":25000,"pingTimeout":20000}"#, #"{"sid":"","pingInterval":25000,"pingTimeout":20000}"#,
    #"{"sid":"a","pingTimeout":20000}"#, #"{"sid":"a","pingInterval":25000}"#,
    #"{"sid":"a","pingInterval":"25000","pingTimeout":20000}"#, #"{"sid":"a","pingInterval":-1,"pingTimeout":20000}"#,
    #"{"sid":"a","pingInterval":25e3,"pingTimeout":20000}"#, #"{"sid":"a","pingInterval":0,"pingTimeout":20000}"#,
    #"{"sid":"a","pingInterval":99,"pingTimeout":20000}"#, #"{"sid":"a","pingInterval":600001,"pingTimeout":20000}"#,
    #"{"sid":"a","pingInterval":25000,"pingTimeout":0}"#,
    #"{"sid":"a","pingInterval":99999999999999999999,"pingTimeout":20000}"#,
    #"{"sid":"a","pingInterval":9223372036854775807,"pingTimeout":20000}"#,
  ])
  func refusesHeartbeatsThatAreTooFrequentOrTooRare(text: String) {
    #expect(throws: SocketIOViolation.self) { try read(text) }
  }

  @Test func aLongSessionIDIsRefused() {
    let id = String(repeating: "x", count: SocketIOLimits.identifierBytes + 1)
    #expect(throws: SocketIOViolation.self) { try read(#"{"sid":"\#(id)","pingInterval":25000,"pingTimeout":20000}"#) }
  }

  @Test func eachVersionHasItsHeartbeat() throws {
    let handshake = try read(#"{"sid":"a","pingInterval":25000,"pingTimeout":20000}"#)
    #expect(EngineIOHeartbeat(handshake, .four) == .fromServer(within: .seconds(45)))
    #expect(
      EngineIOHeartbeat(handshake, .three) == .fromClient(interval: .milliseconds(22_500), timeout: .seconds(20)))
  }
}

@Suite struct EngineIORefusalTests {
  @Test(
    arguments: [
      (#"{"code":0,"message":"Transport unknown"}"#, .noWebSocket), (#""Invalid transport""#, .noWebSocket),
      ("Invalid transport websocket", .noWebSocket),
      (#"{"code":5,"message":"Unsupported protocol version"}"#, .wrongVersion),
      (#""The client is using an unsupported version of the Socket.IO or Engine.IO protocols""#, .wrongVersion),
      (#"{"code":4,"message":"Forbidden"}"#, .refused), (#""Not an accepted origin.""#, .refused), ("", .refused),
      ("<html>", .refused), ("{", .refused), (#"{"code":"0"}"#, .refused),
    ] as [(String, EngineIORefusal)])
  func theContentOfARefusalHasTheReason(content: String, refusal: EngineIORefusal) {
    let read = EngineIORefusal(content: Array(content.utf8).span)
    #expect(read == refusal)
  }

  @Test func theAdviceNamesTheOtherVersion() {
    #expect(EngineIORefusal.wrongVersion.advice(.four).contains("'upstream.socketio.version' to 3"))
    #expect(EngineIORefusal.wrongVersion.advice(.three).contains("'upstream.socketio.version' to 4"))
    #expect(EngineIORefusal.noWebSocket.advice(.four).contains("'upstream.url'"))
  }

  @Test func theTextOfTheServerIsFound() {
    func text(_ content: String) -> String {
      String(decoding: EngineIORefusal.text(Array(content.utf8).span), as: UTF8.self)
    }
    #expect(text(#"{"code":4,"message":"no \"way\""}"#) == #"no "way""#)
    #expect(text(#""no""#) == "no" && text("no") == "no" && text("{}") == "{}" && text("[1]") == "[1]")
  }

  /// The official server checks the version only after the upgrade.
  @Test func anHTTPResponseAfterTheUpgradeIsRecognisedAtEverySplit() {
    let response = Array("HTTP/1.1 400 Bad Request\r\n".utf8)
    for end in 0...response.count {
      let isResponse = EngineIORefusal.isResponse(Array(response[..<end]).span)
      #expect(isResponse == (end >= 12 ? true : nil))
    }
    // The first bytes of a text frame, an interim response, and a frame that begins like a response.
    for other in [[0x81, 5], Array("HTTP/1.1 200".utf8), Array("HTTQ".utf8)] as [[UInt8]] {
      let isResponse = EngineIORefusal.isResponse(other.span)
      #expect(isResponse == false)
    }
  }
}
