import ByteStreams
import Host
import Journal
import Reactor
import Synchronization
import Threading

/// A task of a store other than storing entries. Commands are executed in the order of their submission. Each store has
/// its own type of commands.
package protocol StoreCommand: Sendable {}

/// Everything that a store has taken from its queue at once. Used only on the thread of the store.
///
/// It is a class, since a noncopyable struct fails as a property of its owner in optimised builds. Reading the struct
/// in a condition (`isEmpty`) counts as an access until the end of the condition's body, and the body modifies the
/// struct.
package final class SubmissionBatch {
  package struct Item: Sendable {
    package let entry: JournalEntry
    /// The number that was passed to the session's `QueuedJournal`.
    package let session: Int32
    /// Whether the next entry was submitted by another call. The entries of one call are stored together.
    package let endsCall: Bool
  }

  package fileprivate(set) var items: [Item] = []
  package fileprivate(set) var commands: [any StoreCommand] = []
  /// Number of awaited submissions among the items: submissions by `submit`, not by `note`.
  package fileprivate(set) var awaited = 0
  /// The number of the last entry that was taken.
  package fileprivate(set) var last: UInt64 = 0
  package fileprivate(set) var isClosing = false

  package init() {}

  package var isEmpty: Bool { items.isEmpty && commands.isEmpty }

  /// The capacity that is kept. Only an exceptional batch needs a larger array.
  private static var keptCapacity: Int { 1 << 16 }

  /// Removes everything, before the next batch is taken.
  package func clear() {
    items.removeAll(keepingCapacity: items.capacity <= Self.keptCapacity)
    commands = []
  }
}

/// The entries that sessions have submitted to a store from any thread, until the store takes them.
///
/// A store works on a thread of its own, and takes everything at once. The next entries gather while it writes. It is
/// woken once per burst, and only while it sleeps.
package final class SubmissionQueue: TurnEndTarget, Sendable {
  package struct Limits: Sendable {
    /// Maximum pending bytes. Above it, messages are refused.
    let pendingBytes: Int
    /// Above this, reading from upstreams pauses, so that messages of clients still have room.
    let pauseBytes: Int
    /// Maximum delay of notes, so that they are written together with other entries. If the process is killed during
    /// the delay, the notes are lost.
    let noteDelay: TimeSpan

    package init(pendingBytes: Int, pauseBytes: Int, noteDelay: TimeSpan = SubmissionQueue.noteDelay) {
      self.pendingBytes = pendingBytes
      self.pauseBytes = pauseBytes
      self.noteDelay = noteDelay
    }
  }

  package static var noteDelay: TimeSpan { .milliseconds(50) }

  private struct Queue: ~Copyable {
    var items: [SubmissionBatch.Item] = []
    var commands: [any StoreCommand] = []
    /// Number of entries submitted so far.
    var submitted: UInt64 = 0
    var awaited = 0
    /// When the sleeping store checks the queue even if it is not woken. nil while the store is awake.
    var sleepsUntil: MonotonicTime?
    var isClosing = false
    /// Whether the store has checked the queue for the last time.
    var hasEnded = false

    /// Counts an awaited submission. Returns whether the store must be woken. One wake-up is enough, so the next calls
    /// return false.
    mutating func takeSleep() -> Bool {
      awaited += 1
      defer { sleepsUntil = nil }
      return sleepsUntil != nil
    }

    /// Like `takeSleep()`, for a note. Returns whether the store must be woken, because it would sleep longer than
    /// `delay`.
    mutating func takeSleep(beyond delay: TimeSpan) -> Bool {
      guard let end = sleepsUntil, end > ProcessInformation.monotonicTime() + delay else { return false }
      sleepsUntil = nil
      return true
    }
  }

  private let queue = Locked(Queue())
  /// Bytes that are submitted and not stored yet.
  private let pending = Atomic<Int>(0)
  private let failed = Atomic<Bool>(false)
  /// Whether a store that has failed is writing all entries that it has taken. Set with the queue locked.
  private let recovering = Atomic<Bool>(false)
  private let limits: Limits
  private let wake: @Sendable () -> Void

  /// - Parameter wake: ends the sleep of the store, from any thread.
  package init(_ limits: Limits, wake: @escaping @Sendable () -> Void) {
    self.limits = limits
    self.wake = wake
  }

  // MARK: For sessions

  func submit(_ entry: JournalEntry, of session: Int32) -> JournalTicket {
    pending.add(entry.cost, ordering: .relaxed)
    let (number, mustWake) = queue.withLock { queue in
      queue.items.append(SubmissionBatch.Item(entry: entry, session: session, endsCall: true))
      queue.submitted &+= 1
      return (queue.submitted, queue.takeSleep())
    }
    if mustWake { LoopContext.atVeryEndOfTurn(self) }
    return JournalTicket(number)
  }

  func submit(contentsOf entries: [JournalEntry], of session: Int32, isAwaited: Bool) -> JournalTicket {
    // An empty submission counts as stored.
    guard !entries.isEmpty else { return JournalTicket(0) }
    pending.add(entries.reduce(0) { $0 + $1.cost }, ordering: .relaxed)
    let (number, mustWake) = queue.withLock { queue in
      for (index, entry) in entries.enumerated() {
        queue.items.append(
          SubmissionBatch.Item(entry: entry, session: session, endsCall: index + 1 == entries.count))
      }
      queue.submitted &+= UInt64(entries.count)
      return (queue.submitted, isAwaited ? queue.takeSleep() : queue.takeSleep(beyond: limits.noteDelay))
    }
    if mustWake { LoopContext.atVeryEndOfTurn(self) }
    return JournalTicket(number)
  }

  /// Whether the store does not work.
  package var isFailed: Bool { failed.load(ordering: .acquiring) }
  /// The outcome of an entry that is neither stored nor lost. While the store recovers, entries that were submitted
  /// before the recovery may be stored at any moment, and entries that are submitted during the recovery are stored
  /// later. So none of them has failed.
  var outcomeOfUnstored: JournalOutcome {
    // `recovering` is read first, because `setFailed` stores the failure before it ends the recovery.
    guard !recovering.load(ordering: .acquiring) else { return .pending }
    return isFailed ? .failed : .pending
  }
  var isFull: Bool { pendingBytes > limits.pendingBytes }
  var isOverfull: Bool { pendingBytes > limits.pendingBytes + limits.pendingBytes / 2 }
  var mustPauseReading: Bool { pendingBytes > limits.pauseBytes }
  package var pendingBytes: Int { pending.load(ordering: .relaxed) }

  /// A loop that has submitted entries during its turn wakes the store once, at the end of the turn. If the store were
  /// woken at the first entry, it would interrupt the loop on a machine with one processor, and commit only the entries
  /// submitted so far.
  package func turnEnded() { wake() }

  // MARK: For the owner of the store

  /// Returns false if the store has ended.
  package func add(_ command: any StoreCommand) -> Bool {
    let (isAdded, mustWake) = queue.withLock { queue in
      guard !queue.hasEnded else { return (false, false) }
      queue.commands.append(command)
      return (true, queue.takeSleep())
    }
    if mustWake { wake() }
    return isAdded
  }

  /// Makes the store end when everything is stored.
  package func close() {
    queue.withLock { $0.isClosing = true }
    wake()
  }

  // MARK: For the store

  /// Takes everything if a submission is awaited, a command was added, or the queue is closing. If there was nothing to
  /// take, returns the time at which the store must check the queue again. The store is woken earlier for entries that
  /// must not wait so long.
  ///
  /// - Parameters:
  ///   - batch: an empty batch, which is filled.
  ///   - isDue: whether notes are taken, too.
  ///   - attention: until this time, the store checks often enough that it need not be woken for notes.
  ///   - recovers: whether the store has failed and now stores the entries that it has taken. In this case everything
  ///     is taken. `setFailed` ends the recovery.
  package func take(
    into batch: SubmissionBatch, isDue: Bool, attentiveUntil attention: MonotonicTime, now: MonotonicTime,
    recovers: Bool = false
  ) -> MonotonicTime {
    queue.withLock { queue in
      if recovers { recovering.store(true, ordering: .releasing) }
      batch.isClosing = queue.isClosing
      if queue.awaited > 0 || isDue || recovers || queue.isClosing {
        swap(&batch.items, &queue.items)
        swap(&batch.commands, &queue.commands)
        batch.last = queue.submitted
        batch.awaited = queue.awaited
        queue.awaited = 0
      }
      queue.hasEnded = queue.isClosing && batch.isEmpty
      let next = !queue.items.isEmpty || now < attention ? now + limits.noteDelay : .distantFuture
      queue.sleepsUntil = batch.isEmpty && !queue.isClosing ? next : nil
      return next
    }
  }

  /// Number of awaited submissions that were not taken yet.
  package var awaited: Int { queue.withLock { $0.awaited } }

  /// The number of the entry that was submitted last.
  package var lastSubmitted: UInt64 { queue.withLock { $0.submitted } }

  /// Subtracts bytes that are no longer pending. Returns whether reading from upstreams may resume because of that. If
  /// so, each session must be notified.
  package func release(bytes: Int) -> Bool {
    let (before, after) = pending.subtract(bytes, ordering: .relaxed)
    return before > limits.pauseBytes && after <= limits.pauseBytes
  }

  /// Ends a recovery. Returns whether the state has changed.
  package func setFailed(_ hasFailed: Bool) -> Bool {
    let isChange = failed.exchange(hasFailed, ordering: .acquiringAndReleasing) != hasFailed
    recovering.store(false, ordering: .releasing)
    return isChange
  }
}
