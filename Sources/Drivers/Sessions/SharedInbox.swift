import ByteStreams
import Continuity
import Events
import Inbox
import Journal
import Reactor
import Synchronization
import Threading
import UpstreamProtocol

/// The inbox of one session: the pushes retained for clients, shared by all event loops.
///
/// The upstream's loop appends, and clients on any loop read. The lock that readers share is held only while references are taken:
/// a push is rendered before that, and the pushes it evicts are freed afterwards.
package final class SharedInbox: Sendable {
  /// State for appending, behind a lock that no reader takes.
  struct Appender: ~Copyable {
    var renderer = MessageRenderer()
    /// Pushes that the log has dropped; empty between two calls.
    var dropped: [RetainedMessage] = []
    /// Whether the session is closed: nothing is appended any more.
    var isClosed = false
    /// What a connection resumes from after the next push; nil: as before. Only if the inbox is stored.
    var resumeCursor: [UInt8]?
    /// When the last push is stored. Only if the inbox is stored.
    var lastTicket: JournalTicket?
    /// The value that was stored last.
    var storedCursor: [UInt8]?
    /// The number before which the store has dropped pushes, or will.
    var trimmed: UInt64 = 1
    /// Bytes of the pushes that were dropped since then. The store holds them.
    var untrimmedBytes = 0

    /// Frees the dropped pushes. The array keeps its capacity, unless a large push has evicted unusually many.
    mutating func free() {
      for message in dropped { untrimmedBytes &+= message.cost }
      dropped.removeAll(keepingCapacity: dropped.count <= Self.retainedCapacity)
    }
    static let retainedCapacity = 1024
  }

  /// Lock order: taken before `log`.
  let appender = Locked(Appender())
  let log: Locked<PushLog>
  /// Number of changes of the log, from a start that no other inbox of the process has: a session may have several one after another, with one
  /// epoch. Incremented within the lock, after the change.
  let changes: Atomic<UInt64>
  /// The position after the newest push or gap. Written within the lock, after the change.
  let position: Atomic<UInt64>
  package let epoch: Epoch
  /// Changes only if the inbox follows that of another gateway. Written within the lock, before the position.
  let term: Atomic<UInt64>
  /// Number of readers that also wait for changes of the session's state.
  private let stateReaders = Atomic<Int>(0)
  /// Number of open streams, whether they wait or their clients still read earlier batches.
  private let streams = Atomic<Int>(0)
  /// Why readers end, if they do.
  private let ending = Atomic(Ending.none.rawValue)
  /// Whether nothing is known of the log yet, not even its epoch. A reader with a cursor waits; others cannot be given a position.
  package let isUnknown: Bool
  let budget: RetentionBudget
  /// nil if pushes are not stored.
  private let journal: (any SessionJournal)?
  /// Notified after every change that readers may wait for.
  package let notifier = Notifier()

  /// - Parameter budget: limits the memory of all inboxes together.
  package convenience init(epoch: Epoch, retention: Retention, budget: RetentionBudget = RetentionBudget()) {
    self.init(PushLog(epoch: epoch, retention: retention), budget, nil)
  }

  /// An inbox whose pushes are stored. A push is visible once it is.
  ///
  /// - Parameter restored: the pushes of earlier processes.
  convenience init(
    restoring restored: RestoredSession, in journal: any SessionJournal, retention: Retention, budget: RetentionBudget
  ) {
    self.init(PushLog(restoring: restored, retention: retention), budget, journal)
    budget.add(log.withLock { $0.retainedBytes })
  }

  private enum Ending: UInt8 {
    case none
    /// The session is closed: nothing is left to read.
    case closed
    /// Another inbox has taken the place of this one. Readers find their next pushes there.
    case replaced
  }

  /// Enough for the changes of one inbox.
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

  /// Appends a push. The `payload` of a text message must be valid UTF-8. `time` is wall-clock time, in milliseconds of UNIX time.
  /// `topic` is empty if it has none.
  package func append(
    _ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8> = Span(), time: Int64, now: MonotonicTime
  ) {
    append(nil, time: time, now: now) { renderer, id in
      renderer.render(payload, kind: kind, topic: topic, id: id, time: time, arrival: now)
    }
  }

  /// Appends an event of a Socket.IO upstream.
  ///
  /// - Parameter continuation: what a connection of another process continues from after it. Only if the inbox is stored.
  package func append(
    _ event: EventRecord, _ continuation: Continuation? = nil, time: Int64, now: MonotonicTime
  ) {
    let continued = continuation.map { JournalEntry.memory(.continued(namespace: event.namespace.text(), $0)) }
    append(continued, time: time, now: now) { renderer, id in
      renderer.render(event, id: id, time: time, arrival: now)
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
      // Otherwise readers are notified when it is stored.
      if journal.showsUnstored { journalChanged() }
    } else {
      notifier.notify()
    }
  }

  // MARK: Storing

  /// How many pushes may be dropped before that is submitted.
  private static var trimInterval: UInt64 { 64 }
  /// How many bytes of them.
  private static var trimBytes: Int { 1 << 20 }

  private func store(
    _ message: RetainedMessage, _ continued: JournalEntry?, time: Int64, _ appender: inout Appender,
    in journal: any SessionJournal
  ) {
    let push = JournalEntry.log(.push(message.stored(time: time)))
    if appender.resumeCursor == nil, continued == nil {
      appender.lastTicket = journal.submit(push)
    } else {
      // Together: if only what follows survived, the push would be lost.
      var entries = [push]
      if let cursor = appender.resumeCursor {
        (appender.resumeCursor, appender.storedCursor) = (nil, cursor)
        entries.append(.memory(.cursor(cursor)))
      }
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

  /// When all pushes so far are stored; nil if there is nothing to store.
  var lastTicket: JournalTicket? { appender.withLock { $0.lastTicket } }

  /// From the next push on, a connection resumes from this value.
  func resumes(from cursor: [UInt8]) {
    appender.withLock { appender in
      if appender.storedCursor != cursor { appender.resumeCursor = cursor }
    }
  }

  /// More is stored, or the store does not work: then pushes may be shown nevertheless. Called on the thread of the store.
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
    /// Applies these limits.
    case changed(Retention, now: MonotonicTime)
  }

  /// Frees all pushes. Every reader that waits is notified, and none finds data any more.
  func close() {
    // Before the lock, which an upstream that floods may hold: who finds the session's parts closed must find this.
    ending.store(Ending.closed.rawValue, ordering: .sequentiallyConsistent)
    _ = drop(.everything)
    notifier.notify()
  }

  /// Whether the session is closed, so that no push will follow.
  package var isClosed: Bool { ending.load(ordering: .sequentiallyConsistent) == Ending.closed.rawValue }

  /// Whether readers end, since the session is closed or continues in another inbox.
  package var hasEnded: Bool { ending.load(ordering: .sequentiallyConsistent) != Ending.none.rawValue }

  /// Another inbox has taken the place of this one. Readers that wait end with what they have. What is appended from now on is read by nobody.
  func replaced() {
    ending.store(Ending.replaced.rawValue, ordering: .sequentiallyConsistent)
    notifier.notify()
  }

  /// Drops the oldest pushes until at most `bytes` are kept. Returns whether there were any.
  ///
  /// - Parameter keepsNewest: whether the newest push stays, whatever its size.
  func trim(toBytes bytes: Int, keepsNewest: Bool) -> Bool { drop(.beyond(bytes: bytes, keepsNewest: keepsNewest)) }

  /// Drops pushes in slices, between which readers continue. Returns whether there were any.
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
          // What readers have prepared stays valid if nothing was dropped.
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

  /// Records that the upstream was disconnected, so that pushes may be missing.
  package func recordUpstreamGap() {
    appender.withLock { _ in
      log.withLock {
        $0.recordGap(isHidden: journal != nil)
        position.store($0.last.position, ordering: .sequentiallyConsistent)
        changes.add(1, ordering: .releasing)
      }
      // In the order of the pushes.
      journal?.submit(.log(.gap(.upstream)))
    }
    if journal?.showsUnstored == true { journalChanged() }
    if journal == nil { notifier.notify() }
  }

  /// From now on, `notifier` also notifies when the state of the session changes. Ends with `endReadingState()`.
  package func beginReadingState() { stateReaders.add(1, ordering: .sequentiallyConsistent) }

  package func endReadingState() { stateReaders.subtract(1, ordering: .sequentiallyConsistent) }

  /// Whether a reader waits for changes of the session's state. The others are not woken for them.
  var hasStateReaders: Bool { stateReaders.load(ordering: .sequentiallyConsistent) > 0 }

  /// A stream begins to read. Ends with `endStream()`.
  package func beginStream() { streams.add(1, ordering: .relaxed) }

  package func endStream() { streams.subtract(1, ordering: .relaxed) }

  /// Whether clients receive pushes now. A stream does not wait on `notifier` while its client reads slowly.
  var hasReaders: Bool { notifier.hasWaiters || streams.load(ordering: .relaxed) > 0 }

  /// Drops the pushes whose time is over. Returns whether there were any.
  package func expire(now: MonotonicTime) -> Bool {
    drop(.expired(now: now))
  }

  /// Applies other limits. Returns whether they have dropped pushes.
  package func change(_ retention: Retention, now: MonotonicTime) -> Bool { drop(.changed(retention, now: now)) }

  /// Incremented on every change. Read it before the data: while it stays the same, the data is current.
  package var revision: UInt64 { changes.load(ordering: .acquiring) }

  /// The position after the newest push, without a lock. A push that arrives after this call is after this position. Not of an inbox that follows
  /// another, whose term may be a newer one.
  package var latest: Cursor { cursor(at: position.load(ordering: .acquiring)) }

  /// A position of this inbox, from `Cursor.position`.
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

  /// As `resolve`, for a position that is stored, and from which others are counted: not beyond what readers see. Of a shared log, a client may have
  /// received a push from another gateway a moment before this one shows it.
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

  /// The number of the oldest push that is kept, or of the next one if none is.
  package var firstRetained: UInt64 { log.withLock { $0.firstRetained } }

  /// Returns nil if the push is no longer kept.
  package func message(_ number: UInt64) -> RetainedMessage? { log.withLock { $0.message(number) } }

  /// Whether a read from `start` would return a message or a gap, or the session is closed. Without a lock. Sequentially consistent, like the flag of a waiter that
  /// `notifier` reads after a change: so either the waiter sees the change, or the notification sees the waiter.
  package func hasNewData(after start: ReadStart) -> Bool {
    start.precedes(cursor(at: position.load(ordering: .sequentiallyConsistent))) && !isUnknown || hasEnded
  }

  /// As `hasNewData(after:)`, for a reader with a filter. Moves `start` past messages that do not match.
  package func hasNewData(after start: inout ReadStart, matching filter: TopicFilter) -> Bool {
    !isUnknown && log.withLock { $0.hasNewData(after: &start, matching: filter) } || hasEnded
  }

  /// For metrics and the status page.
  package var summary: (last: Cursor, count: Int, bytes: Int) {
    log.withLock { ($0.last, $0.retainedCount, $0.retainedBytes) }
  }
}
