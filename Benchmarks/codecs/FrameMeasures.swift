import ByteStreams
import WebSocketCodec

/// Text messages per second that the frame codec reads from a stream in pieces of 64 KiB.
func measureFrames(_ comparison: Comparison) {
  for bytes in [100, 4096] {
    let messages = SampleMessages.make(bytes == 100 ? 5000 : 500, bytes: bytes)
    let stream = OutputBox()
    var server = WebSocketConnection(role: .server)
    var generator = SplitMix(state: 2)
    for message in messages { server.sendMessage(.text, message.span, using: &generator, into: &stream.queue) }
    let pieces = cut(stream.queue.copyBytes(), into: 64 * 1024)
    let client = Receiver(WebSocketConnection(role: .client))
    comparison.run("frames_\(bytes)", unit: "messages/s", amount: Double(messages.count)) {
      timed { pieces.forEach(client.receive) }
    }
  }
}

/// A stream in the pieces that a socket returns.
func cut(_ bytes: [UInt8], into size: Int) -> [[UInt8]] {
  stride(from: 0, to: bytes.count, by: size).map { Array(bytes[$0..<min($0 + size, bytes.count)]) }
}

/// The receiving end of a connection. It reads every message.
final class Receiver {
  private var connection: WebSocketConnection
  private let results = Results()

  init(_ connection: consuming WebSocketConnection) { self.connection = connection }

  func receive(_ piece: [UInt8]) {
    connection.receive(piece.span)
    do {
      while try connection.nextEvent() != nil { results.sum += connection.payload.count }
    } catch {
      fatalError("the frames were refused: \(error)")
    }
  }
}
