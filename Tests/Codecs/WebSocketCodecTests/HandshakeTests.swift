import ByteStreams
import HTTPCodec
import TestSupport
import Testing

@testable import WebSocketCodec

@Suite struct HandshakeTests {
  /// Responds to a request for `/` with `response`, split into pieces of `size`. `KEY` in `response` is the placeholder
  /// for the right accept value.
  private func judge(
    _ response: String, subprotocols: [String] = [], compression: CompressionOffer? = CompressionOffer(),
    size: Int = 1000
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
    for piece in response.split(separator: "KEY", omittingEmptySubsequences: false).enumerated() {
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
  func acceptsAValidResponseAndLeavesTheBytesAfterIt(size: Int) throws {
    let result = try judge(good + "\r\nrest", size: size)
    guard case .accepted(let agreement)? = result else {
      Issue.record("not accepted")
      return
    }
    #expect(agreement == .init(subprotocol: nil, compression: nil))
  }

  @Test func skipsInterimResponses() throws {
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
    (
      "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: KEY\r\nSec-WebSocket-Accept: KEY\r\n\r\n",
      .wrongAccept
    ),
    (
      "HTTP/1.1 101 X\r\nUpgrade: websocket, h2c\r\nConnection: upgrade\r\nSec-WebSocket-Accept: KEY\r\n\r\n",
      .noUpgrade
    ),
    (
      "HTTP/1.0 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: KEY\r\n\r\n",
      .notHTTP11
    ),
    ("SSH-2.0-OpenSSH_9.2\r\n", .notHTTP(.malformedStatusLine)),
    (
      String(repeating: "HTTP/1.1 103 Early Hints\r\n\r\n", count: 1000), .tooManyInterimResponses(limit: 8)
    ),
  ])
  func refusesAResponseThatIsNotAnUpgrade(response: String, expected: HandshakeError) {
    #expect(throws: expected) { try judge(response) }
  }

  @Test(arguments: [
    "x-unknown", "permessage-deflate, permessage-deflate", "permessage-deflate; foo",
    "permessage-deflate; server_max_window_bits=7",
    "permessage-deflate; server_max_window_bits=16", "permessage-deflate; server_max_window_bits=08",
    "permessage-deflate; server_max_window_bits", "permessage-deflate; client_no_context_takeover=1",
    "permessage-deflate; client_max_window_bits=0",
    "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
    "permessage-deflate; =", "permessage-deflate; server_max_window_bits=\"9;", "permessage-deflate;",
    "permessage-deflate;; client_no_context_takeover", "permessage-deflate client_no_context_takeover",
    "permessage-deflate; server_max_window_bits=", "permessage-deflate; server_max_window_bits=\"\"",
    "permessage-deflate; server_max_window_bits=+9", "permessage-deflate; client_max_window_bits",
    "permessage-deflate\r\nSec-WebSocket-Extensions: permessage-deflate", "Permessage-Deflate",
    "permessage-deflate; server_max_window_bits=99999999999999999999",
  ])
  func refusesExtensionsThatWereNotOffered(value: String) {
    #expect(throws: HandshakeError.self) { try judge(good + "Sec-WebSocket-Extensions: \(value)\r\n\r\nrest") }
  }

  @Test func refusesCompressionThatWasNotOffered() {
    #expect(throws: HandshakeError.badExtension("'permessage-deflate' was not offered")) {
      try judge(good + "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\nrest", compression: nil)
    }
  }

  @Test func appliesTheAgreedParametersOfCompression() throws {
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

  @Test(arguments: ["\"1\\0\"", "10", " 10", "\"10\""])
  func readsAWindowHoweverItIsWritten(value: String) throws {
    let response =
      good + "Sec-WebSocket-Extensions: permessage-deflate ; server_max_window_bits = \(value) \r\n\r\nrest"
    guard case .accepted(let agreement)? = try judge(response) else {
      Issue.record("not accepted")
      return
    }
    #expect(agreement.compression?.inboundWindowBits == 10)
  }

  /// zlib cannot produce raw DEFLATE data with this window, so everything is sent uncompressed.
  @Test func acceptsAWindowOfEightBitsForOutgoingMessages() throws {
    let response = good + "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=8\r\n\r\nrest"
    guard case .accepted(let agreement)? = try judge(response) else {
      Issue.record("not accepted")
      return
    }
    var generator = SeededGenerator(seed: 1)
    var connection = WebSocketConnection(role: .client, compression: agreement.compression)
    var output = ByteQueue()
    connection.sendMessage(.text, [UInt8](repeating: 0x61, count: 1000).span, using: &generator, into: &output)
    let first = output.bytes[0]
    #expect(first == 0x81)
  }

  @Test func refusesAResponseWithoutTheRequestedParameters() throws {
    var offer = CompressionOffer()
    offer.serverResets = true
    offer.serverWindowBits = 10
    #expect(
      offer.fieldValue
        == "permessage-deflate; server_no_context_takeover; server_max_window_bits=10; client_max_window_bits=12")
    for (parameters, isAccepted) in [
      ("server_no_context_takeover; server_max_window_bits=10", true),
      ("server_no_context_takeover; server_max_window_bits=9", true),
      ("server_no_context_takeover; server_max_window_bits=11", false),
      ("server_no_context_takeover", false),
      ("server_max_window_bits=10", false),
    ] {
      let response = good + "Sec-WebSocket-Extensions: permessage-deflate; \(parameters)\r\n\r\nrest"
      if isAccepted {
        #expect(throws: Never.self) { _ = try judge(response, compression: offer) }
      } else {
        #expect(throws: HandshakeError.self) { _ = try judge(response, compression: offer) }
      }
    }
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
    #expect(throws: HandshakeError.self) {
      try judge(good + "Sec-WebSocket-Protocol: a, b\r\n\r\nrest", subprotocols: ["a", "b"])
    }
    #expect(throws: HandshakeError.self) {
      try judge(
        good + "Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: a\r\n\r\nrest", subprotocols: ["a"])
    }
    #expect(throws: HandshakeError.self) { try judge(good + "Sec-WebSocket-Protocol: a\r\n\r\nrest") }
  }

  @Test func refusesAnEndlessHead() {
    let response = "HTTP/1.1 200 OK\r\nX: " + String(repeating: "x", count: 100_000)
    #expect(throws: HandshakeError.self) { try judge(response) }
  }
}

extension String {
  /// The text between `marker` and the end of its line.
  fileprivate func components(after marker: String) -> String {
    for line in split(whereSeparator: \.isNewline) where line.hasPrefix(marker) {
      return String(line.dropFirst(marker.count))
    }
    return ""
  }
}
