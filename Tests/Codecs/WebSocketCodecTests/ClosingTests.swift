import ByteStreams
import TestSupport
import Testing

@testable import WebSocketCodec

/// Pongs, the closing handshake, and which side ends TCP (RFC 6455 §5.5, §7).
@Suite struct ClosingTests {
  /// Passes `input` to the connection, writes its replies, and reads the replies like the other side.
  private func replies(
    of connection: inout WebSocketConnection, to input: [UInt8], seed: UInt64 = 1
  ) -> [String] {
    var generator = SeededGenerator(seed: seed)
    connection.receive(input.span)
    do throws(WebSocketProtocolError) {
      while try connection.nextEvent() != nil {}
    } catch {
      // The close frame that reports the error is among the replies.
    }
    var output = ByteQueue()
    connection.writeReplies(using: &generator, into: &output)
    let owes = connection.hasPendingReplies
    #expect(!owes)
    return transcript([output.copyBytes()], role: connection.role.peer)
  }

  @Test func respondsToPingsInOrder() {
    var connection = WebSocketConnection(role: .client)
    let pings = (0..<10).flatMap { Frames.frame(9, Array("payload-\($0)".utf8)) }
    #expect(replies(of: &connection, to: pings) == (0..<10).map { "pong payload-\($0)" })
    #expect(replies(of: &connection, to: []) == [])
  }

  /// Case 5.6 of the Autobahn suite: the ping arrived before the message that is echoed.
  @Test func respondsToPingsBeforeTheNextMessage() throws {
    var generator = SeededGenerator(seed: 1)
    var output = ByteQueue()
    var connection = WebSocketConnection(role: .client)
    connection.receive((Frames.text("a", final: false) + Frames.frame(9, [0x70]) + Frames.frame(0, [0x62])).span)
    #expect(try connection.nextEvent() == .ping)
    #expect(try connection.nextEvent() == .message(.text))
    connection.sendMessage(.text, Array("ab".utf8).span, using: &generator, into: &output)
    connection.writeReplies(using: &generator, into: &output)
    #expect(transcript([output.copyBytes()], role: .server) == ["pong p", "text ab"])
  }

  /// Attack: endless pings from a peer that reads no pongs. Only the newest ping gets a pong, and memory stays small.
  @Test func respondsOnlyToTheNewestPingOfAFlood() {
    var connection = WebSocketConnection(role: .client)
    for round in 0..<1000 {
      for number in 0..<17 {
        connection.receive(Frames.frame(9, .init(repeating: UInt8(number), count: 125)).span)
        while (try? connection.nextEvent()) != nil {}
      }
      if round < 2 { continue }
      let memory = connection.allocatedBytes
      #expect(memory < 8192)
    }
    let last = replies(of: &connection, to: Frames.frame(9, Array("last".utf8)))
    #expect(last.count <= 16 && last.last == "pong last")
    connection.releaseStorageIfIdle()
    let memory = connection.allocatedBytes
    #expect(memory == 0)
  }

  @Test func echoesTheCloseCode() {
    for code: UInt16 in [1000, 1001, 3000, 4999] {
      var connection = WebSocketConnection(role: .client)
      #expect(replies(of: &connection, to: Frames.close(code, Array("bye".utf8))) == ["close \(code) "])
    }
    var connection = WebSocketConnection(role: .client)
    #expect(replies(of: &connection, to: Frames.frame(9) + Frames.frame(8)) == ["pong ", "close - "])
  }

  @Test func reportsAnErrorOnce() {
    var connection = WebSocketConnection(role: .client)
    #expect(replies(of: &connection, to: Frames.frame(9) + Frames.frame(3)) == ["close 1002 "])
    #expect(replies(of: &connection, to: Frames.frame(3)) == [])
    let canSend = connection.canSend
    let failure = connection.failure
    #expect(!canSend && failure?.closeCode == 1002)
  }

  @Test func theServerEndsTCPFirst() throws {
    var generator = SeededGenerator(seed: 1)
    var toServer = ByteQueue()
    var toClient = ByteQueue()
    var client = WebSocketConnection(role: .client)
    var server = WebSocketConnection(role: .server)
    func states() -> [Bool] {
      [client.isClosing, client.shouldEndTransport, server.isClosing, server.shouldEndTransport]
    }
    #expect(states() == [false, false, false, false])
    client.sendClose(code: 1000, reason: "done", using: &generator, into: &toServer)
    #expect(states() == [true, false, false, false])
    server.receive(toServer.bytes)
    #expect(try server.nextEvent() == .close(code: 1000, reason: "done"))
    #expect(try server.nextEvent() == nil)
    #expect(states() == [true, false, true, false])
    server.writeReplies(using: &generator, into: &toClient)
    #expect(states() == [true, false, true, true])
    client.receive(toClient.bytes)
    #expect(try client.nextEvent() == .close(code: 1000, reason: ""))
    client.writeReplies(using: &generator, into: &toServer)
    #expect(states() == [true, false, true, true])
    #expect(client.receiveEndOfInput() == .clean)
  }

  /// §5.5.1: messages may still arrive after our close frame, but we send nothing after it.
  @Test func readsMessagesAfterItsOwnCloseFrame() throws {
    var generator = SeededGenerator(seed: 1)
    var output = ByteQueue()
    var connection = WebSocketConnection(role: .client)
    connection.sendClose(code: 1001, using: &generator, into: &output)
    let size = output.count
    connection.receive((Frames.frame(9) + Frames.text("late") + Frames.close(1001)).span)
    #expect(try connection.nextEvent() == .ping)
    #expect(try connection.nextEvent() == .message(.text))
    #expect(try connection.nextEvent() == .close(code: 1001, reason: ""))
    #expect(try connection.nextEvent() == nil)
    connection.writeReplies(using: &generator, into: &output)
    connection.sendPing(Span(), using: &generator, into: &output)
    connection.sendClose(code: 1000, using: &generator, into: &output)
    let sizeAfterwards = output.count
    #expect(sizeAfterwards == size)
  }

  @Test func reportsHowTheInputEnded() {
    func ending(_ bytes: [UInt8]) -> WebSocketEnding {
      var connection = WebSocketConnection(role: .client)
      connection.receive(bytes.span)
      while (try? connection.nextEvent()) != nil {}
      return connection.receiveEndOfInput()
    }
    #expect(ending([]) == .withoutClose)
    #expect(ending(Frames.text("a")) == .withoutClose)
    #expect(ending([0x81]) == .truncated)
    #expect(ending(Array(Frames.text("abc").dropLast())) == .truncated)
    #expect(ending(Frames.text("abc", final: false)) == .truncated)
    #expect(ending(Frames.close(1000)) == .clean)
    guard case .failed(let error) = ending(Frames.frame(3)) else {
      Issue.record("not failed")
      return
    }
    #expect(error.closeCode == 1002)
  }

  @Test func cutsALongReasonBetweenCharacters() {
    var generator = SeededGenerator(seed: 1)
    var output = ByteQueue()
    var connection = WebSocketConnection(role: .client)
    connection.sendClose(
      code: 1011, reason: String(repeating: "€", count: 50), using: &generator, into: &output)
    #expect(transcript([output.copyBytes()], role: .server) == ["close 1011 \(String(repeating: "€", count: 41))"])
  }

  /// Attack: endless bytes after the close frame, or after an error.
  @Test(arguments: [Frames.close(1000), Frames.frame(3)])
  func keepsNoBytesThatArriveAfterTheEnd(end: [UInt8]) throws {
    var connection = WebSocketConnection(role: .client)
    connection.receive(end.span)
    while (try? connection.nextEvent()) != nil {}
    let garbage = [UInt8](repeating: 0x81, count: 100_000)
    for _ in 0..<10 {
      connection.receive(garbage.span)
      connection.receive { $0.append(garbage) }
      #expect(try connection.nextEvent() == nil)
    }
    connection.releaseStorageIfIdle()
    let buffered = connection.bufferedBytes
    let allocated = connection.allocatedBytes
    #expect(buffered == 0 && allocated <= 256)
  }
}
