import ByteStreams
import JournalCoding

/// The outbox of a session with a store. A message is written only after the intent to write it is stored. After a
/// crash, the stored intents show which messages cannot have been written.
extension Outbox {
  /// Stores messages and records changes of deliveries from now on. Called before the first message.
  ///
  /// - Parameters:
  ///   - stored: the outbox that an earlier process stored.
  ///   - isUnderstood: whether the present upstream understands the stored messages.
  package mutating func startStoring(_ stored: StoredOutbox, isUnderstood: Bool = true, at clock: JournalClock) {
    storesMessages = true
    self.clock = clock.now
    ledger.restore(stored, at: clock)
    permitted = ledger.last
    intended = ledger.last
    lastStored = ledger.last
    for message in stored.messages.values.sorted(by: { $0.number < $1.number }) {
      restore(message, mayHaveArrived: message.number <= stored.intended, isUnderstood: isUnderstood, at: clock)
    }
    endWrittenOfEarlierProcess()
    lowerIntent()
    // The intent is always reported, so that it replaces the intent that an earlier process stored.
    hasLoweredIntent = true
  }

  private mutating func restore(
    _ message: StoredMessage, mayHaveArrived: Bool, isUnderstood: Bool, at clock: JournalClock
  ) {
    let sequence = message.number
    var deadline = MonotonicTime.distantFuture
    if let end = message.deadline {
      // Even if the clock was set back, the message gets no more than its original time to live.
      let original = end.subtractingReportingOverflow(message.time)
      deadline = clock.time(of: JournalDeadline(time: end, rest: original.overflow ? 0 : original.partialValue))
    }
    // Only the states of the last messages are stored. An older message has no stored state. If the payload of such a
    // message is still stored, the message has not ended, and counts as queued.
    let state = ledger.state(of: sequence) ?? ledger.restoreQueued(sequence)
    guard state == .queued || state == .written else { return }
    if mayHaveArrived {
      guard settings.redelivery == .unconfirmed, deadline > clock.now, isUnderstood else {
        return ledger.set(sequence, to: .unknown, because: .gatewayRestart)
      }
      if state == .written { ledger.reopen(sequence) }
    } else if deadline <= clock.now {
      return ledger.set(sequence, to: .expired, because: .ttl)
    } else if !isUnderstood {
      return ledger.set(sequence, to: .rejected, because: .gatewayRestart)
    }
    let position = ring.end
    ring.append(
      Entry(
        sequence: sequence, payload: ByteSlice(message.payload), topic: message.topic, deadline: deadline,
        kind: message.kind, isStored: true, attempts: mayHaveArrived ? 1 : 0))
    messages += 1
    waiting += 1
    waitingBytes += message.payload.count
    bytes += message.payload.count
    index(position)
  }

  /// Ends the messages that an earlier process wrote: no pong can confirm them now.
  private mutating func endWrittenOfEarlierProcess() {
    guard settings.confirms else { return }
    ledger.setAll(.written, from: 1, through: ledger.last, to: .unknown, because: .gatewayRestart)
  }

  // MARK: Confirmations

  /// Called when the message was sent and has caused a change that must be stored before the message is shown as
  /// confirmed. Until `releaseConfirmation` is called, its state stays `written` and does not count as final. That
  /// applies even to a message that pings cannot confirm, for which `written` is usually final.
  package mutating func withholdConfirmation(of sequence: UInt64) { ledger.withhold(sequence) }

  package func isConfirmationWithheld(of sequence: UInt64) -> Bool { ledger.isWithheld(sequence) }

  package mutating func releaseConfirmation(of sequence: UInt64) { ledger.release(sequence) }

  // MARK: Intents

  /// Whether a message that is queued now can be written as soon as its intent is stored: no earlier message still
  /// needs an intent.
  package var canIntendAtOnce: Bool { isOpenForTaking && !isBlocked && bucket == nil && lastStored <= intended }

  /// Whether `takeChanges` would report a change.
  package var hasUnstoredChanges: Bool { hasLoweredIntent || ledger.hasChanges }

  /// Calls `body` with the changes since the last call, in order, except accepted messages and raised intents.
  package mutating func takeChanges(at clock: JournalClock, _ body: (OutboxChange) -> Void) {
    if let lowered = takeLoweredIntent() { body(.intended(through: lowered)) }
    for change in ledger.takeChanges() {
      body(
        .settled(
          StoredSettlement(
            first: change.first, last: change.last, state: change.state.rawValue, reason: change.reason?.rawValue ?? 0,
            time: clock.wallClock(of: change.time), releasesPayloads: ledger.releasesPayload(change.state))))
    }
  }

  /// Records that a message to be stored was queued under this number.
  package mutating func noteStored(_ sequence: UInt64) { lastStored = sequence }

  /// The number up to which an intent should be stored next, so that a connection can take those messages; nil if no
  /// further intent is needed.
  package func nextIntent(maximumMessages: Int, maximumBytes: Int, now: MonotonicTime) -> UInt64? {
    guard storesMessages, isOpenForTaking, lastStored > intended else { return nil }
    let most = min(maximumMessages, max(1, bucket?.available(now: now) ?? .max))
    var (count, size, last) = (0, 0, intended)
    var position = takenEnd
    while position < ring.end, count < most, size < maximumBytes {
      if let payload = ring[position].payload {
        count += 1
        size += payload.count
        if ring[position].isStored { last = max(last, ring[position].sequence) }
      }
      position += 1
    }
    return last > intended ? last : nil
  }

  /// Records that storing the intent for messages up to `sequence` was requested.
  package mutating func intend(through sequence: UInt64) { intended = max(intended, sequence) }

  /// Records that the intent for messages up to `sequence` is stored. From now on, these messages may be written.
  package mutating func permit(through sequence: UInt64) { permitted = max(permitted, min(sequence, intended)) }

  /// Withdraws the intent for the waiting messages: no connection writes them until the intent is stored again. A
  /// message that was written once keeps its intent, since it may have arrived. A later process that ends the message
  /// must know this.
  mutating func lowerIntent() {
    guard storesMessages, takenEnd < ring.end else { return }
    var first = ring[takenEnd].sequence
    for position in takenEnd..<ring.end where ring[position].isStored && ring[position].payload != nil {
      first = ring[position].sequence
      guard ring[position].attempts > 0 else { break }
      first += 1
    }
    guard first <= intended else { return }
    intended = first - 1
    permitted = min(permitted, intended)
    hasLoweredIntent = true
  }

  /// The number up to which messages may have been written, if it was lowered since the last call.
  mutating func takeLoweredIntent() -> UInt64? {
    guard hasLoweredIntent else { return nil }
    hasLoweredIntent = false
    return intended
  }

  /// Records that the store has failed, or works again. While the store does not work, a message with time to live 0
  /// ends, since it cannot overtake messages that wait to be stored.
  package mutating func storeChanged(hasFailed: Bool) {
    storeHasFailed = hasFailed
    if isStoppedByStore { endImmediate() }
  }

  /// Whether the store has failed while messages are waiting that must not be written until it works again.
  var isStoppedByStore: Bool {
    guard storeHasFailed, waiting > 0, lastStored > permitted else { return false }
    return (takenEnd..<ring.end).contains {
      ring[$0].isStored && ring[$0].payload != nil && ring[$0].sequence > permitted
    }
  }

  /// Ends messages whose client gets an error because they cannot be stored. No connection can have taken them.
  package mutating func reject(from first: UInt64, count: Int) {
    for sequence in first..<first + UInt64(count) {
      guard let position = waitingPosition(of: sequence) else { continue }
      end(position, as: .rejected, because: .storeFailed)
    }
    trimExpiry()
  }
}
