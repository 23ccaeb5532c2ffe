import ByteStreams

/// What the peer's frames made us owe it, kept until it is written: so a peer that sends pings and reads no answers costs a
/// bounded number of bytes.
struct OwedReplies: ~Copyable {
  /// The payload of the close frame that is owed.
  enum Close: Equatable {
    case empty
    case code(UInt16)
  }

  /// Pongs owed, oldest first: each a byte that tells its length, and its payload.
  private var pongs = ByteQueue()
  private var pongCount = 0
  var close: Close?

  var isEmpty: Bool { pongCount == 0 && close == nil }
  var allocatedBytes: Int { pongs.allocatedBytes }

  /// Owes a pong; where more than `limit` would be owed, only this newest one (RFC 6455 §5.5.3).
  mutating func owePong(_ payload: borrowing ByteQueue, atMost limit: Int) {
    if pongCount >= limit { removePongs() }
    pongs.append(UInt8(payload.count))
    pongs.append(payload.bytes)
    pongCount += 1
  }

  mutating func removePongs() {
    pongs.removeAll()
    pongCount = 0
  }

  /// Gives the oldest pong owed to `write`, and owes it no more; false when there is none.
  mutating func payPong(_ write: (Span<UInt8>) -> Void) -> Bool {
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
