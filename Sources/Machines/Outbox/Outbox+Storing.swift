import ByteStreams
import JournalCoding

/// The outbox of a session that is stored: a message is written only after that intent is stored, so that after a crash it is known which
/// messages cannot have been written.
extension Outbox {
  /// From now on, messages are stored, and changes of deliveries are recorded. Called before the first message.
  ///
  /// - Parameters:
  ///   - stored: by an earlier process.
  ///   - isUnderstood: whether the present upstream understands its messages.
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
    // In any case, so that what an earlier process intended does not stay.
    hasLoweredIntent = true
  }

  private mutating func restore(
    _ message: StoredMessage, mayHaveArrived: Bool, isUnderstood: Bool, at clock: JournalClock
  ) {
    let sequence = message.number
    var deadline = MonotonicTime.distantFuture
    if let end = message.deadline {
      // A clock that was set back grants no more than the original time.
      let original = end.subtractingReportingOverflow(message.time)
      deadline = clock.time(of: JournalDeadline(time: end, rest: original.overflow ? 0 : original.partialValue))
    }
    // The states of the last messages only are stored, and one whose payload is stored may be older: it has not ended.
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
        sequence: sequence, payload: SharedSlice(message.payload), topic: message.topic, deadline: deadline,
        kind: message.kind, isStored: true, attempts: mayHaveArrived ? 1 : 0))
    messages += 1
    waiting += 1
    waitingBytes += message.payload.count
    bytes += message.payload.count
    index(position)
  }

  /// Nobody confirms messages of a connection of an earlier process.
  private mutating func endWrittenOfEarlierProcess() {
    guard settings.confirms else { return }
    ledger.setAll(.written, from: 1, through: ledger.last, to: .unknown, because: .gatewayRestart)
  }

  // MARK: Confirmations

  /// The message was sent and has changed something that must be stored before the message is shown as confirmed: until it is released, it is `written`. If nothing
  /// confirms it, `written` is not its final state until then.
  package mutating func withholdConfirmation(of sequence: UInt64) { ledger.withhold(sequence) }

  package func isConfirmationWithheld(of sequence: UInt64) -> Bool { ledger.isWithheld(sequence) }

  package mutating func releaseConfirmation(of sequence: UInt64) { ledger.release(sequence) }

  // MARK: Intents

  /// Whether a message that is queued now can be written as soon as its intent is stored: that of all messages before it is.
  package var canIntendAtOnce: Bool { isOpenForTaking && !isBlocked && bucket == nil && lastStored <= intended }

  /// Whether `takeChanges` has something.
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

  /// A message was queued. Its number is that of the last stored message from now on.
  package mutating func noteStored(_ sequence: UInt64) { lastStored = sequence }

  /// The last of the waiting messages that a connection may take next and whose intent must be stored for that; nil if there is none.
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

  /// It was requested to store that messages up to `sequence` are written.
  package mutating func intend(through sequence: UInt64) { intended = max(intended, sequence) }

  /// The intent for messages up to `sequence` is stored.
  package mutating func permit(through sequence: UInt64) { permitted = max(permitted, min(sequence, intended)) }

  /// No connection writes waiting messages any more until that is intended again. Those that were written once stay intended: however they end, at
  /// whatever process, they may have arrived.
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

  /// The store does not work, or works again. While it does not, a message with time to live 0 cannot overtake those that wait to be stored.
  package mutating func storeChanged(hasFailed: Bool) {
    storeHasFailed = hasFailed
    if isHeldByStore { endImmediate() }
  }

  /// Whether the store has failed, and messages wait that must not be written before it works again.
  var isHeldByStore: Bool {
    guard storeHasFailed, waiting > 0, lastStored > permitted else { return false }
    return (takenEnd..<ring.end).contains {
      ring[$0].isStored && ring[$0].payload != nil && ring[$0].sequence > permitted
    }
  }

  /// Ends messages of a client that gets an error because they cannot be stored. A connection cannot have taken them.
  package mutating func reject(from first: UInt64, count: Int) {
    for sequence in first..<first + UInt64(count) {
      guard let position = waitingPosition(of: sequence) else { continue }
      end(position, as: .rejected, because: .storeFailed)
    }
    trimExpiry()
  }
}
