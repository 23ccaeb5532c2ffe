import ByteStreams
import Inbox
import Journal
import Replication

/// The copy that this gateway has of the pushes of another one's session: how far it is, and what is read next.
struct FollowedSession {
  /// How long a session is followed after it was last asked for.
  static var idleTime: TimeSpan { .seconds(60) }

  /// Another one each time that a session begins to be followed.
  let number: UInt64
  private(set) var lastUse = MonotonicTime.zero
  /// Whether everything is notified from now on. What is read before may miss an entry that nobody notifies.
  var isSubscribed = false
  /// Whether there may be more than was read.
  var needsRead = true
  var isReading = false
  /// The number of the last refresh that was asked for, of the one that the read in progress is for, and of the last that is complete.
  private var asked: UInt64 = 0
  private var reading: UInt64 = 0
  private var refreshed: UInt64 = 0
  /// Whether the holder is to be notified of readers.
  var hasReaders = false

  /// Whether the last part that was read was not the end.
  private var hasMore = false
  /// About how many bytes are read next.
  var partBytes: Int { StreamPart.bytes(isFirst: !hasMore) }

  /// Where the last part ended whose next entry did not follow; nil: none, or it was read since.
  private var failedAfter: PushEntryID?
  /// When the session is read again.
  private(set) var nextRead = MonotonicTime.zero
  /// Pushes that were dropped while the log was read are not missing when it is read anew. A damaged entry is, until it is dropped too.
  private static var damagePause: TimeSpan { .seconds(10) }
  /// Before a read is repeated that Redis has refused, or whose reply was malformed.
  private static var refusalPause: TimeSpan { .seconds(1) }
  /// Before a read is repeated that too few replicas have confirmed. Redis may refuse WAIT at once.
  private static var confirmationPause: TimeSpan { .milliseconds(100) }

  private var epoch: UInt64 = 0
  private var terms = ShareTerms()
  /// The last entry of the copy.
  private(set) var last = PushEntryID.none
  /// The number of the next push; nil: any.
  private var next: UInt64?

  /// Whether the holder may have written the last entry again, with gaps that followed it.
  private var mayLackGaps = false

  init(number: UInt64) {
    self.number = number
  }

  /// - Parameters:
  ///   - refresh: the number of a refresh that is asked for, or 0.
  ///   - hasReaders: whether the holder is to be notified of readers.
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

  /// The connection was lost, or Redis has lost data: the session is read again.
  mutating func disconnected() {
    isReading = false
    needsRead = true
    mayLackGaps = true
  }

  /// The part could not be read.
  mutating func refused(now: MonotonicTime) { readAgain(at: now + Self.refusalPause) }

  /// A failover may lose what was read. It is read again with the next heartbeat.
  mutating func unconfirmed(now: MonotonicTime) { readAgain(at: now + Self.confirmationPause) }

  private mutating func readAgain(at time: MonotonicTime) {
    needsRead = true
    nextRead = time
  }

  /// Reads a part. Returns what has changed.
  ///
  /// - Parameter history: the present one.
  mutating func add(_ part: StreamPart, history: String, now: MonotonicTime) -> [FollowedChange] {
    let record = part.record
    // What nobody has stamped may be replaced by what another gateway has of it. It is notified.
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
        // The entry that ends with this push is read once more, for the gaps in it.
        (last, next) = (number == 0 ? .none : PushEntryID(push: number - 1, count: .max), number + 1)
      }
      // The part was read after the end of the copy.
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

  /// What the copy and the log have in common.
  private enum Common {
    case nothing
    /// The pushes up to this number, and perhaps not the gaps after it. An entry that was written again with others has the id of the first one.
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

  /// The entries that follow; nil if pushes are missing between the copy and them, because they were dropped, or an entry is damaged.
  private mutating func entries(of part: StreamPart) -> [LogChange]? {
    var result: [LogChange] = []
    for (id, bytes) in part.entries {
      // A gap belongs to the push after it.
      var gaps: [LogChange] = []
      let follows = JournalEntry.read(bytes.span) { entry in
        guard case .log(let change) = entry else { return true }
        let push: StoredPush
        switch change {
        case .push(let value): push = value
        // The holder had dropped pushes that Redis had lost.
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
        // After a failover, a holder may write pushes again with others in one entry.
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
