import CLinux
import Glibc
import Host
import Synchronization
import Threading

/// Work that runs entirely on one event loop: a connection, an acceptor, a session's reader.
///
/// `run()` is called as one task on the loop's thread. State that is used only on that loop needs no lock.
package protocol LoopTask: AnyObject {
  func run() async
}

/// An event loop: one thread, one epoll set, and the executor of every task that was started on the loop.
///
/// The actor is the interface for other threads: `submit(_:)` starts work on the loop from any thread. On the loop,
/// work uses the `LoopContext`, which is not `Sendable` and so never leaves the thread.
package actor EventLoop {
  /// Position among the loops of this process, from 0.
  package nonisolated let index: Int
  nonisolated let executor: LoopExecutor

  package nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe executor.asUnownedSerialExecutor() }

  /// Creates the loop and starts its thread.
  package init(index: Int) throws(SystemError) {
    self.index = index
    executor = try LoopExecutor(index: index)
    executor.loop.store(self)
    try executor.startThread()
  }

  /// Creates a loop without a thread, for a simulation: the thread that calls `turn()` and `run(_:)` is its thread.
  init(turnedByCaller index: Int) throws(SystemError) {
    self.index = index
    executor = try LoopExecutor(index: index)
    executor.loop.store(self)
    executor.watchMailbox()
  }

  /// Runs one turn on the calling thread, without sleeping. Returns whether there is already work for the next turn.
  nonisolated func turn() -> Bool { executor.asThread { _ in executor.turnOnce() } }

  /// Runs `body` on the calling thread. During the call, this thread is the loop's thread.
  nonisolated func run<Result>(_ body: (LoopContext) -> Result) -> Result { executor.asThread(body) }

  /// Ends a loop without a thread.
  nonisolated func end() { executor.context.detach() }

  /// Builds a task's object on the loop's thread and runs it there. Callable from any thread.
  package nonisolated func submit(_ build: @escaping @Sendable (LoopContext) -> (any LoopTask)?) {
    Task(executorPreference: executor) { await self.start(build) }
  }

  private func start(_ build: (LoopContext) -> (any LoopTask)?) async {
    guard let task = build(executor.context) else { return }
    await task.run()
  }

  /// Runs the task of an object that was created on this loop.
  func perform(_ task: any LoopTask) async { await task.run() }

  /// Stops the loop after the current turn. `join()` waits until it has stopped. Tasks that still wait are never
  /// resumed.
  package nonisolated func stop() {
    executor.mailbox.requestStop()
  }

  /// Waits until the loop's thread has ended. Must not be called on a loop's own thread.
  package nonisolated func join() {
    precondition(!executor.isCurrentThread, "a loop cannot wait for itself")
    executor.joinThread()
  }
}

/// The thread behind an `EventLoop`.
///
/// Unchecked, since only the loop's own thread uses `context` and `jobs`: each entry point either checks the thread or
/// uses the mailbox. The other properties are immutable or guarded.
@safe
final class LoopExecutor: SerialExecutor, TaskExecutor, @unchecked Sendable {
  let index: Int
  let mailbox: Mailbox
  let loop = Backlink()
  let context: LoopContext
  private var jobs = JobQueue()
  /// The thread of this loop; 0 before it begins and after it ends. Written by the thread itself; read by any thread.
  private let thread = Atomic<pthread_t>(0)

  /// Refers to the loop that an executor serves. The reference is weak, since the loop owns the executor. It is written
  /// once, before the thread starts.
  final class Backlink: @unchecked Sendable {
    private weak var loop: EventLoop?
    func store(_ loop: EventLoop) { self.loop = loop }
    func load() -> EventLoop? { loop }
  }

  init(index: Int) throws(SystemError) {
    self.index = index
    mailbox = try Mailbox()
    context = try LoopContext(index: index)
    context.executor = self
  }

  // MARK: Executor

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    if isCurrentThread { jobs.append(job) } else { mailbox.post(job) }
  }

  func asUnownedSerialExecutor() -> UnownedSerialExecutor { unsafe UnownedSerialExecutor(ordinary: self) }

  func isSameExclusiveExecutionContext(other: LoopExecutor) -> Bool { self === other }

  func checkIsolated() { precondition(isCurrentThread, "loop \(index)'s state was touched from another thread") }

  var isCurrentThread: Bool { thread.load(ordering: .relaxed) == pthread_self() }

  // MARK: Thread

  func startThread() throws(SystemError) {
    let retained = unsafe Unmanaged.passRetained(self).toOpaque()
    var identity = pthread_t()
    let entry: @convention(c) (UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? = { opaque in
      guard let opaque = unsafe opaque else { return nil }
      unsafe Unmanaged<LoopExecutor>.fromOpaque(opaque).takeRetainedValue().threadMain()
      return nil
    }
    let result = unsafe pthread_create(&identity, nil, entry, retained)
    guard result == 0 else {
      unsafe Unmanaged<LoopExecutor>.fromOpaque(retained).release()
      throw SystemError("pthread_create", code: result)
    }
    joinable.withLock { $0 = identity }
  }

  private let joinable = Locked<pthread_t?>(nil)

  func joinThread() {
    let identity = joinable.withLock { value in
      let identity = value
      value = nil
      return identity
    }
    if let identity { pthread_join(identity, nil) }
  }

  private func threadMain() {
    thread.store(pthread_self(), ordering: .relaxed)
    unsafe clinux_set_thread_name("loop \(index)")
    watchMailbox()
    context.attach()
    while turn(mayBlock: true) {}
    context.detach()
    // The identity is cleared, since the system may give it to another thread when this thread has been joined.
    thread.store(0, ordering: .relaxed)
  }

  func watchMailbox() { context.watch(mailbox) }

  /// Calls `body`. During the call, the calling thread is the loop's thread.
  func asThread<Result>(_ body: (LoopContext) -> Result) -> Result {
    thread.store(pthread_self(), ordering: .relaxed)
    context.attach()
    defer { clinux_set_thread_owner(nil) }
    return body(context)
  }

  func turnOnce() -> Bool {
    _ = turn(mayBlock: false)
    return hasWork || mailbox.hasPost
  }

  private var hasWork: Bool { !jobs.isEmpty || context.hasDeferredWork }

  /// Runs one turn of the loop. Returns false if the loop must stop. The order is:
  ///
  /// 1. *Sleep* in epoll, unless a job is ready to run or `mayBlock` is false.
  /// 2. *I/O*: channels record their events and resume the tasks that wait for them.
  /// 3. *Mailbox*: takes the items that other threads have posted, in whole bursts.
  /// 4. *Jobs*: input targets process the input that has arrived. Then every resumed task runs, and the tasks that they
  ///    resume.
  /// 5. *Timers* that are due, and the tasks that they wake. Timers run after the jobs. So input that arrived before a
  ///    deadline is processed before the deadline takes effect, however long the process was stopped.
  /// 6. *Signals* (`Signal`, not signals of the system) that were raised on this thread, and the tasks that they wake.
  ///    So a push that has arrived in step 2 is passed to its readers before the next sleep. Signals that are raised in
  ///    this step are delivered in the next turn.
  /// 7. *Flush*: output that the turn has queued is sent, in one write per socket.
  private func turn(mayBlock: Bool) -> Bool {
    context.sleepAndDispatch(mayBlock: mayBlock && !hasWork)
    if mailbox.hasPost {
      let post = mailbox.takeAll()
      if post.stop { return false }
      for job in post.jobs { jobs.append(job) }
      for signal in post.signals { signal.deliver() }
    }
    context.resumeYielded()
    context.processInput()
    runJobs()
    if context.fireTimers() { runJobs() }
    if context.deliverLocalSignals() { runJobs() }
    context.flush()
    return true
  }

  private func runJobs() {
    let serial = unsafe asUnownedSerialExecutor()
    let preference = unsafe asUnownedTaskExecutor()
    while let job = jobs.popFirst() {
      unsafe job.runSynchronously(isolatedTo: serial, taskExecutor: preference)
    }
  }
}
