import ByteStreams
import Host
import Threading

/// Why blocking work returned no result.
package enum BlockingWorkError: Error, Equatable, Sendable, CustomStringConvertible {
  /// The waiter has cancelled the work. `after`: how long this work, or earlier work on the same subject (for example
  /// the same file), has been running.
  case unfinished(after: TimeSpan)
  /// Other subjects have used all threads until the waiter cancelled, or the queue for a thread is full.
  case noFreeThread(limit: Int)
  /// The system could not start a thread.
  case threadNotStarted

  package var description: String {
    switch self {
    case .unfinished(let time): "not finished after \(time.secondsText) s"
    case .noFreeThread(let limit): "all \(limit) threads for blocking work are in use"
    case .threadNotStarted: "the system cannot start another thread"
    }
  }
}

/// A piece of work that blocks, for example a read of a file. It runs on a thread of `BlockingThreadPool`, and never on
/// an event loop.
///
/// A waiter can cancel its wait at any time. The work itself cannot be interrupted. After a cancellation, the work
/// keeps its thread until it returns, and its result is dropped.
package final class BlockingWork<Value: Sendable>: BlockingJob {
  package typealias Outcome = Result<Value, BlockingWorkError>

  package let subject: String
  private let pool: BlockingThreadPool
  private let body: @Sendable () -> Value
  /// Called once, with the outcome. nil before and after the wait.
  private let waiter = Locked<(@Sendable (Outcome) -> Void)?>(nil)

  /// - Parameter subject: the object on which the work may block, such as a path. Pieces of work on the same subject
  ///   run one after another.
  package init(on subject: String, pool: BlockingThreadPool = .ofProcess, _ body: @escaping @Sendable () -> Value) {
    self.subject = subject
    self.pool = pool
    self.body = body
  }

  /// Starts the work and waits for its result, or for `cancel()`.
  package func value() async -> Outcome {
    unsafe await withUnsafeContinuation { continuation in
      begin { unsafe continuation.resume(returning: $0) }
    }
  }

  /// Like `value()`, but for a thread that may block. Cancels the wait after `limit`.
  package func wait(atMost limit: TimeSpan) -> Outcome {
    let box = OutcomeBox<Outcome>()
    begin { box.fill($0) }
    if let outcome = box.outcome(atMost: limit) { return outcome }
    cancel()
    return box.outcome()
  }

  /// Ends the wait, if it has not ended. If the work has not started, it will never run.
  package func cancel() {
    end(.failure(pool.withdraw(self)))
  }

  private func begin(_ waiter: @escaping @Sendable (Outcome) -> Void) {
    self.waiter.withLock { $0 = waiter }
    pool.add(self)
  }

  private func end(_ outcome: Outcome) {
    let waiter = self.waiter.withLock { waiter in
      let taken = waiter
      waiter = nil
      return taken
    }
    waiter?(outcome)
  }

  package func run() { end(.success(body())) }

  package func fail(_ error: BlockingWorkError) { end(.failure(error)) }
}

/// Passes one outcome from the working thread to the waiting thread.
private final class OutcomeBox<Outcome: Sendable>: Sendable {
  private let content = Locked<Outcome?>(nil)
  private let filled = CountingSemaphore()

  func fill(_ outcome: Outcome) {
    content.withLock { $0 = outcome }
    filled.signal()
  }

  /// Returns nil if the box is still empty after `limit`.
  func outcome(atMost limit: TimeSpan) -> Outcome? {
    filled.wait(atMost: limit) ? content.withLock { $0 } : nil
  }

  func outcome() -> Outcome {
    while true {
      filled.wait()
      if let outcome = content.withLock({ $0 }) { return outcome }
    }
  }
}

/// Work that `BlockingThreadPool` can run.
package protocol BlockingJob: AnyObject, Sendable {
  var subject: String { get }
  func run()
  func fail(_ error: BlockingWorkError)
}

/// Threads for blocking work, one for each subject in use.
///
/// A file on a mount that hangs occupies one thread, however many reads of it are requested: further work on the file
/// is queued until its waiter cancels. Queued work begins after the work before it, so its result is never older than
/// its request.
///
/// While all threads are in use, work on another subject waits for the first thread that becomes free, until the waiter
/// cancels.
package final class BlockingThreadPool: Sendable {
  /// The instance that the whole process uses.
  package static let ofProcess = BlockingThreadPool()

  /// Maximum number of subjects in use at once. Each subject has its own thread. A session has about five subjects
  /// (secrets, CA file, certificate, key), and reads most of them one after the other. The limit matters if each of
  /// many reloads names new files on a mount that hangs.
  package static let threadLimit = 16
  /// Maximum number of pieces of work that wait for a thread. A connection attempt waits for one piece of work at a
  /// time.
  package static let waitingLimit = 1024
  /// Descriptors that one thread may use. A file needs one descriptor from the beginning of open(2), even if open(2)
  /// hangs. A command needs both ends of its pipe until it has started.
  package static let descriptorsPerThread = 2

  fileprivate struct SubjectQueue {
    /// When the running work started.
    var since: MonotonicTime
    var queue: [any BlockingJob] = []
  }

  fileprivate struct State {
    var subjects: [String: SubjectQueue] = [:]
    /// The work on subjects that have no thread, in order. Empty unless all threads are in use.
    var waiting: [any BlockingJob] = []
  }

  private let state = Locked(State())
  private let startThread: @Sendable (@escaping @Sendable () -> Void) -> Bool

  package init(
    startThread: @escaping @Sendable (@escaping @Sendable () -> Void) -> Bool = {
      DetachedThread.start(named: "blocking", $0)
    }
  ) {
    self.startThread = startThread
  }

  /// Threads in use.
  package var threads: Int { state.withLock { $0.subjects.count } }

  func add(_ job: any BlockingJob) {
    enum Verdict { case start, queued, refused }
    let now = MonotonicTime.current
    let verdict = state.withLock { state -> Verdict in
      if state.subjects[job.subject] != nil {
        state.subjects[job.subject]?.queue.append(job)
        return .queued
      }
      guard state.subjects.count < Self.threadLimit else {
        guard state.waiting.count < Self.waitingLimit else { return .refused }
        state.waiting.append(job)
        return .queued
      }
      state.subjects[job.subject] = SubjectQueue(since: now)
      return .start
    }
    switch verdict {
    case .queued: break
    case .refused: job.fail(.noFreeThread(limit: Self.threadLimit))
    case .start:
      guard !startThread({ self.serve(job) }) else { return }
      for job in [job] + state.withLock({ $0.abandonQueue(of: job.subject) }) { job.fail(.threadNotStarted) }
    }
  }

  private func serve(_ first: any BlockingJob) {
    var next: (any BlockingJob)? = first
    while let job = next {
      job.run()
      let now = MonotonicTime.current
      next = state.withLock { $0.next(after: job.subject, now: now) }
    }
  }

  /// Removes work that has not started. Returns why its waiter has no result.
  func withdraw(_ job: any BlockingJob) -> BlockingWorkError {
    let now = MonotonicTime.current
    return state.withLock { state in
      state.subjects[job.subject]?.queue.removeAll { $0 === job }
      if let index = state.waiting.firstIndex(where: { $0 === job }) {
        state.waiting.remove(at: index)
        return .noFreeThread(limit: Self.threadLimit)
      }
      return .unfinished(after: state.subjects[job.subject].map { now - $0.since } ?? .zero)
    }
  }
}

extension BlockingThreadPool.State {
  /// Called by a thread that has finished work on `subject`. Returns the next work for this thread, or nil if the
  /// thread can end.
  fileprivate mutating func next(after subject: String, now: MonotonicTime) -> (any BlockingJob)? {
    if subjects[subject]?.queue.isEmpty == false {
      subjects[subject]?.since = now
      return subjects[subject]?.queue.removeFirst()
    }
    subjects[subject] = nil
    guard !waiting.isEmpty else { return nil }
    let job = waiting.removeFirst()
    subjects[job.subject] = BlockingThreadPool.SubjectQueue(
      since: now, queue: waiting.filter { $0.subject == job.subject })
    waiting.removeAll { $0.subject == job.subject }
    return job
  }

  /// Called if no thread could be started for `subject`. Returns the work that no thread will run.
  fileprivate mutating func abandonQueue(of subject: String) -> [any BlockingJob] {
    var abandoned = subjects.removeValue(forKey: subject)?.queue ?? []
    if subjects.isEmpty {
      abandoned += waiting
      waiting = []
    }
    return abandoned
  }
}

extension MonotonicTime {
  fileprivate static var current: MonotonicTime { MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds()) }
}
