import ByteStreams
import JournalCoding

/// A copy of another gateway's log, which follows the changes that the gateway stores.
///
/// The copy has the terms, messages and gaps of the other log, and drops messages by its own limits. It shows only what
/// is stored, so a reader may continue at any gateway. A reader's position belongs to the term in which it was given.
/// When the terms change, `present` finds the corresponding position in the log.
extension PushLog {
  /// A copy without messages. The first message that is appended may have any number.
  package init(following epoch: Epoch, terms: [Term], retention: Retention) {
    self.init(epoch: epoch, retention: retention)
    isCopy = true
    use(terms)
  }

  /// A copy that begins with the part of a log that readers see.
  package init(following log: PushLog) {
    self = log
    isCopy = true
    cut(toPosition: visible)
  }

  mutating func use(_ terms: [Term]) {
    self.terms = terms
    term = terms.last?.term ?? 0
  }

  /// Sets the terms that the other log has from now on.
  ///
  /// - Parameter number: messages and gaps after this message are void; nil if all remain valid.
  package mutating func `continue`(after number: UInt64?, _ terms: [Term]) {
    if let number { cut(toPosition: number << 1) }
    use(terms)
  }

  /// Removes the messages and gaps after a position.
  private mutating func cut(toPosition position: UInt64) {
    guard position < end else { return }
    let number = position >> 1
    while !ring.isEmpty, next - 1 > number {
      if let last = ring[ring.end - 1] {
        retainedBytes -= last.message.cost
        // The gap before the removed message is now after the last message.
        endGap = last.gap
      }
      ring.removeLast()
    }
    if next - 1 > number { restart(at: number + 1) }
    if position & 1 == 0 { endGap = [] }
    if newestTrimmedGap > position { (newestTrimmedGap, newestTrimmedMarks) = (0, []) }
    visible = end
  }

  /// Continues without messages. The next message has this number.
  mutating func restart(at number: UInt64) {
    ring = RingDeque(filler: nil, minimumCapacity: 64, front: Int(clamping: number - 1))
    retainedBytes = 0
  }

  /// Appends a message of the other log. A message that the copy already has is ignored. If earlier messages are
  /// missing, they count as dropped by retention.
  private mutating func append(following message: RetainedMessage, dropping dropped: inout [RetainedMessage]) {
    guard message.sequence >= next, message.sequence < UInt64(Int.max) else { return }
    if message.sequence > next {
      while first < next { dropFirst(&dropped) }
      restart(at: message.sequence)
      // It is not known when the missing messages arrived. The newest of them is assumed to have arrived together with
      // this message, so that a read that starts at a given time reports the gap.
      newestTrimmedArrival = message.arrival
    }
    append(message, dropping: &dropped)
  }

  /// Replaces a message of the other log that cannot be read, and all messages before it, by a gap.
  private mutating func skip(unreadable number: UInt64, dropping dropped: inout [RetainedMessage]) {
    guard number >= next, number < UInt64(Int.max) else { return }
    while first < next { dropFirst(&dropped) }
    forget(through: number)
    visible = end
  }

  /// Replaces a message that cannot be read, and all messages before it, by a gap.
  mutating func forget(through number: UInt64) {
    restart(at: number + 1)
    endGap = []
    (newestTrimmedGap, newestTrimmedMarks) = (number << 1, .store)
  }

  /// Restores the facts about dropped messages.
  mutating func recall(_ retention: StoredRetention, at clock: JournalClock) {
    newestTrimmedGap = retention.newestTrimmedGap.map { $0.after << 1 | 1 } ?? 0
    newestTrimmedMarks = retention.newestTrimmedGap?.marks.ofLog ?? []
    newestTrimmedArrival = retention.newestTrimmedArrival.map { clock.time(of: $0) }
    firstArrival = retention.firstArrival.map { clock.time(of: $0) }
  }

  /// Continues at `retention.first`: the other log has dropped all messages before it, and this copy lacks some of
  /// them.
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

  /// Applies the next change that the other gateway has stored.
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

  /// The position of a reader in the present terms.
  func present(_ start: ReadStart) -> ReadStart {
    guard start.cursor.epoch == epoch, start.cursor.term != term else { return start }
    guard let moved = readStart(at: start.cursor) else { return ReadStart(last, gap: .store) }
    return moved.gap == nil ? ReadStart(moved.cursor, gap: start.gap) : moved
  }
}
