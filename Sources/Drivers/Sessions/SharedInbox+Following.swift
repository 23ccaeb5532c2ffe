import ByteStreams
import Inbox
import Journal
import JournalCoding
import Reactor
import Synchronization
import Threading

/// An inbox that follows that of another gateway. One thread changes it.
extension SharedInbox {
  /// An inbox of a session of which nothing is known yet.
  static func unknown(retention: Retention, budget: RetentionBudget) -> SharedInbox {
    SharedInbox(
      PushLog(following: Epoch(0), terms: [], retention: retention), budget, nil, isUnknown: true)
  }

  /// Follows a log from here on.
  convenience init(following log: FollowedLog, budget: RetentionBudget) {
    self.init(log.log, budget, nil)
    budget.add(log.log.retainedBytes)
  }

  /// What readers of this inbox see now, to be followed from there.
  var followed: FollowedLog { FollowedLog(log.withLock { PushLog(following: $0) }) }

  /// Whether the term of a cursor is one of this log, as far as this gateway knows.
  func isKnown(_ cursor: Cursor) -> Bool {
    cursor.epoch == epoch && (cursor.term == term.load(ordering: .relaxed) || log.withLock { $0.isKnown(cursor) })
  }

  private enum Change {
    case entries([LogChange])
    case continued(after: UInt64?, [Term])
    case replaced(FollowedLog)
  }

  /// Appends what the other gateway has stored.
  func follow(_ entries: [LogChange]) { apply(.entries(entries)) }

  /// The log has these terms from now on. What is after the push with this number is void; nil: nothing is.
  func `continue`(after number: UInt64?, _ terms: [Term]) { apply(.continued(after: number, terms)) }

  /// Continues with a log that was read anew, of the same epoch. Readers whose terms it lacks get a gap.
  func replaceLog(with new: FollowedLog) {
    precondition(new.epoch == epoch, "an inbox keeps its epoch")
    apply(.replaced(new))
  }

  private func apply(_ change: Change) {
    let clock = JournalClock.present
    appender.withLock { appender in
      guard !appender.isClosed else { return }
      // What is replaced is freed without the lock.
      let (growth, _) = log.withLock { log -> (Int, PushLog?) in
        let before = log.retainedBytes
        var last: PushLog?
        switch change {
        case .entries(let entries):
          for entry in entries { log.follow(entry, at: clock, dropping: &appender.dropped) }
        case .continued(let number, let terms): log.continue(after: number, terms)
        case .replaced(let new): (last, log) = (log, new.log)
        }
        // In this order: a reader that finds the new position finds the new term.
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

/// A copy of another gateway's log that nobody reads yet: it is being read from the store.
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
  /// The log of a stored session, with its times on the clock of this process.
  init(restoring restored: RestoredSession, retention: Retention) {
    let terms = restored.terms.map { Term($0.term, firstMessage: $0.firstPush) }
    self.init(
      restoring: restored.log, epoch: Epoch(restored.epoch), terms: terms, retention: retention, at: .present)
  }
}
