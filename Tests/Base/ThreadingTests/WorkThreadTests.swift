import Glibc
import Synchronization
import Testing

@testable import Threading

@Suite struct WorkThreadTests {
  /// Counts the threads that are started, and runs each of them.
  private final class Starter: Sendable {
    let count = Atomic(0)
    let canStart: Bool

    init(canStart: Bool = true) { self.canStart = canStart }

    func start(_ body: @escaping @Sendable () -> Void) -> Bool {
      guard canStart else { return false }
      count.add(1, ordering: .relaxed)
      return DetachedThread.start(named: "test", body)
    }
  }

  @Test func workRunsInOrderOnOneThread() async {
    let starter = Starter()
    let thread = WorkThread { starter.start($0) }
    let order = Locked<[Int]>([])
    let isQueued = Atomic(false)
    await withCheckedContinuation { done in
      thread.run { while !isQueued.load(ordering: .acquiring) { sched_yield() } }
      for index in 0..<100 { thread.run { order.withLock { $0.append(index) } } }
      thread.run { done.resume() }
      isQueued.store(true, ordering: .releasing)
    }
    #expect(order.withLock { $0 } == Array(0..<100))
    #expect(starter.count.load(ordering: .relaxed) == 1)
  }

  @Test func workThatFollowsLaterRunsToo() async {
    let thread = WorkThread(named: "test")
    for _ in 0..<10 {
      await withCheckedContinuation { done in thread.run { done.resume() } }
    }
  }

  @Test func workRunsInTheCallIfNoThreadCanBeStarted() {
    let starter = Starter(canStart: false)
    let thread = WorkThread { starter.start($0) }
    let count = Atomic(0)
    for expected in 1...3 {
      thread.run { count.add(1, ordering: .relaxed) }
      #expect(count.load(ordering: .relaxed) == expected)
    }
  }
}
