/// What the connections of one event loop share: the limits, and the memory for request heads.
///
/// A connection takes a head when the first byte of a request arrives and returns it before it waits, so ten thousand held polls own
/// none. Not thread-safe: a pool belongs to one loop.
@safe
package final class HTTPHeadPool {
  package let limits: HTTPLimits
  /// The maximum number of free heads. Further heads are freed when returned.
  package let capacity: Int
  private var free: [UnsafeMutablePointer<HTTPRequestHead>]

  package init(limits: HTTPLimits = HTTPLimits(), capacity: Int = 64) {
    self.limits = limits
    self.capacity = capacity
    unsafe free = []
    unsafe free.reserveCapacity(capacity)
  }

  deinit {
    while let head = unsafe free.popLast() { unsafe Self.destroy(head) }
  }

  /// The number of free heads.
  package var freeCount: Int { unsafe free.count }

  func acquire() -> UnsafeMutablePointer<HTTPRequestHead> {
    if let head = unsafe free.popLast() { return unsafe head }
    let head = UnsafeMutablePointer<HTTPRequestHead>.allocate(capacity: 1)
    unsafe head.initialize(to: HTTPRequestHead())
    return unsafe head
  }

  func release(_ head: UnsafeMutablePointer<HTTPRequestHead>) {
    // A head that has grown large is freed, so that one large request does not raise memory use permanently.
    if unsafe free.count < capacity && head.pointee.allocatedBytes <= 16 * 1024 {
      unsafe head.pointee.removeAll()
      unsafe free.append(head)
    } else {
      unsafe Self.destroy(head)
    }
  }

  private static func destroy(_ head: UnsafeMutablePointer<HTTPRequestHead>) {
    unsafe head.deinitialize(count: 1)
    unsafe head.deallocate()
  }
}
