import ByteStreams
import CLinux
import Glibc
import Host
import Journal
import Logging
import Metrics
import Submissions
import Synchronization
import Threading

/// The store of a process, in an SQLite database.
///
/// Sessions submit entries from any thread into a `SubmissionQueue`. One thread takes all submitted entries, stores
/// them in one transaction, and reports the result to the sessions (see `StoreWriter`). While it commits, the next
/// entries gather in the queue.
package final class Store: Sendable {
  enum Command: StoreCommand {
    case open(String, @Sendable (OpenedJournal) -> Void)
    /// Writes a copy to this path, unless the cancellation is set. Reports the reason of a failure; nil after a
    /// success.
    case backUp(String, Cancellation, @Sendable (String?) -> Void)
  }

  private struct Condition {
    var state: StoreState
    /// Why a session is not stored until the next start; nil if all sessions are stored.
    var fault: String?
  }

  let submissions: SubmissionQueue
  private let wakeUp = WakeUp()
  private let condition: Locked<Condition>
  private let ended = Locked<Bool>(false)
  private let control = Locked<StoreControl?>(nil)
  /// Cancels a backup in progress.
  let closing = Cancellation()
  private let endSignal: Int32

  let settings: StoreSettings
  let logger: Logger
  let metrics: StoreMetrics

  private init(
    _ settings: StoreSettings, noteDelay: TimeSpan, logger: Logger, metrics: StoreMetrics, endSignal: Int32
  ) {
    self.settings = settings
    self.logger = logger
    self.metrics = metrics
    self.endSignal = endSignal
    condition = Locked(Condition(state: StoreState(since: ProcessInformation.wallClockMilliseconds())))
    let limits = SubmissionQueue.Limits(
      pendingBytes: settings.pendingBytes, pauseBytes: settings.pendingBytes / 2, noteDelay: noteDelay)
    submissions = SubmissionQueue(limits) { [wakeUp] in wakeUp.set() }
  }

  deinit { Glibc.close(endSignal) }

  // MARK: Opening and closing

  /// Opens the store and begins a term. Blocks until both are done.
  ///
  /// - Parameters:
  ///   - configured: the sessions of the configuration. Other sessions are removed after `keepUnused`.
  ///   - wait: how long to wait while another process has the store open, for example the predecessor in a restart.
  ///   - isCancelled: ends this wait early if it returns true.
  package static func open(
    _ settings: StoreSettings, for configured: [String], waiting wait: TimeSpan = .zero,
    unless isCancelled: @escaping @Sendable () -> Bool = { false }, logger: Logger, metrics registry: MetricsRegistry
  ) throws(StoreError) -> Store {
    let metrics = StoreMetrics(registry)
    var environment = StoreFile.Environment()
    environment.willCheck = { path, bytes in
      logger.info(
        "the store was not closed cleanly; checking it", [.text("path", path), .number("bytes", bytes)])
    }
    environment.isChecking = { path, read, bytes in
      logger.info(
        "checking the store", [.text("path", path), .number("bytes_read", read), .number("bytes", bytes)])
    }
    environment.isReading = { path, read, bytes in
      logger.info(
        "reading the store", [.text("path", path), .number("bytes_read", read), .number("bytes", bytes)])
    }
    let result = try start(
      settings, for: Set(configured), waiting: wait, unless: isCancelled, environment, logger: logger, metrics: metrics)
    metrics.register(result, in: registry)
    result.startControl()
    return result
  }

  /// Throws the reason for which the store of these settings cannot be opened at present, if the names and permissions
  /// of the files show the reason. Changes nothing.
  package static func checkStart(_ settings: StoreSettings) throws(StoreError) {
    try StorePlace.checkStart(settings.path)
  }

  static func start(
    _ settings: StoreSettings, for configured: Set<String>? = nil, waiting wait: TimeSpan = .zero,
    unless isCancelled: @escaping @Sendable () -> Bool = { false }, _ environment: StoreFile.Environment,
    logger: Logger, metrics: StoreMetrics
  ) throws(StoreError) -> Store {
    var settings = settings
    settings.path = StorePlace.resolved(settings.path)
    let resolved = settings
    // The connection must be opened on the thread that uses it.
    let outcome = Handover<Result<Store, StoreError>>()
    let endSignal = eventfd(0, O_CLOEXEC)
    let isStarted = DetachedThread.start(named: "store") {
      // When this returns, the file is closed and the lock is released.
      serve(resolved, configured, waiting: wait, unless: isCancelled, environment, logger, metrics, endSignal, outcome)?
        .end()
    }
    guard isStarted else {
      Glibc.close(endSignal)
      throw .failed(path: settings.path, reason: "no thread can be started")
    }
    return try outcome.wait().get()
  }

  /// Opens the store, reports the result, and runs until the store is closed. Returns the closed store; nil if it could
  /// not be opened.
  private static func serve(
    _ settings: StoreSettings, _ configured: Set<String>?, waiting wait: TimeSpan, unless isCancelled: () -> Bool,
    _ environment: StoreFile.Environment, _ logger: Logger, _ metrics: StoreMetrics, _ endSignal: Int32,
    _ outcome: Handover<Result<Store, StoreError>>
  ) -> Store? {
    do throws(StoreError) {
      let lock = try take(settings.path, waiting: wait, unless: isCancelled, logger)
      let start = ProcessInformation.monotonicTime()
      let file = try StoreFile.open(settings.path, lock, environment)
      let opening = try StoreOpening(file, settings, configured: configured)
      let store = Store(
        settings, noteDelay: environment.noteDelay, logger: logger, metrics: metrics, endSignal: endSignal)
      let writer = StoreWriter(store, file, opening)
      metrics.setFileBytes(file.bytes)
      metrics.setUnusedSessions(opening.unused.count)
      opening.log(file, since: start, keeping: settings.keepUnused, logger)
      outcome.set(.success(store))
      writer.run()
      return store
    } catch {
      Glibc.close(endSignal)
      outcome.set(.failure(error))
      return nil
    }
  }

  /// Takes the lock of the store. Logs that it waits if another process has the lock.
  private static func take(
    _ path: String, waiting wait: TimeSpan, unless isCancelled: () -> Bool, _ logger: Logger
  ) throws(StoreError) -> StoreLock {
    do throws(StoreError) {
      return try StoreLock.take(path)
    } catch {
      guard case .inUse = error, wait > .zero else { throw error }
    }
    logger.info(
      "the store is open in another process; waiting for its end",
      [.text("path", path), .seconds("seconds", wait)])
    return try StoreLock.take(path, waiting: wait, unless: isCancelled)
  }

  /// Stores all submitted entries and closes the file. Blocks for at most `span`. No entry may be submitted afterwards.
  ///
  /// Returns false if this takes longer than `span`. Entries that were reported as stored are stored in any case.
  package func close(within span: TimeSpan) -> Bool {
    closing.set()
    control.withLock { $0.take() }?.stop()
    submissions.close()
    let deadline = ProcessInformation.monotonicTime() + span
    while !ended.withLock({ $0 }) {
      let rest = deadline - ProcessInformation.monotonicTime()
      guard rest > .zero else { return false }
      var event = pollfd(fd: endSignal, events: Int16(POLLIN), revents: 0)
      _ = unsafe poll(&event, 1, Int32(clamping: rest.millisecondsRoundedUp))
    }
    return true
  }

  func startControl() {
    let started = StoreControl.start(for: self)
    control.withLock { $0 = started }
  }

  /// Called after the file was replaced. If the folder of the file was created again, the socket for backups must be
  /// created again, too.
  func renewControl() {
    control.withLock { control in
      guard let old = control, !closing.isSet, !old.isInPlace else { return }
      old.stop()
      control = StoreControl.start(for: self) ?? old
    }
  }

  private func end() {
    ended.withLock { $0 = true }
    var one: UInt64 = 1
    _ = unsafe Glibc.write(endSignal, &one, 8)
  }

  // MARK: Submitting

  package func open(_ name: String, then: @escaping @Sendable (OpenedJournal) -> Void) {
    _ = submissions.add(Command.open(name, then))
  }

  /// Opens the journals of several sessions. Waits until the beginnings of their terms are stored.
  package func open(_ names: [String]) -> [String: OpenedJournal] {
    let openings = names.map { name in
      let opening = Handover<OpenedJournal>()
      open(name) { opening.set($0) }
      return (name, opening)
    }
    var result: [String: OpenedJournal] = [:]
    for (name, opening) in openings { result[name] = opening.wait() }
    return result
  }

  /// Writes a copy of all stored data to the new file `path`. Calls `then` on the thread of the store, with the reason
  /// if the backup failed.
  ///
  /// - Parameter limit: the timeout of the backup. A system call that does not return, because its disk does not
  ///   respond, is not interrupted.
  func backUp(to path: String, within limit: TimeSpan, then: @escaping @Sendable (String?) -> Void) {
    let cancellation = Cancellation(closing, at: ProcessInformation.monotonicTime() + limit)
    if !submissions.add(Command.backUp(path, cancellation, then)) { then("the store is closed") }
  }

  // MARK: State

  package var state: StoreState { condition.withLock { $0.state } }

  /// Called by the writer. `failure` is the reason for a failure; nil if the store works. Returns whether this changes
  /// the state.
  func change(to failure: String?) -> Bool {
    let isChange = submissions.setFailed(failure != nil)
    report(failure)
    return isChange
  }

  /// Called when a session is no longer stored. The store works for the other sessions.
  func noteFault(of session: String) {
    condition.withLock { $0.fault = $0.fault ?? "session '\(session)' is no longer stored: restart the gateway" }
    metrics.noteFailure()
    if !submissions.isFailed { report(nil) }
  }

  private func report(_ failure: String?) {
    condition.withLock { condition in
      let failure = failure ?? condition.fault
      if (condition.state.failure == nil) != (failure == nil) {
        condition.state.since = ProcessInformation.wallClockMilliseconds()
      }
      condition.state.failure = failure
      metrics.setFailed(failure != nil)
    }
  }

  // MARK: The writer's sleep

  /// Waits until the writer is woken. Returns false if `deadline` passes first. The writer calls this when it has found
  /// nothing to do and has set `sleepsUntil`.
  func sleep(until deadline: MonotonicTime) -> Bool { wakeUp.wait(until: deadline) }
}

/// Wakes the writer. This object outlives the store, because the journals of sessions may outlive the store and use
/// this object.
private final class WakeUp: Sendable {
  private let descriptor = eventfd(0, O_CLOEXEC)

  init() { precondition(descriptor >= 0, "no eventfd for the store") }

  deinit { Glibc.close(descriptor) }

  func set() {
    var one: UInt64 = 1
    _ = unsafe Glibc.write(descriptor, &one, 8)
  }

  /// Returns false if the deadline has passed.
  func wait(until deadline: MonotonicTime) -> Bool {
    var event = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    let rest = deadline - ProcessInformation.monotonicTime()
    let timeout = deadline < .distantFuture ? Int32(clamping: max(0, rest.millisecondsRoundedUp)) : -1
    guard unsafe poll(&event, 1, timeout) > 0 else { return false }
    var count: UInt64 = 0
    _ = unsafe Glibc.read(descriptor, &count, 8)
    return true
  }
}

/// Passes one value from a thread to another.
private final class Handover<Value: Sendable>: Sendable {
  private let value = Locked<Value?>(nil)
  private let signal = eventfd(0, O_CLOEXEC)

  deinit { Glibc.close(signal) }

  func set(_ value: Value) {
    self.value.withLock { $0 = value }
    var one: UInt64 = 1
    _ = unsafe Glibc.write(signal, &one, 8)
  }

  func wait() -> Value {
    while true {
      if let value = value.withLock({ $0 }) { return value }
      var event = pollfd(fd: signal, events: Int16(POLLIN), revents: 0)
      _ = unsafe poll(&event, 1, -1)
    }
  }
}
