import ByteStreams
import Inbox
import Journal
import JournalCoding
import Reactor
import Synchronization
import Threading
import Upstream

/// An inbox that follows the inbox of another gateway. Only one thread changes such an inbox.
extension ConcurrentInbox {
  /// Creates the inbox of a session whose log this gateway has not read yet.
  static func unknown(retention: Retention, budget: RetentionBudget) -> ConcurrentInbox {
    ConcurrentInbox(
      PushLog(following: Epoch(0), terms: [], retention: retention), budget, nil, isUnknown: true)
  }

  /// Creates an inbox that continues a copy.
  convenience init(following log: FollowedLog, budget: RetentionBudget) {
    self.init(log.log, budget, nil)
    budget.add(log.log.retainedBytes)
  }

  /// A copy of the pushes that readers of this inbox see now. Another inbox can be created from the copy.
  var followed: FollowedLog { FollowedLog(log.withLock { PushLog(following: $0) }) }

  /// Whether this gateway knows that the log has the term of the cursor.
  func isKnown(_ cursor: Cursor) -> Bool {
    cursor.epoch == epoch && (cursor.term == term.load(ordering: .relaxed) || log.withLock { $0.isKnown(cursor) })
  }

  private enum Change {
    case entries([LogChange])
    case continued(after: UInt64?, [Term])
    case replaced(FollowedLog)
  }

  /// Appends entries that the holder has stored.
  func follow(_ entries: [LogChange]) { apply(.entries(entries)) }

  /// Replaces the terms of the log. Drops the pushes after `number`, since a new term has made them void; `number` is
  /// nil if no push is void.
  func `continue`(after number: UInt64?, _ terms: [Term]) { apply(.continued(after: number, terms)) }

  /// Replaces the log by a log of the same epoch that was read again. A reader gets a gap if the new log does not have
  /// the term of its cursor.
  func replaceLog(with new: FollowedLog) {
    precondition(new.epoch == epoch, "an inbox keeps its epoch")
    apply(.replaced(new))
  }

  private func apply(_ change: Change) {
    let clock = JournalClock.present
    appender.withLock { appender in
      guard !appender.isClosed else { return }
      // The replaced log is returned, so that it is freed after the lock is released.
      let (growth, _) = log.withLock { log -> (Int, PushLog?) in
        let before = log.retainedBytes
        var last: PushLog?
        switch change {
        case .entries(let entries):
          for entry in entries { log.follow(entry, at: clock, dropping: &appender.dropped) }
        case .continued(let number, let terms): log.continue(after: number, terms)
        case .replaced(let new): (last, log) = (log, new.log)
        }
        // The term is stored first, so that a reader that sees the new position sees the new term.
        term.store(log.term, ordering: .sequentiallyConsistent)
        position.store(log.last.position, ordering: .sequentiallyConsistent)
        changes.add(1, ordering: .releasing)
        return (log.retainedBytes - before, last)
      }
      budget.add(growth)
      appender.free()
    }
    notifier.notify()
  }
}

/// A copy of another gateway's log while it is being read from the store. The copy has no readers yet.
struct FollowedLog {
  fileprivate(set) var log: PushLog

  init(epoch: UInt64, _ terms: [Term], retention: Retention) {
    log = PushLog(following: Epoch(epoch), terms: terms, retention: retention)
  }

  fileprivate init(_ log: PushLog) { self.log = log }

  var epoch: Epoch { log.epoch }

  mutating func follow(_ entries: [LogChange]) {
    var dropped: [RetainedMessage] = []
    let clock = JournalClock.present
    for entry in entries {
      log.follow(entry, at: clock, dropping: &dropped)
      dropped.removeAll(keepingCapacity: true)
    }
  }

  mutating func `continue`(after number: UInt64?, _ terms: [Term]) { log.continue(after: number, terms) }
}

extension PushLog {
  /// Creates the log of a stored session, with its times converted to the clock of this process.
  init(restoring restored: RestoredSession, retention: Retention) {
    let terms = restored.terms.map { Term($0.term, firstMessage: $0.firstPush) }
    self.init(
      restoring: restored.log, epoch: Epoch(restored.epoch), terms: terms, retention: retention, at: .present)
  }
}
