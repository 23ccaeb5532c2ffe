import ByteStreams
import TestSupport
import Testing

@testable import WebSocketCodec

/// Large messages that are compressed before they are sent, a part at a time.
@Suite struct CompressionAheadTests {
  private static let large = (0..<400).map { "{\"number\":\($0),\"name\":\"item \($0 % 7)\"}" }.joined(separator: ",")

  private struct Sender: ~Copyable {
    var socket: WebSocketConnection
    var output = ByteQueue()
    var generator = SeededGenerator(seed: 1)

    init(resets: Bool = false) {
      var settings = MessageCompression.Settings()
      settings.outboundResets = resets
      settings.largestAtOnce = 1_000
      socket = WebSocketConnection(role: .client, compression: settings)
    }

    mutating func send(_ text: String, _ number: UInt64? = nil) {
      let bytes = Array(text.utf8)
      socket.sendMessage(.text, bytes.span, number: number, using: &generator, into: &output)
    }

    mutating func compress(_ text: String, _ number: UInt64, atMost size: Int) {
      let bytes = Array(text.utf8)
      socket.compressAhead(bytes.span, number: number, atMost: size)
    }

    /// The messages that the peer receives.
    func received(resets: Bool = false) throws -> [String] {
      var settings = MessageCompression.Settings()
      settings.inboundResets = resets
      var peer = WebSocketConnection(role: .server, compression: settings)
      peer.receive(output.bytes)
      var texts: [String] = []
      while let event = try peer.nextEvent() {
        if case .message = event { texts.append(peer.payload.text()) }
      }
      return texts
    }
  }

  private func small(_ number: Int) -> String { String(repeating: "item \(number) ", count: 50) }

  @Test(arguments: [1, 7, 1_000, 100_000], [false, true])
  func aMessageThatIsCompressedInPartsArrives(size: Int, resets: Bool) throws {
    var sender = Sender(resets: resets)
    sender.send(small(0))
    for number in 1...2 {
      let count = Self.large.utf8.count
      for _ in 0..<(count + size - 1) / size {
        #expect(sender.socket.messageAhead?.isComplete != true)
        sender.compress(Self.large, UInt64(number), atMost: size)
      }
      #expect(sender.socket.messageAhead?.isComplete == true)
      let before = sender.output.count
      sender.send(Self.large, UInt64(number))
      #expect(sender.output.count - before < count / 2, "it is compressed")
      #expect(sender.socket.messageAhead == nil)
      sender.send(small(number))
    }
    #expect(try sender.received(resets: resets) == [small(0), Self.large, small(1), Self.large, small(2)])
  }

  @Test func messagesBetweenThePartsAreNotCompressed() throws {
    var sender = Sender()
    sender.send(small(0))
    sender.compress(Self.large, 1, atMost: 5_000)
    let before = sender.output.count
    sender.send(small(1))
    #expect(sender.output.count - before > small(1).utf8.count)
    sender.compress(Self.large, 1, atMost: 100_000)
    sender.send(Self.large, 1)
    sender.send(small(2))
    #expect(try sender.received() == [small(0), small(1), Self.large, small(2)])
  }

  @Test func aLargeMessageThatIsNotCompressedAheadIsSentAsItIs() throws {
    var sender = Sender()
    sender.send(Self.large)
    #expect(sender.output.count > Self.large.utf8.count)
    sender.send(small(1))
    #expect(try sender.received() == [Self.large, small(1)])
  }

  /// The message may expire, or be replaced, while it is being compressed or afterwards.
  @Test(arguments: [5_000, 100_000])
  func aPreparedMessageThatIsNotSentLeavesNoState(size: Int) throws {
    for isReplaced in [false, true] {
      var sender = Sender()
      sender.send(small(0))
      sender.compress(Self.large, 1, atMost: size)
      if isReplaced {
        sender.compress(Self.large, 2, atMost: 100_000)
        sender.send(Self.large, 2)
      } else {
        sender.socket.resetCompressionHistory()
      }
      let before = sender.output.count
      sender.send(small(1))
      #expect(sender.output.count - before < small(1).utf8.count)
      #expect(try sender.received() == [small(0)] + (isReplaced ? [Self.large] : []) + [small(1)])
    }
  }
}
