import ByteStreams
import TestSupport
import Testing

@testable import WebSocketCodec

/// Messages that become large when they are decompressed.
@Suite struct InflationPauseTests {
  private static let atOnce = 1 << 20
  /// A part of the input that is decompressed at once becomes at most this large.
  private static let largestPart = 5 << 18

  private func messages(_ payloads: [[UInt8]]) -> ByteQueue {
    var sender = WebSocketConnection(role: .server, compression: MessageCompression.Settings())
    var output = ByteQueue()
    var generator = SeededGenerator(seed: 1)
    for payload in payloads { sender.sendMessage(.binary, payload.span, using: &generator, into: &output) }
    return output
  }

  @Test func aPauseFollowsOneMebibyteOfDecompressedBytes() throws {
    let large = [UInt8](repeating: 0x20, count: 15 << 20)
    let payloads = [[1, 2, 3], large, [4], large, [UInt8](repeating: 7, count: 2_000)]
    var settings = MessageCompression.Settings()
    settings.inflatedAtOnce = Self.atOnce
    var receiver = WebSocketConnection(role: .client, compression: settings)
    receiver.receive(messages(payloads).bytes)
    var received: [[UInt8]] = []
    var pauses = 0
    var atLastPause = 0
    repeat {
      while try receiver.nextEvent() != nil {
        let count = receiver.payload.count
        let message = receiver.takeMessage()
        let (taken, isEmpty) = (message.count, receiver.payload.isEmpty)
        #expect(taken == count && isEmpty)
        received.append(message.copyBytes())
      }
      let total = received.reduce(receiver.bufferedBytes) { $0 + $1.count }
      #expect(total - atLastPause <= Self.atOnce + Self.largestPart)
      atLastPause = total
      pauses += 1
    } while receiver.takePause()
    #expect(received == payloads)
    #expect(pauses > 10)
  }

  @Test func nothingPausesWithoutALimit() throws {
    var receiver = WebSocketConnection(role: .client, compression: MessageCompression.Settings())
    receiver.receive(messages([[UInt8](repeating: 0x20, count: 15 << 20)]).bytes)
    let event = try receiver.nextEvent()
    let pauses = receiver.takePause()
    #expect(event != nil && !pauses)
  }

  @Test func aMessageInOneFrameIsTakenFromTheInput() throws {
    var output = ByteQueue()
    output.append([0x82, 2, 5, 6, 0x82, 1, 7])
    var receiver = WebSocketConnection(role: .client)
    receiver.receive(output.bytes)
    var messages: [[UInt8]] = []
    while try receiver.nextEvent() != nil {
      let message = receiver.takeMessage()
      messages.append(message.copyBytes())
    }
    #expect(messages == [[5, 6], [7]])
  }
}
