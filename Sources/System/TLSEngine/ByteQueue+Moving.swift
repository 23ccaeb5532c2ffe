import ByteStreams

extension ByteQueue {
  /// Moves as many bytes as fit to `room`. Returns their number.
  mutating func move(into room: UnsafeMutableRawBufferPointer) -> Int {
    let moved = min(room.count, count)
    guard moved > 0 else { return 0 }
    unsafe bytes.withUnsafeBytes { unsafe room.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[..<moved])) }
    consume(moved)
    return moved
  }

  /// Moves everything to the end of `other`.
  mutating func move(into other: inout ByteQueue) {
    other.append(bytes)
    removeAll()
  }
}
