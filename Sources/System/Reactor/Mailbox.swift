import CLinux
import Glibc
import Host
import Synchronization
import Threading

/// Jobs and signals that other threads post to a loop. The loop is woken once per burst: of all items that are posted
/// until the loop takes them, only the first writes to the eventfd.
final class Mailbox: Sendable {
  struct Post {
    var jobs: [UnownedJob] = []
    var signals: [Signal] = []
    var stop = false

    var isEmpty: Bool { jobs.isEmpty && signals.isEmpty && !stop }
  }

  let descriptor: Int32
  private let post = Locked(Post())
  private let isFilled = Atomic(false)

  init() throws(SystemError) {
    descriptor = eventfd(0, O_NONBLOCK | O_CLOEXEC)
    guard descriptor >= 0 else { throw SystemError("eventfd", code: errno) }
  }

  deinit { SystemCall.close(descriptor) }

  var hasPost: Bool { isFilled.load(ordering: .acquiring) }

  func post(_ job: UnownedJob) {
    put { $0.jobs.append(job) }
  }

  func post(_ signal: Signal) {
    put { $0.signals.append(signal) }
  }

  func requestStop() {
    put { $0.stop = true }
  }

  @inline(__always)
  private func put(_ change: (inout Post) -> Void) {
    let wasEmpty = post.withLock { post in
      let wasEmpty = post.isEmpty
      change(&post)
      if wasEmpty { isFilled.store(true, ordering: .releasing) }
      return wasEmpty
    }
    guard wasEmpty else { return }
    var one: UInt64 = 1
    unsafe write(descriptor, &one, 8)
  }

  func takeAll() -> Post {
    var counter: UInt64 = 0
    unsafe read(descriptor, &counter, 8)
    return post.withLock { post in
      let all = post
      post = Post()
      isFilled.store(false, ordering: .releasing)
      return all
    }
  }
}
