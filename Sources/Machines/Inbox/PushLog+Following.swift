import ByteStreams
import JournalCoding

/// A log that follows that of another gateway, from what that has stored.
///
/// It has terms, messages and gaps of the other, and drops messages by its own limits. What it shows is stored, so a reader may continue at any
/// gateway. A reader's position is of the term that it was given in: when the terms change, `present` finds where it is in the log now.
extension PushLog {
  /// A copy without messages. The first one that is appended may have any number.
  package init(following epoch: Epoch, terms: [Term], retention: Retention) {
    self.init(epoch: epoch, retention: retention)
    isCopy = true
    use(terms)
  }

  /// A copy that begins with what readers see of a log.
  package init(following log: PushLog) {
    self = log
    isCopy = true
    cut(toPosition: visible)
  }

  mutating func use(_ terms: [Term]) {
    self.terms = terms
    term = terms.last?.term ?? 0
  }

  /// The other log has these terms from now on.
  ///
  /// - Parameter number: what is after this message is void, also a gap; nil: nothing is.
  package mutating func `continue`(after number: UInt64?, _ terms: [Term]) {
    if let number { cut(toPosition: number << 1) }
    use(terms)
  }

  /// Removes what is after a position.
  private mutating func cut(toPosition position: UInt64) {
    guard position < end else { return }
    let number = position >> 1
    while !ring.isEmpty, next - 1 > number {
      if let last = ring[ring.end - 1] {
        retainedBytes -= last.message.cost
        // What is left of it is after the last message.
        endGap = last.gap
      }
      ring.removeLast()
    }
    if next - 1 > number { restart(at: number + 1) }
    if position & 1 == 0 { endGap = [] }
    if newestTrimmedGap > position { (newestTrimmedGap, newestTrimmedMarks) = (0, []) }
    visible = end
  }

  /// Continues without messages; the next one has this number.
  mutating func restart(at number: UInt64) {
    ring = RingDeque(filler: nil, minimumCapacity: 64, front: Int(clamping: number - 1))
    retainedBytes = 0
  }

  /// Appends a message of the other log. One that the copy has already is ignored. If others are missing before it, they count as dropped by
  /// retention.
  private mutating func append(following message: RetainedMessage, dropping dropped: inout [RetainedMessage]) {
    guard message.sequence >= next, message.sequence < UInt64(Int.max) else { return }
    if message.sequence > next {
      while first < next { dropFirst(&dropped) }
      restart(at: message.sequence)
      // They are not known to be older.
      newestTrimmedArrival = message.arrival
    }
    append(message, dropping: &dropped)
  }

  /// A message of the other log that cannot be read. It is a gap, with all before it.
  private mutating func skip(unreadable number: UInt64, dropping dropped: inout [RetainedMessage]) {
    guard number >= next, number < UInt64(Int.max) else { return }
    while first < next { dropFirst(&dropped) }
    forget(through: number)
    visible = end
  }

  /// A message cannot be read. It is a gap, with all before it.
  mutating func forget(through number: UInt64) {
    restart(at: number + 1)
    endGap = []
    (newestTrimmedGap, newestTrimmedMarks) = (number << 1, .store)
  }

  /// Remembers what is known of dropped messages.
  mutating func recall(_ retention: StoredRetention, at clock: JournalClock) {
    newestTrimmedGap = retention.newestTrimmedGap.map { $0.after << 1 | 1 } ?? 0
    newestTrimmedMarks = retention.newestTrimmedGap?.marks.ofLog ?? []
    newestTrimmedArrival = retention.newestTrimmedArrival.map { clock.time(of: $0) }
    firstArrival = retention.firstArrival.map { clock.time(of: $0) }
  }

  /// The other log has dropped all messages before one, some of which this copy has not seen.
  private mutating func skip(
    to retention: StoredRetention, at clock: JournalClock, dropping dropped: inout [RetainedMessage]
  ) {
    guard retention.first > next, retention.first < UInt64(Int.max) else { return }
    while first < next { dropFirst(&dropped) }
    restart(at: retention.first)
    endGap = []
    recall(retention, at: clock)
    visible = end
  }

  /// What the other gateway has stored next.
  package mutating func follow(
    _ change: LogChange, at clock: JournalClock, dropping dropped: inout [RetainedMessage]
  ) {
    switch change {
    case .push(let push):
      if let message = RetainedMessage(push, at: clock) {
        append(following: message, dropping: &dropped)
      } else {
        skip(unreadable: push.number, dropping: &dropped)
      }
    case .gap(let marks): recordGap(marks.ofLog)
    case .retained(let retention): skip(to: retention, at: clock, dropping: &dropped)
    case .trimmed: break
    }
  }

  /// Where a reader is in the present terms.
  func present(_ start: ReadStart) -> ReadStart {
    guard start.cursor.epoch == epoch, start.cursor.term != term else { return start }
    guard let moved = readStart(at: start.cursor) else { return ReadStart(last, gap: .store) }
    return moved.gap == nil ? ReadStart(moved.cursor, gap: start.gap) : moved
  }
}
