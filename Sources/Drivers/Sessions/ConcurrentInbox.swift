import ByteStreams
import Continuity
import Events
import Inbox
import Journal
import Reactor
import Synchronization
import Threading
import UpstreamProtocol

/// The inbox of one session: the pushes that are kept for clients. Thread-safe.
///
/// The upstream's loop appends pushes, and clients on any loop read them. The lock that readers take is held only while
/// references are copied. A push is rendered before the lock is taken, and evicted pushes are freed after it is
/// released.
package final class ConcurrentInbox: Sendable {
  /// State for appending, behind a lock that no reader takes.
  struct Appender: ~Copyable {
    var renderer = MessageRenderer()
    /// Pushes that the log has dropped and that are not freed yet. Empty between two calls.
    var dropped: [RetainedMessage] = []
    /// Whether the session is closed, so that no push is appended any more.
    var isClosed = false
    /// The upstream's cursor, from which a later connection resumes; nil if there is none. Used only if the
    /// inbox is stored.
    var resumeCursor: [UInt8]?
    /// The changes that are stored with the next push.
    var memoryChanges: [MemoryChange] = []
    /// The ticket of the last push. Used only if the inbox is stored.
    var lastTicket: JournalTicket?
    /// The number before which the store was requested to drop all pushes.
    var trimmed: UInt64 = 1
    /// The bytes of the pushes that the inbox has dropped since that request. The store still has these pushes.
    var untrimmedBytes = 0

    /// Frees the dropped pushes. The array keeps its capacity, unless the capacity is unusually large because a large
    /// push has evicted many pushes.
    mutating func free() {
      for message in dropped { untrimmedBytes &+= message.cost }
      dropped.removeAll(keepingCapacity: dropped.count <= Self.retainedCapacity)
    }
    static let retainedCapacity = 1024
  }

  /// Lock order: this lock is taken before `log`.
  let appender = Locked(Appender())
  let log: Locked<PushLog>
  /// The number of changes of the log. The first value is different for each inbox of the process, since a session may
  /// have several inboxes of one epoch, one after another. Incremented after the change, while the lock is held.
  let changes: Atomic<UInt64>
  /// The position after the newest push or gap. Written after the change, while the lock is held.
  let position: Atomic<UInt64>
  package let epoch: Epoch
  /// The term of the log. It changes only if the inbox follows the inbox of another gateway. Written before the
  /// position, while the lock is held.
  let term: Atomic<UInt64>
  /// The number of readers that also wait for changes of the session's state.
  private let stateReaders = Atomic<Int>(0)
  /// The number of open streams. A stream is counted even while it does not wait because its client still reads earlier
  /// batches.
  private let streams = Atomic<Int>(0)
  /// Whether and why readers end.
  private let ending = Atomic(Ending.none.rawValue)
  /// Whether this gateway does not know anything about the log yet, not even its epoch. Until the log is known, a
  /// reader with a cursor waits, and a reader without a cursor cannot get a position.
  package let isUnknown: Bool
  let budget: RetentionBudget
  /// The journal of the session; nil if pushes are not stored.
  private let journal: (any SessionJournal)?
  /// Notified after every change that readers may wait for.
  package let notifier = Notifier()

  /// - Parameter budget: limits the memory of all inboxes together.
  package convenience init(epoch: Epoch, retention: Retention, budget: RetentionBudget = RetentionBudget()) {
    self.init(PushLog(epoch: epoch, retention: retention), budget, nil)
  }

  /// Creates an inbox whose pushes are stored. A push becomes visible when it is stored.
  ///
  /// - Parameter restored: the pushes that earlier processes stored.
  convenience init(
    restoring restored: RestoredSession, in journal: any SessionJournal, retention: Retention, budget: RetentionBudget
  ) {
    self.init(PushLog(restoring: restored, retention: retention), budget, journal)
    budget.add(log.withLock { $0.retainedBytes })
  }

  private enum Ending: UInt8 {
    case none
    /// The session is closed, and has no pushes any more.
    case closed
    /// Another inbox has replaced this inbox. Readers find the next pushes there.
    case replaced
  }

  /// The number of low bits of a revision that count the changes of one inbox. The higher bits are the number of the
  /// inbox.
  private static var revisionBits: Int { 40 }
  private static let inboxes = Atomic<UInt64>(0)

  init(_ first: PushLog, _ budget: RetentionBudget, _ journal: (any SessionJournal)?, isUnknown: Bool = false) {
    self.budget = budget
    self.journal = journal
    self.isUnknown = isUnknown
    changes = Atomic(Self.inboxes.add(1, ordering: .relaxed).oldValue << Self.revisionBits)
    epoch = first.epoch
    term = Atomic(first.term)
    position = Atomic(first.last.position)
    log = Locked(first)
  }

  /// Appends a push. The `payload` of a text message must be valid UTF-8. `time` is wall-clock time in milliseconds
  /// since 1970. An empty `topic` means no topic.
  package func append(
    _ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8> = Span(), time: Int64, now: MonotonicTime
  ) {
    append(nil, time: time, now: now) { renderer, id in
      renderer.render(payload, kind: kind, topic: topic, id: id, time: time, arrival: now)
    }
  }

  /// Appends an event of a Socket.IO upstream.
  ///
  /// - Parameter continuation: the point from which a later connection continues after this event. Used only if the
  ///   inbox is stored.
  package func append(
    _ event: EventRecord, _ continuation: Continuation? = nil, time: Int64, now: MonotonicTime
  ) {
    let continued = continuation.map { JournalEntry.memory(.continued(namespace: event.namespace.text(), $0)) }
    append(continued, time: time, now: now) { renderer, id in
      renderer.render(event, id: id, time: time, arrival: now)
    }
  }

  /// A large push that is rendered before it is appended.
  package final class RenderedPush: Sendable {
    fileprivate let message: Locked<RetainedMessage?>

    fileprivate init(_ message: RetainedMessage) { self.message = Locked(message) }
  }

  /// Renders a large push. Can be called on any thread.
  package func render(_ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, time: Int64) -> RenderedPush {
    var renderer = MessageRenderer()
    return RenderedPush(
      renderer.render(payload, kind: kind, topic: topic, id: likelyID, time: time, arrival: .zero))
  }

  package func render(_ event: EventRecord, time: Int64) -> RenderedPush {
    var renderer = MessageRenderer()
    return RenderedPush(renderer.render(event, id: likelyID, time: time, arrival: .zero))
  }

  /// An id that usually has the length of the next push's id, so that the rendered push does not change its length.
  private var likelyID: Cursor { log.withLock { $0.nextID } }

  /// Appends a push that `render` has returned, once.
  package func append(_ push: RenderedPush, _ continuation: (String, Continuation)?, time: Int64, now: MonotonicTime) {
    let continued = continuation.map { JournalEntry.memory(.continued(namespace: $0.0, $0.1)) }
    append(continued, time: time, now: now) { _, id in
      guard var message = push.message.withLock({ $0.take() }) else { preconditionFailure("a push is appended once") }
      message.place(at: id, arrival: now)
      return message
    }
  }

  @inline(__always)
  private func append(
    _ continued: JournalEntry?, time: Int64, now: MonotonicTime,
    _ render: (inout MessageRenderer, Cursor) -> RetainedMessage
  ) {
    appender.withLock { appender in
      guard !appender.isClosed else { return }
      let id = log.withLock { $0.nextID }
      let message = render(&appender.renderer, id)
      let growth = log.withLock { log in
        let before = log.retainedBytes
        log.append(message, isHidden: journal != nil, dropping: &appender.dropped)
        position.store(log.last.position, ordering: .sequentiallyConsistent)
        changes.add(1, ordering: .releasing)
        return log.retainedBytes - before
      }
      budget.add(growth)
      appender.free()
      if let journal { store(message, continued, time: time, &appender, in: journal) }
    }
    if let journal {
      // When a push is stored, it becomes visible, and readers are notified. While the store has failed, pushes are
      // visible at once.
      if journal.showsUnstored { journalChanged() }
    } else {
      notifier.notify()
    }
  }

  // MARK: Storing

  /// Drops are submitted to the store after this many pushes.
  private static var trimInterval: UInt64 { 64 }
  /// Drops are submitted to the store after this many bytes, even if they are fewer pushes.
  private static var trimBytes: Int { 1 << 20 }

  private func store(
    _ message: RetainedMessage, _ continued: JournalEntry?, time: Int64, _ appender: inout Appender,
    in journal: any SessionJournal
  ) {
    let push = JournalEntry.log(.push(message.stored(time: time)))
    if appender.memoryChanges.isEmpty, continued == nil {
      appender.lastTicket = journal.submit(push)
    } else {
      // The cursor and the push are submitted in one piece: if only the cursor survived a crash, a later connection
      // would resume after a push that is lost.
      var entries = [push] + appender.memoryChanges.map { .memory($0) }
      appender.memoryChanges = []
      if let continued { entries.append(continued) }
      appender.lastTicket = journal.submit(contentsOf: entries)
    }
    storeTrim(&appender, atLeast: Self.trimInterval, in: journal)
  }

  private func storeTrim(_ appender: inout Appender, atLeast count: UInt64, in journal: any SessionJournal) {
    let first = log.withLock { $0.firstRetained }
    guard first >= appender.trimmed + count || first > appender.trimmed && appender.untrimmedBytes >= Self.trimBytes
    else {
      return
    }
    (appender.trimmed, appender.untrimmedBytes) = (first, 0)
    journal.note(contentsOf: [.log(.trimmed(before: first))])
  }

  /// The ticket of the last push. When it is stored, all pushes so far are stored. nil if no push was submitted.
  var lastTicket: JournalTicket? { appender.withLock { $0.lastTicket } }

  /// Stores `cursor` with the next push, so that later connections resume from it. With nil,
  /// a cursor that waits for the next push is not stored.
  func resumes(from cursor: [UInt8]?) {
    appender.withLock { appender in
      guard appender.resumeCursor != cursor else { return }
      appender.resumeCursor = cursor
      appender.memoryChanges.removeAll { if case .cursor = $0 { true } else { false } }
      if let cursor { appender.memoryChanges.append(.cursor(cursor)) }
    }
  }

  /// Stores `changes` with the next push.
  func remembers(_ changes: [MemoryChange]) {
    guard !changes.isEmpty else { return }
    appender.withLock { $0.memoryChanges += changes }
  }

  /// Stores the changes of `remembers` that were not stored together with a push. A cursor is stored only with its
  /// push.
  func storeRemembered() {
    guard let journal else { return }
    appender.withLock { appender in
      let isCursor = { (change: MemoryChange) in if case .cursor = change { true } else { false } }
      let changes = appender.memoryChanges.filter { !isCursor($0) }
      guard !changes.isEmpty else { return }
      appender.memoryChanges.removeAll { !isCursor($0) }
      journal.submit(contentsOf: changes.map { .memory($0) })
    }
  }

  /// Called on the thread of the store, when entries were stored or when the store has failed. While the store does not
  /// work, pushes may be shown before they are stored.
  func journalChanged() {
    guard let journal else { return }
    let shown = journal.showsUnstored ? nil : journal.storedPosition
    let isNews = log.withLock { log in
      guard log.reveal(through: shown) else { return false }
      position.store(log.last.position, ordering: .sequentiallyConsistent)
      changes.add(1, ordering: .releasing)
      return true
    }
    if isNews { notifier.notify() }
  }

  // MARK: The end

  private enum Removal {
    case everything
    case expired(now: MonotonicTime)
    case beyond(bytes: Int, keepsNewest: Bool)
    /// Applies new limits.
    case changed(Retention, now: MonotonicTime)
  }

  /// Frees all pushes. Notifies every reader that waits; no reader finds data any more.
  func close() {
    // The flag is set before the lock is taken: a request that finds other parts of the session closed must find the
    // inbox closed, too, but a flood of pushes may delay the lock.
    ending.store(Ending.closed.rawValue, ordering: .sequentiallyConsistent)
    _ = drop(.everything)
    notifier.notify()
  }

  /// Whether the session is closed, so that no push will follow.
  package var isClosed: Bool { ending.load(ordering: .sequentiallyConsistent) == Ending.closed.rawValue }

  /// Whether readers must end, because the session is closed or continues in another inbox.
  package var hasEnded: Bool { ending.load(ordering: .sequentiallyConsistent) != Ending.none.rawValue }

  /// Called when another inbox has replaced this inbox. Requests that wait for pushes end with the pushes that they
  /// have. Pushes that are appended to this inbox later have no readers.
  func replaced() {
    ending.store(Ending.replaced.rawValue, ordering: .sequentiallyConsistent)
    notifier.notify()
  }

  /// Drops the oldest pushes until the rest has at most `bytes` bytes. Returns whether it dropped any push.
  ///
  /// - Parameter keepsNewest: whether the newest push stays, whatever its size.
  func trim(toBytes bytes: Int, keepsNewest: Bool) -> Bool { drop(.beyond(bytes: bytes, keepsNewest: keepsNewest)) }

  /// Drops pushes in slices, and releases the lock between two slices, so that readers can take it. Returns whether it
  /// dropped any push.
  private func drop(_ removal: Removal) -> Bool {
    appender.withLock { appender in
      if case .everything = removal { appender.isClosed = true }
      let slice = Appender.retainedCapacity
      var hasDropped = false
      while true {
        let growth = log.withLock { log in
          let before = log.retainedBytes
          switch removal {
          case .everything: log.removeAll(dropping: &appender.dropped, atMost: slice)
          case .expired(let now): log.expire(now: now, dropping: &appender.dropped, atMost: slice)
          case .beyond(let bytes, let keepsNewest):
            log.trim(toBytes: bytes, keepsNewest: keepsNewest, dropping: &appender.dropped, atMost: slice)
          case .changed(let retention, let now):
            log.change(retention, now: now, dropping: &appender.dropped, atMost: slice)
          }
          // The number of changes stays the same if no push was dropped, so that prepared responses stay valid.
          if !appender.dropped.isEmpty || appender.isClosed { changes.add(1, ordering: .releasing) }
          return log.retainedBytes - before
        }
        budget.add(growth)
        let count = appender.dropped.count
        appender.free()
        if count > 0 { hasDropped = true }
        guard count < slice else { continue }
        if let journal { storeTrim(&appender, atLeast: 1, in: journal) }
        return hasDropped
      }
    }
  }

  deinit { budget.add(-log.withLock { $0.retainedBytes }) }

  /// Records a gap: the upstream was disconnected, so that pushes may be missing.
  package func recordUpstreamGap() {
    appender.withLock { _ in
      log.withLock {
        $0.recordGap(isHidden: journal != nil)
        position.store($0.last.position, ordering: .sequentiallyConsistent)
        changes.add(1, ordering: .releasing)
      }
      // The gap is submitted while the lock is held, so that the store gets pushes and gaps in order.
      journal?.submit(.log(.gap(.upstream)))
    }
    if journal?.showsUnstored == true { journalChanged() }
    if journal == nil { notifier.notify() }
  }

  /// From now on, `notifier` is also notified when the state of the session changes, until `endReadingState()` is
  /// called.
  package func beginReadingState() { stateReaders.add(1, ordering: .sequentiallyConsistent) }

  package func endReadingState() { stateReaders.subtract(1, ordering: .sequentiallyConsistent) }

  /// Whether a reader waits for changes of the session's state. Other readers are not woken for these changes.
  var hasStateReaders: Bool { stateReaders.load(ordering: .sequentiallyConsistent) > 0 }

  /// Called when a stream begins to read. Ends with `endStream()`.
  package func beginStream() { streams.add(1, ordering: .relaxed) }

  package func endStream() { streams.subtract(1, ordering: .relaxed) }

  /// Whether clients receive pushes now. Streams are counted separately, since a stream does not wait on `notifier`
  /// while its client reads slowly.
  var hasReaders: Bool { notifier.hasWaiters || streams.load(ordering: .relaxed) > 0 }

  /// Drops expired pushes. Returns whether it dropped any push.
  package func expire(now: MonotonicTime) -> Bool {
    drop(.expired(now: now))
  }

  /// Applies new limits. Returns whether they dropped pushes.
  package func change(_ retention: Retention, now: MonotonicTime) -> Bool { drop(.changed(retention, now: now)) }

  /// Incremented on every change. A reader must read this value before it reads the pushes. The pushes that it has read
  /// are current as long as the value stays the same.
  package var revision: UInt64 { changes.load(ordering: .acquiring) }

  /// The position after the newest push, without a lock. A push that arrives after this call is after this position.
  /// Must not be used for an inbox that follows another gateway. Its term may change after the position is loaded and
  /// before the term is loaded.
  package var latest: Cursor { cursor(at: position.load(ordering: .acquiring)) }

  /// The cursor of a position of this inbox. `position` is a `Cursor.position`.
  package func cursor(at position: UInt64) -> Cursor {
    Cursor(epoch: epoch, term: term.load(ordering: .relaxed), position: position)
  }

  package func resolve(_ start: StartingPoint, now: MonotonicTime) throws(CursorAheadError) -> ReadStart {
    if isUnknown, let cursor = start.cursor { return ReadStart(cursor) }
    let result: Result<ReadStart, CursorAheadError> = log.withLock { log in
      do throws(CursorAheadError) {
        return .success(try log.resolve(start, now: now))
      } catch {
        return .failure(error)
      }
    }
    return try result.get()
  }

  /// Like `resolve`, but never returns a position after the last push that readers see here. It is used for positions
  /// that are stored and from which pushes are counted. The cursor of a client may be beyond that push, since the
  /// client may have received the next push from another gateway just before this gateway shows it.
  package func resolveShown(_ start: StartingPoint, now: MonotonicTime) throws(CursorAheadError) -> ReadStart {
    let start = try resolve(start, now: now)
    let latest = latest
    guard start.cursor.epoch == epoch, start.cursor.term == latest.term, start.cursor.position > latest.position
    else { return start }
    return ReadStart(latest, gap: start.gap)
  }

  package func read(
    after start: ReadStart, limit: Int, maxBytes: Int, matching filter: TopicFilter? = nil
  ) -> ReadResult {
    if isUnknown { return ReadResult(nothingAt: start.cursor) }
    return log.withLock { $0.read(after: start, limit: limit, maxBytes: maxBytes, matching: filter) }
  }

  /// The number of the oldest push that is kept, or of the next push if none is kept.
  package var firstRetained: UInt64 { log.withLock { $0.firstRetained } }

  /// Returns nil if the push is no longer kept.
  package func message(_ number: UInt64) -> RetainedMessage? { log.withLock { $0.message(number) } }

  /// Whether a read from `start` would return a push or a gap, or the session has ended. Takes no lock. A waiter sets
  /// its flag before this load, and `notifier` reads the flag after a change. Both accesses are sequentially
  /// consistent. So either the waiter sees the change, or the notification sees the waiter.
  package func hasNewData(after start: ReadStart) -> Bool {
    start.precedes(cursor(at: position.load(ordering: .sequentiallyConsistent))) && !isUnknown || hasEnded
  }

  /// Like `hasNewData(after:)`, for a reader with a filter. Moves `start` past pushes that do not match the filter.
  package func hasNewData(after start: inout ReadStart, matching filter: TopicFilter) -> Bool {
    !isUnknown && log.withLock { $0.hasNewData(after: &start, matching: filter) } || hasEnded
  }

  /// The figures for metrics and the status page.
  package var summary: (last: Cursor, count: Int, bytes: Int) {
    log.withLock { ($0.last, $0.retainedCount, $0.retainedBytes) }
  }
}
