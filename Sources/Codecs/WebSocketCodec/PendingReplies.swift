import ByteStreams

/// The replies that received frames require, stored until they are written. Their size is limited, so a peer that sends
/// pings without reading the pongs cannot fill memory.
struct PendingReplies: ~Copyable {
  /// The payload of the pending close frame.
  enum Close: Equatable {
    case empty
    case code(UInt16)
  }

  /// The pending pongs, oldest first. Each is a length byte and a payload.
  private var pongs = ByteQueue()
  private var pongCount = 0
  var close: Close?

  var isEmpty: Bool { pongCount == 0 && close == nil }
  var allocatedBytes: Int { pongs.allocatedBytes }

  /// Adds a pong. If there are already `limit` pongs, drops them and keeps only the new pong (RFC 6455 §5.5.3).
  mutating func addPong(_ payload: borrowing ByteQueue, atMost limit: Int) {
    if pongCount >= limit { removePongs() }
    pongs.append(UInt8(payload.count))
    pongs.append(payload.bytes)
    pongCount += 1
  }

  mutating func removePongs() {
    pongs.removeAll()
    pongCount = 0
  }

  /// Passes the payload of the oldest pending pong to `write` and removes it. Returns false if there is none.
  mutating func writeOldestPong(_ write: (Span<UInt8>) -> Void) -> Bool {
    guard pongCount > 0 else { return false }
    let count = Int(pongs.bytes[0])
    write(pongs.bytes.extracting(1..<(1 + count)))
    pongs.consume(1 + count)
    pongCount -= 1
    return true
  }

  mutating func releaseStorageIfIdle() {
    if pongCount == 0 { pongs.releaseStorage() }
  }
}
