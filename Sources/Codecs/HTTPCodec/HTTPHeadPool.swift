import ByteStreams

/// The limits of one event loop's connections, and the memory that these connections use in turn for request heads and
/// input.
///
/// A connection takes a head and an input buffer when the first byte of a request arrives, and returns them before it
/// waits. So ten thousand held polls have neither. Not thread-safe: a pool belongs to one loop.
@safe
package final class HTTPHeadPool {
  package let limits: HTTPLimits
  /// The maximum number of free heads. Further heads are freed when returned.
  package let capacity: Int
  private var free: [UnsafeMutablePointer<HTTPRequestHead>]
  /// The memory of one input buffer. One buffer suffices, since a request that arrives in one piece returns the buffer
  /// before the next request is read.
  private var spareInput = ByteQueue()

  package init(limits: HTTPLimits = HTTPLimits(), capacity: Int = 64) {
    self.limits = limits
    self.capacity = capacity
    unsafe free = []
    unsafe free.reserveCapacity(capacity)
  }

  deinit {
    while let head = unsafe free.popLast() { unsafe Self.destroy(head) }
  }

  /// A head or an input buffer with more memory than this is freed when it is returned, so that one large request does
  /// not raise memory use permanently.
  private static var keptBytes: Int { 16 * 1024 }

  /// The number of free heads.
  package var freeCount: Int { unsafe free.count }

  func acquire() -> UnsafeMutablePointer<HTTPRequestHead> {
    if let head = unsafe free.popLast() { return unsafe head }
    let head = UnsafeMutablePointer<HTTPRequestHead>.allocate(capacity: 1)
    unsafe head.initialize(to: HTTPRequestHead())
    return unsafe head
  }

  func release(_ head: UnsafeMutablePointer<HTTPRequestHead>) {
    if unsafe free.count < capacity && head.pointee.allocatedBytes <= Self.keptBytes {
      unsafe head.pointee.removeAll()
      unsafe free.append(head)
    } else {
      unsafe Self.destroy(head)
    }
  }

  /// Gives the memory of a returned buffer to `input`, which must have no memory.
  func lendInput(to input: inout ByteQueue) { swap(&spareInput, &input) }

  /// Takes the memory of `input`, unless the bytes in it need that memory. Bytes that fit into a much smaller buffer
  /// are moved to such a buffer. Without this move, a client that has sent one byte of its next request would keep the
  /// memory of a large read until that request is complete.
  func takeInput(from input: inout ByteQueue) {
    guard !input.isEmpty else { return takeMemory(of: &input) }
    guard input.allocatedBytes >= 2 * max(input.count, Self.smallestInput) else { return }
    var own = ByteQueue(capacity: input.count)
    own.append(input.bytes)
    swap(&own, &input)
    own.removeAll()
    takeMemory(of: &own)
  }

  /// The smallest capacity of a buffer, in bytes.
  private static var smallestInput: Int { 256 }

  private func takeMemory(of input: inout ByteQueue) {
    if spareInput.allocatedBytes == 0, input.allocatedBytes <= Self.keptBytes {
      swap(&spareInput, &input)
    } else {
      input.releaseStorage()
    }
  }

  private static func destroy(_ head: UnsafeMutablePointer<HTTPRequestHead>) {
    unsafe head.deinitialize(count: 1)
    unsafe head.deallocate()
  }
}
