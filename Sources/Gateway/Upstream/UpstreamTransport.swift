import ByteStreams
import Reactor

/// The bytes of one upstream connection, in and out: over TCP as they are, or through TLS.
///
/// What is to be sent is appended to `output` and leaves with `flush()`. Positions count the plain bytes of `output` from the
/// connection's beginning: `written` is where everything before is with the kernel; `touched` is where something behind can
/// not have reached the peer. For plain TCP they are one; in TLS a record's bytes are seen by the peer as a whole.
final class UpstreamTransport {
  let channel: Channel
  var output = ByteQueue()
  /// The position at the front of `output`.
  private(set) var written: UInt64 = 0

  init(_ channel: Channel) { self.channel = channel }

  /// The position at the end of `output`.
  var end: UInt64 { written + UInt64(output.count) }

  var touched: UInt64 { written }

  /// Bytes the kernel has not taken yet.
  var unsent: Int { output.count }

  /// Reads once, onto the end of `input`.
  func receive(into input: inout ByteQueue, atMost limit: Int) -> IOResult {
    channel.receive(into: &input, atMost: limit)
  }

  enum FlushResult: Equatable {
    case done
    case blocked
    case failed(Int32)
  }

  func flush() -> FlushResult {
    while !output.isEmpty {
      switch channel.send(output.bytes) {
      case .bytes(let count):
        output.consume(count)
        written += UInt64(count)
      case .wouldBlock: return .blocked
      case .endOfStream: return .blocked
      case .failed(let code): return .failed(code)
      }
    }
    // One large message must not leave its size behind.
    if output.allocatedBytes > Self.outputStorageKept { output.releaseStorage() }
    return .done
  }

  private static var outputStorageKept: Int { 512 << 10 }

  func close() { channel.close() }
  func reset() { channel.reset() }
}
