import ByteStreams
import HTTPCodec
import Testing

@Suite struct ResponseHeadDecoderTests {
  @Test func readsAnUpgradeAndLeavesTheFramesAfterIt() throws {
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\r\n"
    let received = Array(head.utf8) + [0x81, 0x00]
    for split in 0...received.count {
      var decoder = HTTPResponseHeadDecoder()
      var taken = try decoder.append(received.span.extracting(0..<split))
      if !decoder.isComplete { taken += try decoder.append(received.span.extracting(split..<received.count)) }
      let complete = decoder.isComplete
      #expect(complete)
      #expect(taken == head.utf8.count)
      let status = decoder.status
      let reason = decoder.reason.text()
      #expect(status == .switchingProtocols)
      #expect(reason == "Switching Protocols")
      let upgrade = decoder.fields.first(.upgrade)?.text()
      #expect(upgrade == "websocket")
      let tokenFound = decoder.fields.list(.connection, contains: "upgrade")
      #expect(tokenFound)
      let copy = decoder.head.text()
      #expect(copy == head)
    }
  }

  @Test(arguments: [
    ("HTTP/2 200\r\n\r\n", HTTPProtocolError.malformedStatusLine),
    ("<html>", .malformedStatusLine),
    ("HTTP/1.1 20x OK\r\n\r\n", .malformedStatusLine),
    ("HTTP/1.1  200 OK\r\n\r\n", .malformedStatusLine),
    ("HTTP/1.1 200 OK\n\n", .bareLineFeed),
    ("HTTP/1.1 200 OK\r\rA", .bareCarriageReturn),
    ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", .whitespaceBeforeColon),
    ("HTTP/1.1 200 OK\r\n A: b\r\n\r\n", .whitespaceBeforeFirstField),
    ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", .foldedField),
    ("HTTP/1.1 200 OK\r\nA: \u{0}\r\n\r\n", .forbiddenByte(0)),
    ("HTTP/1.1 200 OK\r\nAb\r\n\r\n", .missingColon),
    ("HTTP/1.1 200 OK\r\n: b\r\n\r\n", .malformedFieldName),
  ])
  func refusesAMalformedHead(text: String, error: HTTPProtocolError) {
    let bytes = Array(text.utf8)
    #expect(throws: error) {
      var decoder = HTTPResponseHeadDecoder()
      _ = try decoder.append(bytes.span)
    }
    #expect(throws: error) {
      var decoder = HTTPResponseHeadDecoder()
      for index in bytes.indices { _ = try decoder.append(bytes.span.extracting(index..<index + 1)) }
    }
  }

  /// Attack: an endless head that fills memory.
  @Test func endsAHeadThatDoesNotEnd() {
    var limits = HTTPLimits()
    limits.headBytes = 1000
    let line = Array("X-Padding: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".utf8)
    #expect(throws: HTTPProtocolError.headTooLarge(limit: 1000)) {
      var decoder = HTTPResponseHeadDecoder(limits: limits)
      _ = try decoder.append(Array("HTTP/1.1 200 OK\r\n".utf8).span)
      for _ in 0..<100 { _ = try decoder.append(line.span) }
    }
  }
}
