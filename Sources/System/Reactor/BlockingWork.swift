import ByteStreams
import Threading

/// Why blocking work returned no result.
package enum BlockingWorkError: Error, Equatable, Sendable, CustomStringConvertible {
  /// The waiter gave up. `after`: how long the work that runs on the subject, this or earlier work, has been running.
  case unfinished(after: TimeSpan)
  /// All threads are in use by other subjects.
  case noThreadFree(limit: Int)
  /// The system could not start a thread.
  case noThread

  package var description: String {
    switch self {
    case .unfinished(let time): "still not done after \(time.wholeSeconds) s"
    case .noThreadFree(let limit): "other reads hold all \(limit) threads"
    case .noThread: "the system gives no further thread"
    }
  }
}

/// A piece of work that blocks, such as reading a file. It runs on a thread of `BlockingLanes`, never on an event loop.
///
/// A waiter can give up at any time. The work itself cannot be interrupted: it keeps its thread until it returns, and its
/// result is dropped.
package final class BlockingWork<Value: Sendable>: BlockingJob {
  package typealias Outcome = Result<Value, BlockingWorkError>

  package let subject: String
  private let lanes: BlockingLanes
  private let body: @Sendable () -> Value
  /// Called once, with the outcome; nil before the wait and after it.
  private let waiter = Locked<(@Sendable (Outcome) -> Void)?>(nil)

  /// `subject`: what the work may block on, such as a path. Work on one subject runs one at a time.
  package init(on subject: String, lanes: BlockingLanes = .shared, _ body: @escaping @Sendable () -> Value) {
    self.subject = subject
    self.lanes = lanes
    self.body = body
  }

  /// Starts the work and waits for its result, or for `giveUp()`.
  package func value() async -> Outcome {
    unsafe await withUnsafeContinuation { continuation in
      begin { unsafe continuation.resume(returning: $0) }
    }
  }

  /// The same for a thread that may block. Gives up after `limit`.
  package func wait(atMost limit: TimeSpan) -> Outcome {
    let box = OutcomeBox<Outcome>()
    begin { box.fill($0) }
    if let outcome = box.outcome(atMost: limit) { return outcome }
    giveUp()
    return box.outcome()
  }

  /// Ends the wait, if it has not ended. Work that has not begun is never run.
  package func giveUp() {
    let time = lanes.withdraw(self)
    end(.failure(.unfinished(after: time)))
  }

  private func begin(_ waiter: @escaping @Sendable (Outcome) -> Void) {
    self.waiter.withLock { $0 = waiter }
    lanes.add(self)
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

/// Passes one outcome from the working thread to the waiting one.
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

/// Work that `BlockingLanes` can run.
package protocol BlockingJob: AnyObject, Sendable {
  var subject: String { get }
  func run()
  func fail(_ error: BlockingWorkError)
}

/// Threads for blocking work, one per subject in use.
///
/// A file on a hung mount holds one thread, however many reads of it are requested: further work on it is queued until its waiter
/// gives up. Queued work runs after the work ahead of it, so its result is never older than its request.
package final class BlockingLanes: Sendable {
  /// The instance that the whole process shares.
  package static let shared = BlockingLanes()

  /// Maximum number of subjects in use at once, each with its thread. A session has about five (secrets, CA file, certificate,
  /// key) and reads most of them one after the other. The limit stops reloads that name ever new files on a hung mount.
  package static let threadLimit = 16
  /// Descriptors that one thread may hold. A file needs one from the start of open(2) on, even while that hangs. A command needs
  /// both ends of its pipe until it has started.
  package static let descriptorsPerThread = 2

  private struct Lane {
    /// When the running work started.
    var since: MonotonicTime
    var queue: [any BlockingJob] = []
  }

  private let lanes = Locked<[String: Lane]>([:])
  private let startThread: @Sendable (@escaping @Sendable () -> Void) -> Bool

  package init(
    startThread: @escaping @Sendable (@escaping @Sendable () -> Void) -> Bool = {
      DetachedThread.start(named: "blocking", $0)
    }
  ) {
    self.startThread = startThread
  }

  /// Threads in use.
  package var threads: Int { lanes.withLock { $0.count } }

  func add(_ job: any BlockingJob) {
    enum Verdict { case start, queued, refused }
    let now = MonotonicTime.current
    let verdict = lanes.withLock { lanes -> Verdict in
      if lanes[job.subject] != nil {
        lanes[job.subject]?.queue.append(job)
        return .queued
      }
      guard lanes.count < Self.threadLimit else { return .refused }
      lanes[job.subject] = Lane(since: now)
      return .start
    }
    switch verdict {
    case .queued: break
    case .refused: job.fail(.noThreadFree(limit: Self.threadLimit))
    case .start:
      guard !startThread({ self.serve(job) }) else { return }
      let queue = lanes.withLock { $0.removeValue(forKey: job.subject)?.queue ?? [] }
      for job in [job] + queue { job.fail(.noThread) }
    }
  }

  private func serve(_ first: any BlockingJob) {
    var next: (any BlockingJob)? = first
    while let job = next {
      job.run()
      let now = MonotonicTime.current
      next = lanes.withLock { lanes -> (any BlockingJob)? in
        guard lanes[job.subject]?.queue.isEmpty == false else {
          lanes[job.subject] = nil
          return nil
        }
        lanes[job.subject]?.since = now
        return lanes[job.subject]?.queue.removeFirst()
      }
    }
  }

  /// Removes work that has not started from its lane. Returns how long the running work of that lane has been running.
  func withdraw(_ job: any BlockingJob) -> TimeSpan {
    let now = MonotonicTime.current
    return lanes.withLock { lanes in
      lanes[job.subject]?.queue.removeAll { $0 === job }
      return lanes[job.subject].map { now - $0.since } ?? .zero
    }
  }
}

extension MonotonicTime {
  fileprivate static var current: MonotonicTime { MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds()) }
}

extension TimeSpan {
  fileprivate var wholeSeconds: Int64 { nanoseconds / 1_000_000_000 }
}
