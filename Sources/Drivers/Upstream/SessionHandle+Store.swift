import ByteStreams
import Configuration
import Continuity
import Host
import Idempotency
import Journal
import JournalCoding
import Logging
import Outbox
import Reactor
import Threading
import UpstreamProtocol

/// An intent to write messages, and when it is stored.
struct StoredIntent: Sendable {
  let through: UInt64
  let ticket: JournalTicket
}

/// Messages that were accepted together, and when they are stored.
struct StoredAcceptance: Sendable {
  let numbers: ClosedRange<UInt64>
  let ticket: JournalTicket
  /// Whether others have ended for them: by their topic, or to make room.
  let displacesOthers: Bool
}

/// A message that has changed the subscriptions, and when that is stored.
struct WithheldConfirmation: Sendable {
  let sequence: UInt64
  let ticket: JournalTicket
}

/// What becomes of messages whose sender cannot wait until they are stored.
package enum StoreRejection: Sendable {
  /// They are stored by now.
  case isStored
  /// They have ended. If the ticket is not stored and they are, the next process finds them queued.
  case isRejected(JournalTicket)
  /// They stay queued. Messages that were acknowledged have ended for them, and would be lost for nothing.
  case isKept
}

/// An idempotency key that is stored with the messages accepted under it.
package struct KeyToStore: Sendable {
  package let key: IdempotencyTable.Key
  package let fingerprint: IdempotencyTable.Key
  package let principal: IdempotencyTable.Key
  package let isBatch: Bool
  /// The position among the pushes before the messages are queued.
  package let position: UInt64
  package let lifetime: TimeSpan

  package init(
    key: IdempotencyTable.Key, fingerprint: IdempotencyTable.Key, principal: IdempotencyTable.Key, isBatch: Bool,
    position: UInt64, lifetime: TimeSpan
  ) {
    self.key = key
    self.fingerprint = fingerprint
    self.principal = principal
    self.isBatch = isBatch
    self.position = position
    self.lifetime = lifetime
  }
}

/// Messages that are queued and stored by one call.
struct MessageToStore: Sendable {
  let payloads: [SharedSlice]
  let kind: MessageKind
  let timeToLive: TimeSpan?
  let topic: String?
  let key: KeyToStore?

  init(_ payloads: [SharedSlice], kind: MessageKind, timeToLive: TimeSpan?, topic: String?, key: KeyToStore?) {
    self.payloads = payloads
    self.kind = kind
    self.timeToLive = timeToLive
    self.topic = topic
    self.key = key
  }

  /// The entries for those that were queued. `time` is wall-clock time, `keyTime` that by which keys expire.
  func entries(of results: [EnqueueResults], time: Int64, keyTime: Int64) -> [JournalEntry] {
    var entries: [JournalEntry] = []
    entries.reserveCapacity(payloads.count + 4)
    var index = 0
    for run in results {
      if case .queued(let first, _) = run.result {
        for offset in 0..<run.count {
          entries.append(
            .outbox(
              .accepted(
                StoredMessage(
                  number: first + UInt64(offset), payload: payloads[index + offset].standalone, kind: kind,
                  topic: topic, deadline: timeToLive.map { time + $0.millisecondsRoundedUp }, time: time))))
        }
      }
      index += run.count
    }
    if let key, case .queued(let first, _)? = results.first?.result {
      entries.append(
        .keyed(
          StoredKey(
            key: key.key, fingerprint: key.fingerprint, principal: key.principal,
            acceptance: IdempotencyTable.Acceptance(
              first: first, batchCount: key.isBatch ? Int32(payloads.count) : nil, kind: kind, position: key.position),
            accepted: keyTime, end: keyTime + key.lifetime.millisecondsRoundedUp)))
    }
    return entries
  }
}

/// What the next connection resumes from.
struct ResumedProtocol: Sendable {
  private(set) var cursor: [UInt8]?
  private(set) var subscriptions: [StoredSubscription] = []
  /// What the upstream needs to restore the state of the last connection, by namespace.
  private(set) var recoveries: [String: Continuation] = [:]
  /// Whether no push is missing if it does.
  private(set) var mayBeContinued = false
  /// The ids of events that are calls are larger than this. They differ from the ids of other terms, which a server may
  /// still answer if it restores the connection. The number alone does not suffice, because the number of a call is not
  /// always stored. JavaScript represents 20 bits above 32 exactly.
  private(set) var callIDBase: UInt64 = 0

  /// Nothing of what another protocol has left is understood.
  init(_ restored: RestoredSession?, _ kind: UpstreamKind) {
    if let term = restored?.terms.last { callIDBase = term.callBits << 32 }
    guard let restored, restored.memory.kind == kind else { return }
    cursor = restored.memory.cursor
    subscriptions = restored.memory.subscriptions
    mayBeContinued = restored.mayBeContinued
    recoveries = restored.memory.continuations.filter { $0.value.offset != nil }
  }
}

extension JournalClock {
  static var present: JournalClock {
    JournalClock(now: ProcessInformation.monotonicTime(), wallClock: ProcessInformation.wallClockMilliseconds())
  }
}

/// A session that is stored: what it accepts is stored before it is acknowledged, and what it writes is intended before it is written.
extension SessionHandle {
  /// Whether messages survive the process.
  package var isStored: Bool { journal != nil }

  /// Whether the journal has ended, since this gateway has lost the session. The store reports the loss right after that. Final.
  package var hasLostJournal: Bool { journal?.hasEnded ?? false }

  /// The last number of a message that was issued.
  package var lastDelivery: UInt64 { shared.withLock { $0.outbox.ledger.last } }

  func store(
    _ message: MessageToStore, in journal: any SessionJournal, now: MonotonicTime,
    _ enqueue: (inout Outbox) -> [EnqueueResults]
  ) -> BatchReceipt {
    if let hindrance = hindrance(of: journal) {
      let refused = EnqueueResults(result: .notStored(hindrance), count: message.payloads.count)
      return BatchReceipt(results: [refused], nextAttempt: nil)
    }
    let time = ProcessInformation.wallClockMilliseconds()
    let keyTime = keyClock?.time(at: now) ?? time
    let (receipt, signal) = update(at: now) { shared in
      let intends = shared.outbox.canIntendAtOnce
      let displacements = shared.outbox.displacements
      let results = enqueue(&shared.outbox)
      var entries = message.entries(of: results, time: time, keyTime: keyTime)
      var signal: Signal?
      var (first, last): (UInt64?, UInt64?) = (nil, nil)
      for run in results {
        signal = shared.signal(after: run.result) ?? signal
        if case .queued(let number, _) = run.result {
          first = first ?? number
          last = number + UInt64(run.count) - 1
        }
      }
      var receipt = BatchReceipt(results: results, nextAttempt: shared.nextAttempt)
      guard let last else { return (receipt, signal) }
      shared.outbox.noteStored(last)
      // With the message, so that nothing of the two is stored without the other, and they cost one commit.
      entries += shared.takeChanges()
      if intends {
        shared.outbox.intend(through: last)
        entries.append(.outbox(.intended(through: last)))
      }
      let ticket = journal.submit(contentsOf: entries)
      let acceptance = StoredAcceptance(
        numbers: (first ?? last)...last, ticket: ticket, displacesOthers: shared.outbox.displacements != displacements)
      shared.noteAcceptance(acceptance, in: journal)
      if intends { shared.intents.append(StoredIntent(through: last, ticket: ticket)) }
      receipt.ticket = ticket
      return (receipt, signal)
    }
    signal?.notify()
    return receipt
  }

  private func hindrance(of journal: any SessionJournal) -> EnqueueResult.StoreHindrance? {
    if journal.isFailed { return .failed }
    return journal.isFull ? .full : nil
  }

  /// What became of messages that were posted.
  package func outcome(of ticket: JournalTicket) -> JournalOutcome { journal?.outcome(of: ticket) ?? .stored }

  /// The ticket of an accepted message that is not stored yet; nil if it is. It is one of this session, which is notified when it is stored.
  package func ticket(of sequence: UInt64) -> JournalTicket? {
    guard let journal else { return nil }
    let ticket = shared.withLock { $0.acceptance(of: sequence)?.ticket }
    return ticket.flatMap { journal.outcome(of: $0) == .stored ? nil : $0 }
  }

  /// From now on, `deliveryNotifier` also notifies when something is stored. Ends with `endWaitingForStore()`.
  package func beginWaitingForStore() { shared.withLock { $0.storeWaiters += 1 } }

  package func endWaitingForStore() { shared.withLock { $0.storeWaiters -= 1 } }

  /// Whether it will never be known here if the entry is stored, since another gateway continues the journal, or this one does in a new term.
  package func isLost(_ ticket: JournalTicket) -> Bool {
    guard let journal, journal.hasEnded else { return false }
    return journal.outcome(of: ticket) != .stored
  }

  /// Ends messages that were accepted together, and whose sender gets an error, because they are not stored.
  package func reject(_ messages: [(first: UInt64, count: Int)], _ ticket: JournalTicket) -> StoreRejection {
    update { shared in
      guard let journal, journal.outcome(of: ticket) != .stored else { return .isStored }
      // The next term may have the messages, and would not have their end.
      guard !journal.hasEnded else { return .isKept }
      if let first = messages.first?.first, shared.acceptance(of: first)?.displacesOthers == true { return .isKept }
      for run in messages { shared.outbox.reject(from: run.first, count: run.count) }
      return .isRejected(journal.submit(contentsOf: shared.takeChanges()))
    }
  }

  /// Something of this session was stored, or the state of the store has changed. Called on the thread of the store.
  package func journalChanged() {
    // The lock orders this with those who begin to wait: either they find what is stored, or they are counted.
    let (signal, isAwaited, isChange, withholds) = shared.withLock { shared in
      let isChange = shared.outbox.storeHasFailed != (journal?.isFailed == true)
      let mustSignal =
        isChange || !shared.intents.isEmpty || shared.isReadingPaused || shared.hasDelayedAcknowledgements
      return (
        mustSignal ? shared.signal : nil, shared.storeWaiters > 0, isChange, !shared.withheldConfirmations.isEmpty
      )
    }
    if withholds { releaseConfirmations() }
    if isChange { update { $0.outbox.storeChanged(hasFailed: journal?.isFailed == true) } }
    signal?.notify()
    if isAwaited { deliveryNotifier.notify() }
  }

  /// Whether one of these messages could not be stored, so that their sender got an error.
  package func wasRejectedByStore(_ acceptance: IdempotencyTable.Acceptance) -> Bool {
    // All are rejected together, except those that had ended, as the ones that a later message of the batch has replaced.
    [acceptance.first, acceptance.last].contains { sequence in
      let record = deliveryRecord(sequence, now: .zero)
      return record?.state == .rejected && record?.reason == .storeFailed
    }
  }

  // MARK: Confirmations

  /// A message was sent and has changed the subscriptions. Its confirmation, or the reply to its call, says that they survive the process, so it is not
  /// shown before they are stored.
  func withholdConfirmation(of sequence: UInt64, until ticket: JournalTicket) {
    guard let journal, journal.outcome(of: ticket) != .stored else { return }
    shared.withLock { shared in
      // A store that has failed, or a session that is not stored any more, does not prevent calls. The state of the oldest message is forgotten by then.
      if shared.withheldConfirmations.count == shared.outbox.ledger.limit { shared.releaseConfirmation() }
      shared.withheldConfirmations.append(WithheldConfirmation(sequence: sequence, ticket: ticket))
      shared.outbox.withholdConfirmation(of: sequence)
    }
    // The store may have caught up before.
    releaseConfirmations()
  }

  /// Shows the confirmations of what is stored by now. A store that has failed shows them when it works again.
  private func releaseConfirmations() {
    guard let journal else { return }
    let callers = update { shared -> [Notifier] in
      var hasReleased = false
      while !shared.withheldConfirmations.isEmpty {
        let first = shared.withheldConfirmations[shared.withheldConfirmations.front]
        guard journal.outcome(of: first.ticket) == .stored else { break }
        shared.releaseConfirmation()
        hasReleased = true
      }
      return hasReleased || journal.isFailed ? shared.callNotifiers : []
    }
    for caller in callers { caller.notify() }
  }

  // MARK: The session's loop

  /// Lets the connection take the messages whose intents are stored.
  func permitStored(_ shared: inout Shared, _ journal: any SessionJournal) {
    while !shared.intents.isEmpty {
      let intent = shared.intents[shared.intents.front]
      guard journal.outcome(of: intent.ticket) == .stored else { return }
      shared.outbox.permit(through: intent.through)
      shared.intents.removeFirst()
    }
  }

  /// Requests to store that the next messages are written.
  func requestIntent(
    _ shared: inout Shared, _ journal: any SessionJournal, messages: Int, bytes: Int, now: MonotonicTime
  ) {
    guard let last = shared.outbox.nextIntent(maximumMessages: messages, maximumBytes: bytes, now: now) else { return }
    shared.outbox.intend(through: last)
    let ticket = journal.submit(contentsOf: shared.takeChanges() + [.outbox(.intended(through: last))])
    shared.intents.append(StoredIntent(through: last, ticket: ticket))
  }

  /// Whether the upstream may not be read now. If so, the session's loop is signalled when it may be.
  func mustPauseReading(_ journal: any SessionJournal) -> Bool {
    guard journal.mustPauseReading else { return false }
    shared.withLock { $0.isReadingPaused = true }
    // The store may have caught up before the flag was set.
    return journal.mustPauseReading
  }

  /// Records whether acknowledgements wait until events are stored. If so, the session's loop is signalled when more is stored. Returns that.
  func awaitsStore(_ waits: Bool) -> Bool {
    shared.withLock { $0.hasDelayedAcknowledgements = waits }
    return waits
  }

  // MARK: Restoring

  /// Continues with what an earlier process has stored.
  func restore(_ restored: RestoredSession, _ kind: UpstreamKind, in journal: any SessionJournal) {
    let isUnderstood = restored.memory.kind == kind
    let clock = JournalClock.present
    update(at: clock.now) { $0.outbox.startStoring(restored.outbox, isUnderstood: isUnderstood, at: clock) }
    guard !isUnderstood else { return }
    // After the ends of its messages, so that the next process does not misunderstand them.
    journal.submit(.memory(.speaks(kind)))
    guard restored.isContinued else { return }
    logger.warning(
      "the upstream is of another kind than in the last run: queued messages are rejected, and nothing is resumed",
      [.text("kind", kind.rawValue), .number("messages", restored.outbox.messages.count)])
  }
}

extension SessionHandle.BatchReceipt {
  /// The receipt of a single message, or of a batch that is queued as a whole or not at all.
  var single: SessionHandle.Receipt {
    SessionHandle.Receipt(result: results.first?.result ?? .closed, nextAttempt: nextAttempt, ticket: ticket)
  }
}

extension SessionHandle.Shared {
  /// Shows the oldest confirmation that is withheld.
  fileprivate mutating func releaseConfirmation() {
    outbox.releaseConfirmation(of: withheldConfirmations[withheldConfirmations.front].sequence)
    withheldConfirmations.removeFirst()
  }

  /// The messages with which this one was accepted; nil if that is stored.
  fileprivate func acceptance(of sequence: UInt64) -> StoredAcceptance? {
    // The numbers increase.
    var (low, high) = (acceptances.front, acceptances.end)
    while low < high {
      let middle = low + (high - low) / 2
      if acceptances[middle].numbers.upperBound < sequence { low = middle + 1 } else { high = middle }
    }
    guard low < acceptances.end, acceptances[low].numbers.contains(sequence) else { return nil }
    return acceptances[low]
  }

  /// Remembers when messages are stored, and forgets that of those that are.
  mutating func noteAcceptance(_ acceptance: StoredAcceptance, in journal: any SessionJournal) {
    while !acceptances.isEmpty, journal.outcome(of: acceptances[acceptances.front].ticket) == .stored {
      acceptances.removeFirst()
    }
    acceptances.append(acceptance)
  }

  /// The changes of deliveries since the last call, as entries.
  mutating func takeChanges() -> [JournalEntry] {
    guard outbox.hasUnstoredChanges else { return [] }
    var entries: [JournalEntry] = []
    outbox.takeChanges(at: .present) { entries.append(.outbox($0)) }
    // The intents that wait to be stored are for messages that are queued again.
    if case .outbox(.intended)? = entries.first { intents.removeAll() }
    return entries
  }

  mutating func submitChanges(to journal: any SessionJournal) {
    guard outbox.hasUnstoredChanges else { return }
    let entries = takeChanges()
    // States are written behind: a message whose last state is missing is `unknown`, or is found to have expired once more.
    if case .outbox(.intended)? = entries.first {
      journal.submit(contentsOf: entries)
    } else {
      journal.note(contentsOf: entries)
    }
  }
}
