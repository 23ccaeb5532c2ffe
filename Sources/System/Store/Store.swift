import ByteStreams
import CLinux
import Glibc
import Journal
import Logging
import Metrics
import Reactor
import Synchronization
import Threading

/// The store of a process, in an SQLite database.
///
/// Sessions submit entries from any thread into a queue. One thread takes everything that was submitted, stores it in one transaction, and
/// reports that to the sessions: see `StoreWriter`. While it commits, the next entries gather.
package final class Store: Journal, TurnEndTarget {
  struct Item: Sendable {
    /// Position of the session in the writer.
    let session: Int
    let entry: JournalEntry
  }

  enum Command: Sendable {
    case open(String, @Sendable (OpenedJournal) -> Void)
    /// Writes a copy to this path, unless the cancellation is set. Reports nil, or why it failed.
    case backUp(String, Cancellation, @Sendable (String?) -> Void)
  }

  struct Queue: ~Copyable {
    var items: [Item] = []
    var commands: [Command] = []
    /// Number of entries submitted so far.
    var submitted: UInt64 = 0
    /// Number of awaited submissions: those by `submit`, not by `note`.
    var awaited = 0
    /// While the writer sleeps: when it looks into the queue even if it is not woken.
    var sleepsUntil: MonotonicTime?
    var isClosing = false
    /// Whether the writer has looked into the queue for the last time.
    var hasEnded = false
  }

  private struct Condition {
    var state: StoreState
    /// Why a session is not stored until the next start; nil: all are.
    var fault: String?
  }

  let queue = Locked(Queue())
  private let wake: Int32
  /// All entries up to this number are stored.
  let stored = Atomic<UInt64>(0)
  /// Bytes that are submitted and not stored.
  let pendingBytes = Atomic<Int>(0)
  let failed = Atomic<Bool>(false)
  private let condition: Locked<Condition>
  private let ended = Locked<Bool>(false)
  private let control = Locked<StoreControl?>(nil)
  /// Ends a backup that is being made.
  let closing = Cancellation()
  private let endSignal: Int32

  let settings: StoreSettings
  private let noteDelay: TimeSpan
  let logger: Logger
  let metrics: StoreMetrics

  private init(
    _ settings: StoreSettings, noteDelay: TimeSpan, logger: Logger, metrics: StoreMetrics, endSignal: Int32
  ) {
    self.settings = settings
    self.noteDelay = noteDelay
    self.logger = logger
    self.metrics = metrics
    self.endSignal = endSignal
    condition = Locked(Condition(state: StoreState(since: ProcessInformation.wallClockMilliseconds())))
    wake = eventfd(0, O_CLOEXEC)
    precondition(wake >= 0, "no eventfd for the store")
  }

  deinit {
    Glibc.close(wake)
    Glibc.close(endSignal)
  }

  // MARK: Opening and closing

  /// Opens the store and begins a term. Blocks until that is done.
  ///
  /// - Parameters:
  ///   - configured: the sessions of the configuration. Others are removed after `keepUnused`.
  ///   - wait: how long to wait while another process, such as the predecessor in a hand-over, has it open.
  ///   - isCancelled: ends this wait early.
  package static func open(
    _ settings: StoreSettings, for configured: [String], waiting wait: TimeSpan = .zero,
    unless isCancelled: @escaping @Sendable () -> Bool = { false }, logger: Logger, metrics registry: MetricsRegistry
  ) throws(StoreError) -> Store {
    let metrics = StoreMetrics(registry)
    var environment = StoreFile.Environment()
    environment.willCheck = { path, bytes in
      logger.info(
        "the store was not closed in order; checking it", [.text("path", path), .number("bytes", bytes)])
    }
    environment.isReading = { path, read, bytes in
      logger.info(
        "reading the store", [.text("path", path), .number("bytes_read", read), .number("bytes", bytes)])
    }
    let result = try start(
      settings, for: Set(configured), waiting: wait, unless: isCancelled, environment, logger: logger, metrics: metrics)
    metrics.register(result, in: registry)
    let control = StoreControl.start(for: result)
    result.control.withLock { $0 = control }
    return result
  }

  static func start(
    _ settings: StoreSettings, for configured: Set<String>? = nil, waiting wait: TimeSpan = .zero,
    unless isCancelled: @escaping @Sendable () -> Bool = { false }, _ environment: StoreFile.Environment,
    logger: Logger, metrics: StoreMetrics
  ) throws(StoreError) -> Store {
    var settings = settings
    settings.path = StorePlace.resolved(settings.path)
    let resolved = settings
    // The connection belongs to the thread that opens it.
    let outcome = Handover<Result<Store, StoreError>>()
    let endSignal = eventfd(0, O_CLOEXEC)
    let isStarted = DetachedThread.start(named: "store") {
      // The file is closed, and the lock released, when this returns.
      serve(resolved, configured, waiting: wait, unless: isCancelled, environment, logger, metrics, endSignal, outcome)?
        .end()
    }
    guard isStarted else {
      Glibc.close(endSignal)
      throw .failed(path: settings.path, reason: "no thread can be started")
    }
    return try outcome.wait().get()
  }

  /// Opens the store, reports that, and returns it when it was closed; nil if it cannot be opened.
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

  /// Returns the lock of the store. If another process has it, the log says that this one waits.
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
      [.text("path", path), .fraction("seconds", wait.seconds)])
    return try StoreLock.take(path, waiting: wait, unless: isCancelled)
  }

  /// Stores everything that was submitted, and closes the file. Blocks for at most this time. Nothing may be submitted afterwards.
  ///
  /// Returns false if it takes longer. What was acknowledged is stored all the same.
  package func close(within span: TimeSpan) -> Bool {
    control.withLock { $0.take() }?.stop()
    closing.set()
    queue.withLock { $0.isClosing = true }
    wakeWriter()
    let deadline = ProcessInformation.monotonicTime() + span
    while !ended.withLock({ $0 }) {
      let rest = deadline - ProcessInformation.monotonicTime()
      guard rest > .zero else { return false }
      var event = pollfd(fd: endSignal, events: Int16(POLLIN), revents: 0)
      _ = unsafe poll(&event, 1, Int32(clamping: rest.millisecondsRoundedUp))
    }
    return true
  }

  private func end() {
    ended.withLock { $0 = true }
    var one: UInt64 = 1
    _ = unsafe Glibc.write(endSignal, &one, 8)
  }

  // MARK: Submitting

  package func open(_ name: String, then: @escaping @Sendable (OpenedJournal) -> Void) {
    add(.open(name, then))
  }

  /// Opens the journals of several sessions, and waits until their terms are stored.
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

  /// Writes a copy of everything that is stored to `path`, where there must be no file. `then` is called on the thread of the store, with the
  /// reason if it failed.
  ///
  /// - Parameter limit: when to give up. A system call that does not return, since its disk does not respond, is not interrupted.
  func backUp(to path: String, within limit: TimeSpan, then: @escaping @Sendable (String?) -> Void) {
    let cancellation = Cancellation(closing, at: ProcessInformation.monotonicTime() + limit)
    add(.backUp(path, cancellation, then))
  }

  private func add(_ command: Command) {
    let (isAdded, mustWake) = queue.withLock { queue in
      guard !queue.hasEnded else { return (false, false) }
      queue.commands.append(command)
      return (true, queue.takeSleep())
    }
    if mustWake { wakeWriter() }
    if !isAdded, case .backUp(_, _, let then) = command { then("the store is closed") }
  }

  func submit(_ entry: JournalEntry, of session: Int) -> JournalTicket {
    pendingBytes.add(entry.cost, ordering: .relaxed)
    let (number, mustWake) = queue.withLock { queue in
      queue.items.append(Item(session: session, entry: entry))
      queue.submitted &+= 1
      return (queue.submitted, queue.takeSleep())
    }
    if mustWake { LoopContext.atVeryEndOfTurn(self) }
    return JournalTicket(number)
  }

  func submit(contentsOf entries: [JournalEntry], of session: Int, isAwaited: Bool) -> JournalTicket {
    pendingBytes.add(entries.reduce(0) { $0 + $1.cost }, ordering: .relaxed)
    let (number, mustWake) = queue.withLock { queue in
      for entry in entries { queue.items.append(Item(session: session, entry: entry)) }
      queue.submitted &+= UInt64(entries.count)
      guard !entries.isEmpty else { return (queue.submitted, false) }
      return (queue.submitted, isAwaited ? queue.takeSleep() : queue.takeSleep(beyond: noteDelay))
    }
    if mustWake { LoopContext.atVeryEndOfTurn(self) }
    return JournalTicket(number)
  }

  func outcome(of ticket: JournalTicket) -> JournalOutcome {
    if ticket.number <= stored.load(ordering: .acquiring) { return .stored }
    return failed.load(ordering: .acquiring) ? .failed : .pending
  }

  var isFull: Bool { pendingBytes.load(ordering: .relaxed) > settings.pendingBytes }

  var isOverfull: Bool { pendingBytes.load(ordering: .relaxed) > settings.pendingBytes + settings.pendingBytes / 2 }

  /// Above this, nothing is read from upstreams, so that messages of clients still have room.
  var pauseBytes: Int { settings.pendingBytes / 2 }
  var mustPauseReading: Bool { pendingBytes.load(ordering: .relaxed) > pauseBytes }

  // MARK: State

  package var state: StoreState { condition.withLock { $0.state } }

  /// Called by the writer. Returns whether that is a change.
  func change(to failure: String?) -> Bool {
    let isChange = failed.load(ordering: .relaxed) != (failure != nil)
    failed.store(failure != nil, ordering: .releasing)
    report(failure)
    return isChange
  }

  /// A session is not stored any more. The store works for the others.
  func noteFault(of session: String) {
    condition.withLock { $0.fault = $0.fault ?? "session '\(session)' is not stored any more: restart the gateway" }
    metrics.noteFailure()
    if !failed.load(ordering: .relaxed) { report(nil) }
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

  /// A loop that has submitted entries during its turn wakes the writer once.
  package func turnEnded() { wakeWriter() }

  private func wakeWriter() {
    var one: UInt64 = 1
    _ = unsafe Glibc.write(wake, &one, 8)
  }

  /// Waits until the writer is woken, but at most until `deadline`. Returns false if that has passed. Called by the writer, after it has found nothing to do
  /// and has set `sleepsUntil`.
  func sleep(until deadline: MonotonicTime) -> Bool {
    var event = pollfd(fd: wake, events: Int16(POLLIN), revents: 0)
    let rest = deadline - ProcessInformation.monotonicTime()
    let timeout = deadline < .distantFuture ? Int32(clamping: max(0, rest.millisecondsRoundedUp)) : -1
    guard unsafe poll(&event, 1, timeout) > 0 else { return false }
    var count: UInt64 = 0
    _ = unsafe Glibc.read(wake, &count, 8)
    return true
  }
}

extension Store.Queue {
  /// Counts an awaited submission. Returns whether the writer must be woken. One wake-up is enough.
  fileprivate mutating func takeSleep() -> Bool {
    awaited += 1
    defer { sleepsUntil = nil }
    return sleepsUntil != nil
  }

  /// For entries that are not awaited. Returns whether the writer must be woken, because it would sleep for longer than `delay`.
  fileprivate mutating func takeSleep(beyond delay: TimeSpan) -> Bool {
    guard let end = sleepsUntil, end > ProcessInformation.monotonicTime() + delay else { return false }
    sleepsUntil = nil
    return true
  }
}

/// A value that one thread passes to another.
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
