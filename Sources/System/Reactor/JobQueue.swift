/// The jobs of one loop that are ready to run: a ring that grows by doubling and never shrinks.
///
/// Only the loop's own thread uses it.
@safe
struct JobQueue: ~Copyable {
  private var ring: UnsafeMutablePointer<UnownedJob>
  private var capacity: Int
  private var head = 0
  private var tail = 0

  init(capacity: Int = 1024) {
    precondition(capacity > 0 && capacity & (capacity - 1) == 0, "the capacity of a ring is a power of two")
    self.capacity = capacity
    unsafe ring = .allocate(capacity: capacity)
  }

  deinit { unsafe ring.deallocate() }

  var isEmpty: Bool { head == tail }
  var count: Int { tail &- head }

  mutating func append(_ job: UnownedJob) {
    if count == capacity { grow() }
    unsafe (ring + (tail & (capacity &- 1))).initialize(to: job)
    tail &+= 1
  }

  mutating func popFirst() -> UnownedJob? {
    guard head != tail else { return nil }
    let job = unsafe (ring + (head & (capacity &- 1))).move()
    head &+= 1
    return job
  }

  private mutating func grow() {
    let wider = UnsafeMutablePointer<UnownedJob>.allocate(capacity: capacity * 2)
    for offset in 0..<count {
      unsafe (wider + offset).initialize(to: ring[(head &+ offset) & (capacity &- 1)])
    }
    unsafe ring.deallocate()
    unsafe ring = wider
    tail = count
    head = 0
    capacity *= 2
  }
}
