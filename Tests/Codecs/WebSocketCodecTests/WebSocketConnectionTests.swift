import ByteStreams
import TestSupport
import Testing

@testable import WebSocketCodec

/// Each side receives what the other sends, with every agreement on compression and however the bytes are split.
@Suite struct RoundTripTests {
  /// The output of Node's `zlib.deflateRawSync`, without the byte of RFC 7692 §7.2.3.4. Other implementations accept
  /// it.
  @Test func acceptsAFinalBlockWithoutTheByteAfterIt() {
    let hello: [UInt8] = [0xF3, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00]
    let bytes =
      Frames.frame(1, hello, reserved: 4) + Frames.frame(1, hello + [0x00], reserved: 4)
      // The next message refers to the compression history, and the last message has two fragments.
      + Frames.frame(1, [0xF2, 0x00, 0x11, 0x00, 0x00], reserved: 4) + Frames.text("plain")
      + Frames.frame(1, [0xF3, 0x48], final: false, reserved: 4) + Frames.frame(0, [0xCD, 0xC9, 0xC9, 0x07, 0x00])
    for pieces in [[bytes], bytes.map { [$0] }] {
      #expect(
        transcript(pieces, compression: MessageCompression.Settings())
          == ["text Hello", "text Hello", "text Hello", "text plain", "text Hello"])
    }
    var settings = MessageCompression.Settings()
    settings.inboundResets = true
    let resetting = Frames.frame(1, hello, reserved: 4) + Frames.frame(1, hello, reserved: 4)
    #expect(transcript([resetting], compression: settings) == ["text Hello", "text Hello"])
  }

  /// An agreement on compression, as each side has it.
  struct Agreement: CustomTestStringConvertible {
    var clientWindowBits: Int
    var serverWindowBits: Int
    var clientResets: Bool
    var serverResets: Bool

    var testDescription: String {
      "client \(clientWindowBits)\(clientResets ? " resets" : ""), server \(serverWindowBits)\(serverResets ? " resets" : "")"
    }

    static let all = [8, 9, 12, 15].flatMap { client in
      [9, 12, 15].flatMap { server in
        [false, true].flatMap { clientResets in
          [false, true].map {
            Agreement(
              clientWindowBits: client, serverWindowBits: server, clientResets: clientResets, serverResets: $0)
          }
        }
      }
    }

    func settings(for role: WebSocketRole, threshold: Int) -> MessageCompression.Settings {
      let isClient = role == .client
      var settings = MessageCompression.Settings()
      settings.outboundWindowBits = isClient ? clientWindowBits : serverWindowBits
      settings.inboundWindowBits = isClient ? serverWindowBits : clientWindowBits
      settings.outboundResets = isClient ? clientResets : serverResets
      settings.inboundResets = isClient ? serverResets : clientResets
      settings.threshold = threshold
      return settings
    }
  }

  static let sizes = [0, 1, 125, 126, 127, 128, 129, 1000, 65_535, 65_536, 200_000]

  @Test(arguments: [WebSocketRole.client, .server], [nil, Agreement.all[0], Agreement.all[40]])
  func messagesOfEverySizeArrive(sender: WebSocketRole, agreement: Agreement?) throws {
    var generator = SeededGenerator(seed: 1)
    try converse(
      Self.sizes.flatMap { [Self.text($0, &generator), Self.binary($0, &generator)] }, from: sender, agreement,
      seed: 11)
  }

  @Test(arguments: Agreement.all)
  func randomMessagesArriveWithAllNegotiatedParameters(agreement: Agreement) throws {
    for (seed, sender) in [WebSocketRole.client, .server].enumerated() {
      var generator = SeededGenerator(seed: UInt64(seed))
      let messages = (0..<30).map { index in
        let size = Int.random(in: 0...(index % 5 == 0 ? 5000 : 200), using: &generator)
        return index % 2 == 0 ? Self.text(size, &generator) : Self.binary(size, &generator)
      }
      try converse(messages, from: sender, agreement, seed: UInt64(seed))
    }
  }

  typealias Message = (kind: MessageKind, payload: [UInt8])

  /// Sends `messages` in random fragments with pings in between, splits the bytes at random, and compares the received
  /// messages.
  private func converse(
    _ messages: [Message], from sender: WebSocketRole, _ agreement: Agreement?, seed: UInt64
  ) throws {
    for threshold in [0, 128] {
      var generator = SeededGenerator(seed: seed)
      var from = WebSocketConnection(
        role: sender, compression: agreement?.settings(for: sender, threshold: threshold))
      var to = WebSocketConnection(
        role: sender.peer, compression: agreement?.settings(for: sender.peer, threshold: threshold))
      var wire = ByteQueue()
      for message in messages {
        let fragment = Bool.random(using: &generator) ? Int.max : Int.random(in: 1...300, using: &generator)
        from.sendMessage(
          message.kind, message.payload.span, fragmentBytes: max(fragment, message.payload.count / 100),
          using: &generator, into: &wire)
        if Bool.random(using: &generator) { from.sendPing([1, 2, 3].span, using: &generator, into: &wire) }
      }
      let bytes = wire.copyBytes()
      var received = 0
      var offset = 0
      while offset < bytes.count {
        let end = min(bytes.count, offset + Int.random(in: 1...2000, using: &generator))
        to.receive(bytes.span.extracting(offset..<end))
        offset = end
        while let event = try to.nextEvent() {
          let payload = [UInt8](copying: to.payload)
          guard case .message(let kind) = event else {
            #expect(event == .ping && payload == [1, 2, 3])
            continue
          }
          #expect(kind == messages[received].kind && payload == messages[received].payload)
          received += 1
        }
      }
      #expect(received == messages.count)
      #expect(to.receiveEndOfInput() == .withoutClose)
    }
  }

  /// Text with repetitions, and with characters of every length.
  private static func text(_ size: Int, _ generator: inout SeededGenerator) -> Message {
    let words = ["{\"price\":", "€", "é", "😀", "12.5", "symbol", ",", "\n", "trade"]
    var bytes: [UInt8] = []
    while bytes.count < size {
      let word = Array(words[Int.random(in: 0..<words.count, using: &generator)].utf8)
      bytes += bytes.count + word.count <= size ? word : [0x61]
    }
    return (.text, bytes)
  }

  private static func binary(_ size: Int, _ generator: inout SeededGenerator) -> Message {
    (.binary, (0..<size).map { _ in UInt8(truncatingIfNeeded: generator.next()) })
  }

  /// RFC 7692 §7.2.3.6. zlib writes nothing for empty input after a flush.
  @Test func emptyMessagesAreCompressedRepeatedly() throws {
    try converse(.init(repeating: (.text, []), count: 5), from: .client, Agreement.all.last, seed: 1)
  }

  /// If compression makes a message larger, it is sent uncompressed, unless both sides must keep the same compression
  /// history.
  @Test func aMessageThatDoesNotShrinkIsSentUncompressed() {
    var generator = SeededGenerator(seed: 1)
    let noise = Self.binary(1000, &generator).payload
    for resets in [false, true] {
      var settings = MessageCompression.Settings()
      settings.outboundResets = resets
      var connection = WebSocketConnection(role: .server, compression: settings)
      var output = ByteQueue()
      connection.sendMessage(.binary, noise.span, using: &generator, into: &output)
      let isCompressed = output.bytes[0] & 0x40 != 0
      #expect(isCompressed == !resets)
    }
  }

  /// §5.3: each frame of a client has its own key; frames of a server have no key.
  @Test func onlyTheClientMasks() {
    var generator = SeededGenerator(seed: 1)
    var wire = ByteQueue()
    var client = WebSocketConnection(role: .client)
    for _ in 0..<2 { client.sendMessage(.binary, [0, 0, 0, 0].span, using: &generator, into: &wire) }
    let bytes = wire.copyBytes()
    #expect(bytes.count == 20 && bytes[1] == 0x84 && bytes[2..<6] != bytes[12..<16])
    #expect(bytes[2..<6] == bytes[6..<10])
    var server = WebSocketConnection(role: .server)
    wire.removeAll()
    server.sendMessage(.binary, [7].span, using: &generator, into: &wire)
    #expect(wire.copyBytes() == [0x82, 0x01, 0x07])
  }

  @Test(arguments: [WebSocketRole.client, .server], [nil, MessageCompression.Settings()])
  func aMessageInPartsHasTheBytesOfAllParts(role: WebSocketRole, compression: MessageCompression.Settings?) {
    let payload = Array("an event, with its arguments, ".utf8) + (0..<600).map { UInt8(truncatingIfNeeded: $0 / 7) }
    for (head, tail) in [(0, 0), (1, 0), (0, 1), (3, 1), (4, 2), (7, 3), (20, 630), (300, 300)] {
      var inParts = ByteQueue()
      var whole = ByteQueue()
      var generator = SeededGenerator(seed: 5)
      var connection = WebSocketConnection(role: role, compression: compression)
      let content = payload.span.extracting(head..<max(head, payload.count - tail))
      let parts = MessageParts(
        head: payload.span.extracting(0..<head), content,
        tail: payload.span.extracting((head + content.count)..<payload.count))
      connection.sendMessage(.binary, parts, using: &generator, into: &inParts)
      generator = SeededGenerator(seed: 5)
      connection = WebSocketConnection(role: role, compression: compression)
      connection.sendMessage(.binary, payload.span, using: &generator, into: &whole)
      #expect(inParts.copyBytes() == whole.copyBytes())
    }
  }
}

@Suite struct MaskingTests {
  @Test func masksAsTheStandardSaysAtEveryLengthAndOffset() {
    var generator = SeededGenerator(seed: 9)
    for count in Array(0...70) + [1000] {
      let payload = (0..<count).map { _ in UInt8(truncatingIfNeeded: generator.next()) }
      let key = MaskingKey(using: &generator)
      let octets = (0..<4).map { UInt8(truncatingIfNeeded: key.bytes >> ($0 * 8)) }
      for offset in 0..<8 where offset <= count {
        var output = ByteQueue()
        output.append([1])
        key.advanced(by: offset).append(payload.span.extracting(offset..<count), to: &output)
        let expected = (offset..<count).map { payload[$0] ^ octets[$0 % 4] }
        let masked = Array(output.copyBytes().dropFirst())
        #expect(masked == expected)
      }
    }
  }
}
