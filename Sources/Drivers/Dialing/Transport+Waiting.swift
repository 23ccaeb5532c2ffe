import ByteStreams
import HTTPCodec
import Reactor

/// Why a wait for a transport ended.
package enum TransportError: Error {
  /// The owner has closed the transport.
  case closed
  /// The peer has ended the stream.
  case ended
  /// The system's error code.
  case failed(Int32)
}

/// Waits for handshakes, in which both sides alternate.
extension Transport {
  /// Maximum bytes per read. It is small, since responses are short and the bytes after a response may belong to the
  /// next layer.
  private static var bytesPerRead: Int { 4_096 }
  /// How long to wait for the body of a refusal. The status code is already known, and the part of the body that
  /// arrives in this time is enough for an operator.
  private static var bodyTimeout: TimeSpan { .seconds(1) }

  /// Writes the whole output.
  package func flushAll() async throws(TransportError) {
    // The owner may have closed the channel between two phases, when no task was waiting for it.
    guard !channel.isClosed else { throw .closed }
    while true {
      switch flush() {
      case .done: return
      case .paused:
        await channel.loop.yieldTurn()
        guard !channel.isClosed else { throw .closed }
      case .blocked:
        let outcome = await channel.writable()
        guard outcome == .ready, !channel.isClosed else { throw .closed }
      case .failed(let code): throw .failed(code)
      }
    }
  }

  /// Waits for bytes, and appends them to `input`.
  ///
  /// - Parameter limit: the maximum of one read; nil for the default, which suffices for a short response.
  package func receiveSome(into input: inout ByteQueue, atMost limit: Int? = nil) async throws(TransportError) {
    while true {
      let outcome = await channel.readable()
      guard outcome == .ready, !channel.isClosed else { throw .closed }
      switch receive(into: &input, atMost: limit ?? Self.bytesPerRead) {
      case .bytes: return
      case .wouldBlock: continue
      case .endOfStream: throw .ended
      case .failed(let code): throw .failed(code)
      }
    }
  }

  /// Waits for bytes of the TLS handshake, or for the end of the stream, which the handshake reports as an error.
  func receiveHandshakeBytes() async throws(TransportError) {
    while true {
      let outcome = await channel.readable()
      guard outcome == .ready, !channel.isClosed else { throw .closed }
      switch receiveHandshake() {
      case .bytes, .endOfStream: return
      case .wouldBlock: continue
      case .failed(let code): throw .failed(code)
      }
    }
  }

  /// The part of the body of `refusal` that arrives within `bodyTimeout`, up to the limit of `RefusalBody`.
  package func receiveBody(
    of refusal: HTTPRefusal, _ input: inout ByteQueue, on loop: LoopContext
  ) async throws(TransportError) -> String {
    var body = RefusalBody(of: refusal)
    let deadline = loop.now + Self.bodyTimeout
    body.receive(&input)
    while !body.isComplete {
      let outcome = await channel.readable(until: deadline)
      guard !channel.isClosed else { throw .closed }
      guard outcome == .ready else { break }
      switch receive(into: &input, atMost: Self.bytesPerRead) {
      case .bytes, .wouldBlock: body.receive(&input)
      case .endOfStream, .failed: body.receiveEndOfInput()
      }
    }
    return body.bytes.text()
  }
}
