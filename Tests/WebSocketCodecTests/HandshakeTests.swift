import ByteStreams
import HTTPCodec
import TestSupport
import Testing

@testable import WebSocketCodec

@Suite struct HandshakeTests {
  /// Answers a request for `/` with `answer`, in which KEY stands for the right accept value, cut into pieces of `size`.
  private func judge(
    _ answer: String, subprotocols: [String] = [], compression: CompressionOffer? = CompressionOffer(), size: Int = 1000
  ) throws(HandshakeError) -> ClientHandshake.Result? {
    var generator = SeededGenerator(seed: 7)
    var request = ClientHandshake.Request(target: "/", host: "example.org")
    request.subprotocols = subprotocols
    request.compression = compression
    var handshake = ClientHandshake(request, using: &generator)
    var written = ByteQueue()
    handshake.write(into: &written)
    let text = written.bytes.text()
    let key = text.components(after: "Sec-WebSocket-Key: ")
    var bytes: [UInt8] = []
    for piece in answer.split(separator: "KEY", omittingEmptySubsequences: false).enumerated() {
      if piece.offset > 0 { bytes += Array(ClientHandshake.accept(for: key).utf8) }
      bytes += Array(piece.element.utf8)
    }
    var input = ByteQueue()
    var offset = 0
    while offset < bytes.count {
      input.append(bytes.span.extracting(offset..<min(bytes.count, offset + size)))
      offset += size
      if let result = try handshake.receive(&input) {
        input.append(bytes.span.extracting(min(bytes.count, offset)..<bytes.count))
        let rest = input.bytes.text()
        #expect(rest == "rest")
        return result
      }
    }
    return nil
  }

  private let good =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, upgrade\r\nSec-WebSocket-Accept: KEY\r\n"

  @Test func computesTheAcceptValueOfRFC6455() {
    #expect(ClientHandshake.accept(for: "dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
  }

  @Test(arguments: [1, 2, 7, 1000])
  func acceptsAGoodAnswerAndLeavesWhatFollows(size: Int) throws {
    let result = try judge(good + "\r\nrest", size: size)
    guard case .accepted(let agreement)? = result else {
      Issue.record("not accepted")
      return
    }
    #expect(agreement == .init(subprotocol: nil, compression: nil))
  }

  @Test func passesOverInterimAnswers() throws {
    let result = try judge("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + good + "\r\nrest")
    guard case .accepted? = result else {
      Issue.record("not accepted")
      return
    }
  }

  @Test func reportsARefusalWithItsFields() throws {
    let result = try judge("HTTP/1.1 503 Busy\r\nRetry-After: 7\r\n\r\nrest")
    guard case .refused(let refusal)? = result else {
      Issue.record("not refused")
      return
    }
    #expect(refusal.status == 503 && refusal.field("retry-after") == "7" && refusal.reason == "Busy")
  }

  @Test(arguments: [
    ("HTTP/1.1 101 X\r\nConnection: upgrade\r\nSec-WebSocket-Accept: KEY\r\n\r\n", HandshakeError.noUpgrade),
    ("HTTP/1.1 101 X\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: KEY\r\n\r\n", .noConnectionUpgrade),
    (
      "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: close\r\nSec-WebSocket-Accept: KEY\r\n\r\n",
      .noConnectionUpgrade
    ),
    ("HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", .wrongAccept),
    (
      "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
      .wrongAccept
    ),
  ])
  func refusesAnAnswerThatIsNoUpgrade(answer: String, expected: HandshakeError) {
    #expect(throws: expected) { try judge(answer) }
  }

  @Test(arguments: [
    "x-unknown", "permessage-deflate, permessage-deflate", "permessage-deflate; foo",
    "permessage-deflate; server_max_window_bits=7",
    "permessage-deflate; server_max_window_bits=16", "permessage-deflate; server_max_window_bits=08",
    "permessage-deflate; server_max_window_bits", "permessage-deflate; client_no_context_takeover=1",
    "permessage-deflate; client_max_window_bits=0",
    "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
    "permessage-deflate; =", "permessage-deflate; server_max_window_bits=\"9;",
  ])
  func refusesExtensionsThatWereNotOffered(value: String) {
    #expect(throws: HandshakeError.self) { try judge(good + "Sec-WebSocket-Extensions: \(value)\r\n\r\nrest") }
  }

  @Test func refusesCompressionThatWasNotOffered() {
    #expect(throws: HandshakeError.badExtension("'permessage-deflate' was not offered")) {
      try judge(good + "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\nrest", compression: nil)
    }
  }

  @Test func takesTheAgreedParametersOfCompression() throws {
    let value =
      "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=10; client_max_window_bits=\"9\""
    guard case .accepted(let agreement)? = try judge(good + "Sec-WebSocket-Extensions: \(value)\r\n\r\nrest") else {
      Issue.record("not accepted")
      return
    }
    let settings = try #require(agreement.compression)
    #expect(settings.inboundResets && settings.outboundResets)
    #expect(settings.inboundWindowBits == 10 && settings.outboundWindowBits == 9)
  }

  @Test func acceptsOnlyAnOfferedSubprotocol() throws {
    guard
      case .accepted(let agreement)? = try judge(
        good + "Sec-WebSocket-Protocol: b\r\n\r\nrest", subprotocols: ["a", "b"])
    else {
      Issue.record("not accepted")
      return
    }
    #expect(agreement.subprotocol == "b")
    #expect(throws: HandshakeError.self) {
      try judge(good + "Sec-WebSocket-Protocol: c\r\n\r\nrest", subprotocols: ["a"])
    }
    #expect(throws: HandshakeError.self) { try judge(good + "Sec-WebSocket-Protocol: a\r\n\r\nrest") }
  }

  @Test func refusesAnEndlessHead() {
    let answer = "HTTP/1.1 200 OK\r\nX: " + String(repeating: "x", count: 100_000)
    #expect(throws: HandshakeError.self) { try judge(answer) }
  }
}

extension String {
  /// What stands between `marker` and the end of its line.
  fileprivate func components(after marker: String) -> String {
    for line in split(whereSeparator: \.isNewline) where line.hasPrefix(marker) {
      return String(line.dropFirst(marker.count))
    }
    return ""
  }
}
