import ByteStreams
import Inbox
import Journal
import Replication

/// The progress of copying the pushes of a remote session to this gateway.
struct FollowedSession {
  /// How long a session is followed after the last request to follow it.
  static var idleTime: TimeSpan { .seconds(60) }

  /// Increases each time this gateway begins to follow a session. If the number has changed since a read was sent, the
  /// reply to this read is ignored.
  let number: UInt64
  private(set) var lastUse = MonotonicTime.zero
  /// Whether this gateway has subscribed to the notifications of the session. A read before the subscription can miss
  /// an entry, and no notification would follow.
  var isSubscribed = false
  /// Whether Redis may have entries that were not read.
  var needsRead = true
  var isReading = false
  /// Numbers of refreshes: the last requested, the last that the present read includes, and the last completed.
  private var asked: UInt64 = 0
  private var reading: UInt64 = 0
  private var refreshed: UInt64 = 0
  /// Whether the holder must be notified of readers.
  var hasReaders = false

  /// Whether the last part that was read did not reach the end of the stream.
  private var hasMore = false
  /// About how many bytes the next read returns.
  var partBytes: Int { StreamPart.bytes(isFirst: !hasMore) }

  /// The last entry before a missing or damaged entry. nil if no entry is missing or damaged, or if a later read has
  /// passed this place.
  private var failedAfter: PushEntryID?
  /// The earliest time of the next read.
  private(set) var nextRead = MonotonicTime.zero
  /// Pause after a second failure at the same place. A first failure may mean only that pushes were dropped during the
  /// read, so the session is read again at once. A damaged entry fails again until it is dropped.
  private static var damagePause: TimeSpan { .seconds(10) }
  /// Pause after a read that Redis has refused, or whose reply was malformed.
  private static var refusalPause: TimeSpan { .seconds(1) }
  /// Pause after a read that too few replicas have confirmed. Redis may refuse WAIT at once. Without this pause, the
  /// read would be repeated continuously.
  private static var confirmationPause: TimeSpan { .milliseconds(100) }

  private var epoch: UInt64 = 0
  private var terms = HolderTerms()
  /// The last entry of the copy.
  private(set) var last = PushEntryID.none
  /// The number of the next push; nil if any number may follow.
  private var next: UInt64?

  /// Whether the copy may lack gaps, because the holder may have rewritten the last entry with further gaps.
  private var mayLackGaps = false

  init(number: UInt64) {
    self.number = number
  }

  /// - Parameters:
  ///   - refresh: the number of a requested refresh, or 0.
  ///   - hasReaders: whether the holder must be notified of readers.
  mutating func ask(refresh: UInt64, hasReaders: Bool, now: MonotonicTime) {
    lastUse = now
    if refresh > asked {
      asked = refresh
      needsRead = true
    }
    if hasReaders { self.hasReaders = true }
  }

  mutating func beginReading() {
    needsRead = false
    isReading = true
    reading = asked
  }

  /// Called when the connection was lost, or Redis has lost data. The session is read again.
  mutating func disconnected() {
    isReading = false
    needsRead = true
    mayLackGaps = true
  }

  /// Called when Redis has refused a read, or its reply was malformed.
  mutating func refused(now: MonotonicTime) { readAgain(at: now + Self.refusalPause) }

  /// Called when too few replicas have confirmed the read, so that a failover may lose the entries. The entries are
  /// read again with the next heartbeat.
  mutating func unconfirmed(now: MonotonicTime) { readAgain(at: now + Self.confirmationPause) }

  private mutating func readAgain(at time: MonotonicTime) {
    needsRead = true
    nextRead = time
  }

  /// Adds a part that was read. Returns the changes of the copy.
  ///
  /// - Parameter history: the present history of Redis.
  mutating func add(_ part: StreamPart, history: String, now: MonotonicTime) -> [FollowedChange] {
    let record = part.record
    // A record without the present history may still be replaced by its holder, which then sends a notification.
    guard record.history == history, !record.isNew, record.format <= SharedRecord.newestFormat else { return [] }
    hasMore = part.hasMore
    var changes: [FollowedChange] = []
    if record.epoch != epoch || record.terms != terms || mayLackGaps {
      mayLackGaps = false
      let common = common(with: record)
      (epoch, terms) = (record.epoch, record.terms)
      let end = last
      switch common {
      case .nothing: changes += restart()
      case .through(let number):
        changes.append(.continued(after: number, terms))
        // The entry that ends with this push is read again, since it may contain further gaps.
        (last, next) = (number == 0 ? .none : PushEntryID(push: number - 1, count: .max), number + 1)
      }
      // The part begins after the old end of the copy. The end has changed, so the part is discarded.
      guard end == last else {
        needsRead = true
        return changes
      }
    }
    guard let entries = entries(of: part) else {
      if failedAfter == last { nextRead = now + Self.damagePause }
      failedAfter = last
      needsRead = true
      return changes + restart()
    }
    if let place = failedAfter, last > place { failedAfter = nil }
    if !entries.isEmpty { changes.append(.entries(entries)) }
    if part.hasMore {
      needsRead = true
    } else {
      changes.append(.isCurrent)
      if refreshed < reading {
        refreshed = reading
        changes.append(.refreshed(refreshed))
      }
    }
    return changes
  }

  private mutating func restart() -> [FollowedChange] {
    (last, next) = (.none, nil)
    return [.restarted(epoch: epoch, terms)]
  }

  /// The common beginning of the copy and the log.
  private enum Common {
    case nothing
    /// The pushes up to this number are common, but the gaps after it may differ: an entry that was rewritten with
    /// later pushes keeps the id of its first push.
    case through(UInt64)
  }

  private func common(with record: SharedRecord) -> Common {
    guard record.epoch == epoch, let term = terms.last?.term,
      let index = record.terms.begins.firstIndex(where: { $0.term == term })
    else { return .nothing }
    let next = index + 1
    if next < record.terms.begins.count, last.push >= record.terms.begins[next].firstPush { return .nothing }
    return .through(last.push)
  }

  /// Returns the entries that follow the copy. nil if an entry is damaged, or pushes between the copy and the part are
  /// missing because they were dropped.
  private mutating func entries(of part: StreamPart) -> [LogChange]? {
    var result: [LogChange] = []
    for (id, bytes) in part.entries {
      // A gap precedes the push that it belongs to.
      var gaps: [LogChange] = []
      let follows = JournalEntry.read(bytes.span) { entry in
        guard case .log(let change) = entry else { return true }
        let push: StoredPush
        switch change {
        case .push(let value): push = value
        // The holder had dropped the pushes before this number, and Redis had lost them.
        case .retained(let retention):
          guard retention.first > next ?? 0 else { return true }
          result.append(change)
          next = retention.first
          return true
        default:
          gaps.append(change)
          return true
        }
        let expected = next ?? push.number
        guard push.number <= expected else { return false }
        // After a failover, a holder may write a push again, in one entry with later pushes.
        if push.number == expected {
          result += gaps
          result.append(change)
          next = expected + 1
        }
        gaps = []
        return true
      }
      guard follows else { return nil }
      if next == nil || next == id.push + 1 { result += gaps }
      last = id
    }
    return result
  }
}
