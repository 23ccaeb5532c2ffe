import ByteStreams
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

/// An intent to write messages, and its ticket.
struct StoredIntent: Sendable {
  let through: UInt64
  let ticket: JournalTicket
}

/// Messages that were accepted together, and their ticket.
struct StoredAcceptance: Sendable {
  let numbers: ClosedRange<UInt64>
  let ticket: JournalTicket
  /// Whether other messages have ended because these messages were queued: they were replaced because of their
  /// replacement key, or dropped to make room.
  let displacesOthers: Bool
}

/// A message that has changed the subscriptions, and the ticket of its change.
struct WithheldConfirmation: Sendable {
  let sequence: UInt64
  let ticket: JournalTicket
}

/// The result for messages whose sender cannot wait until they are stored.
package enum StoreRejection: Sendable {
  /// The messages were stored in the meantime.
  case isStored
  /// The messages have ended. The ticket is for the entry that stores their end. If the messages are stored but their
  /// end is not, the next process finds the messages queued.
  case isRejected(JournalTicket)
  /// The messages stay queued, for one of two reasons. Another process may already have them. Or acknowledged messages
  /// have ended to make room for them, and would be lost for nothing if the new messages ended, too.
  case isKept
}

/// The data from which the next connection resumes.
struct ResumedProtocol: Sendable {
  private(set) var cursor: [UInt8]?
  private(set) var subscriptions: [StoredSubscription] = []
  /// The data that the upstream needs to restore the state of the last connection, by namespace.
  private(set) var recoveries: [String: Continuation] = [:]
  /// Whether no push is missing if the upstream restores this state.
  private(set) var mayBeContinued = false
  /// Whether the stored state has another client identity (`PreparedSettings.client`) or is for another protocol, so
  /// that it must not be used.
  private(set) var isOfOtherClient = false
  /// The captured values that outlive connections.
  private(set) var captures: [String: StoredCapture] = [:]
  /// The base of the ids of calls that are events: an id is this base plus the number of the message. The base makes
  /// the ids of different terms differ. That is necessary because a server that restores a connection may still reply
  /// to an id of an earlier term, and because the number of a message is not always stored and may be used again. The
  /// base is 20 bits of the term, followed by 32 zero bits, so JavaScript represents the ids exactly.
  private(set) var callIDBase: UInt64 = 0

  /// The key of the client identity in the stored continuations. No namespace has this name.
  private static var clientKey: String { "" }

  /// The continuations of a connection in their stored form, with the client identity of the connection.
  static func stored(_ continuations: [String: Continuation], of settings: PreparedSettings) -> [JournalEntry] {
    guard !continuations.isEmpty else { return [] }
    var continuations = continuations
    continuations[clientKey] = Continuation(pid: settings.client, offset: [])
    return continuations.sorted { $0.key < $1.key }.map { .memory(.continued(namespace: $0.key, $0.value)) }
  }

  /// Ignores data that was stored for another protocol, since the configured protocol cannot read it.
  init(_ restored: RestoredSession?, _ settings: PreparedSettings) {
    if let term = restored?.terms.last { callIDBase = term.callBits << 32 }
    guard let restored else { return }
    mayBeContinued = restored.mayBeContinued
    guard restored.memory.kind == settings.kind else {
      isOfOtherClient = true
      return
    }
    cursor = restored.memory.cursor
    subscriptions = restored.memory.subscriptions
    captures = restored.memory.captures
    let continuations = restored.memory.continuations
    // Earlier versions stored no client identity.
    if let client = continuations[Self.clientKey], client.pid != settings.client {
      isOfOtherClient = true
    } else {
      recoveries = continuations.filter { $0.value.offset != nil && $0.key != Self.clientKey }
    }
  }
}

extension JournalClock {
  package static var present: JournalClock {
    JournalClock(now: ProcessInformation.monotonicTime(), wallClock: ProcessInformation.wallClockMilliseconds())
  }
}

/// A session with a store. A message is stored before its acceptance is acknowledged, and the intent to write it is
/// stored before it is written.
extension SessionHandle {
  /// Whether messages survive the process.
  package var isStored: Bool { journal != nil }

  /// Whether the journal has ended because this gateway has lost the session. Once true, the value stays true. The
  /// store reports the loss right after the end of the journal.
  package var hasLostJournal: Bool { journal?.hasEnded ?? false }

  /// The number of the last message.
  package var lastDelivery: UInt64 { guarded.withLock { $0.outbox.ledger.last } }

  func store(
    _ messages: PostedMessages, in journal: any SessionJournal, now: MonotonicTime
  ) -> PostReceipt {
    if let hindrance = hindrance(of: journal) {
      let result = EnqueueResult.notStored(hindrance)
      return PostReceipt(result: result, runs: [EnqueueResults(result: result, count: messages.payloads.count)])
    }
    let time = ProcessInformation.wallClockMilliseconds()
    let keyTime = keyClock?.time(at: now) ?? time
    let (receipt, signal) = update(at: now) { guarded in
      let intends = guarded.outbox.canIntendAtOnce
      let displacements = guarded.outbox.displacements
      var (receipt, signal) = guarded.enqueue(messages, now: now)
      let runs =
        receipt.runs.isEmpty
        ? [EnqueueResults(result: receipt.result, count: messages.payloads.count)] : receipt.runs
      var (first, last): (UInt64?, UInt64?) = (nil, nil)
      for run in runs {
        if case .queued(let number, _) = run.result {
          first = first ?? number
          last = number + UInt64(run.count) - 1
        }
      }
      guard let last else { return (receipt, signal) }
      var entries = messages.entries(of: runs, time: time, keyTime: keyTime)
      guarded.outbox.noteStored(last)
      // The changes of deliveries that are not submitted yet are submitted together with the new messages. So neither
      // is stored without the other, and both need only one commit.
      entries += guarded.takeChanges()
      if intends {
        guarded.outbox.intend(through: last)
        entries.append(.outbox(.intended(through: last)))
      }
      let ticket = journal.submit(contentsOf: entries)
      let acceptance = StoredAcceptance(
        numbers: (first ?? last)...last, ticket: ticket, displacesOthers: guarded.outbox.displacements != displacements)
      guarded.noteAcceptance(acceptance, in: journal)
      if intends { guarded.intents.append(StoredIntent(through: last, ticket: ticket)) }
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

  /// The outcome of storing posted messages.
  package func outcome(of ticket: JournalTicket) -> JournalOutcome { journal?.outcome(of: ticket) ?? .stored }

  /// The ticket of an accepted message that is not stored yet; nil if it is stored. `deliveryNotifier` of this session
  /// notifies when the ticket is stored (`beginWaitingForStore()`).
  package func ticket(of sequence: UInt64) -> JournalTicket? {
    guard let journal else { return nil }
    let ticket = guarded.withLock { $0.acceptance(of: sequence)?.ticket }
    return ticket.flatMap { journal.outcome(of: $0) == .stored ? nil : $0 }
  }

  /// From now on, `deliveryNotifier` also notifies when entries are stored, until `endWaitingForStore()` is called.
  package func beginWaitingForStore() { guarded.withLock { $0.storeWaiters += 1 } }

  package func endWaitingForStore() { guarded.withLock { $0.storeWaiters -= 1 } }

  /// Whether this gateway will never know if this entry was stored. That is so after the journal has ended: another
  /// gateway, or this gateway in a new term, continues it.
  package func isLost(_ ticket: JournalTicket) -> Bool {
    guard let journal, journal.hasEnded else { return false }
    return journal.outcome(of: ticket) != .stored
  }

  /// Ends messages that were queued together and are not stored, so that their sender can get an error.
  package func reject(_ messages: [(first: UInt64, count: Int)], _ ticket: JournalTicket) -> StoreRejection {
    update { guarded in
      guard let journal, journal.outcome(of: ticket) != .stored else { return .isStored }
      // The next term may find the messages in the journal, but it could not find their ends, which can no longer be
      // submitted.
      guard !journal.hasEnded else { return .isKept }
      if let first = messages.first?.first, guarded.acceptance(of: first)?.displacesOthers == true { return .isKept }
      for run in messages { guarded.outbox.reject(from: run.first, count: run.count) }
      return .isRejected(journal.submit(contentsOf: guarded.takeChanges()))
    }
  }

  /// Called on the thread of the store when entries of this session were stored, or when the state of the store has
  /// changed.
  package func journalChanged() {
    // A client that begins to wait takes the same lock. So either it sees that its entry is stored, or it is already
    // counted here and gets notified.
    let (signal, isAwaited, isChange, withholds) = guarded.withLock { guarded in
      let isChange = guarded.outbox.storeHasFailed != (journal?.isFailed == true)
      let mustSignal =
        isChange || !guarded.intents.isEmpty || guarded.isReadingPaused || guarded.hasDelayedAcknowledgements
      return (
        mustSignal ? guarded.signal : nil, guarded.storeWaiters > 0, isChange, !guarded.withheldConfirmations.isEmpty
      )
    }
    if withholds { releaseConfirmations() }
    if isChange { update { $0.outbox.storeChanged(hasFailed: journal?.isFailed == true) } }
    signal?.notify()
    if isAwaited { deliveryNotifier.notify() }
  }

  /// Whether the store has rejected these messages, so that their sender got an error.
  package func wasRejectedByStore(_ acceptance: IdempotencyTable.Acceptance) -> Bool {
    // All messages are rejected together, except messages that had already ended, for example because a later message
    // of the batch replaced them. So it is enough to check the first and the last message.
    [acceptance.first, acceptance.last].contains { sequence in
      let record = deliveryRecord(sequence, now: .zero)
      return record?.state == .rejected && record?.reason == .storeFailed
    }
  }

  // MARK: Confirmations

  /// A message was sent, and has changed the subscriptions. Its confirmation, or the reply to its call, promises that
  /// the changed subscriptions survive the process. So neither is shown before the change is stored.
  func withholdConfirmation(of sequence: UInt64, until ticket: JournalTicket) {
    guard let journal, journal.outcome(of: ticket) != .stored else { return }
    guarded.withLock { guarded in
      // Calls work even while the store does not, and after the session has lost its journal. So the list must be
      // limited. The oldest message of a full list can be removed, since the ledger has already forgotten its state.
      if guarded.withheldConfirmations.count == guarded.outbox.ledger.limit { guarded.releaseConfirmation() }
      guarded.withheldConfirmations.append(WithheldConfirmation(sequence: sequence, ticket: ticket))
      guarded.outbox.withholdConfirmation(of: sequence)
    }
    // The change may have been stored before the message was in the list.
    releaseConfirmations()
  }

  /// Shows the confirmations whose changes are stored by now. While the store has failed, the other confirmations stay
  /// withheld. They are shown when the store works again and has stored their changes.
  private func releaseConfirmations() {
    guard let journal else { return }
    let callers = update { guarded -> [Notifier] in
      var hasReleased = false
      while !guarded.withheldConfirmations.isEmpty {
        let first = guarded.withheldConfirmations[guarded.withheldConfirmations.front]
        guard journal.outcome(of: first.ticket) == .stored else { break }
        guarded.releaseConfirmation()
        hasReleased = true
      }
      return hasReleased || journal.isFailed ? guarded.callNotifiers : []
    }
    for caller in callers { caller.notify() }
  }

  // MARK: The session's loop

  /// Lets the connection take the messages whose intents are stored.
  func permitStored(_ guarded: inout Guarded, _ journal: any SessionJournal) {
    while !guarded.intents.isEmpty {
      let intent = guarded.intents[guarded.intents.front]
      guard journal.outcome(of: intent.ticket) == .stored else { return }
      guarded.outbox.permit(through: intent.through)
      guarded.intents.removeFirst()
    }
  }

  /// Submits an intent to the store: the intent to write the next messages to the upstream.
  func requestIntent(
    _ guarded: inout Guarded, _ journal: any SessionJournal, messages: Int, bytes: Int, now: MonotonicTime
  ) {
    guard let last = guarded.outbox.nextIntent(maximumMessages: messages, maximumBytes: bytes, now: now) else { return }
    guarded.outbox.intend(through: last)
    let ticket = journal.submit(contentsOf: guarded.takeChanges() + [.outbox(.intended(through: last))])
    guarded.intents.append(StoredIntent(through: last, ticket: ticket))
  }

  /// Whether reading from the upstream must pause. If so, the session's loop is signalled when it may resume.
  func mustPauseReading(_ journal: any SessionJournal) -> Bool {
    guard journal.mustPauseReading else { return false }
    guarded.withLock { $0.isReadingPaused = true }
    // The store may have caught up before the flag was set, and would then not signal the loop.
    return journal.mustPauseReading
  }

  /// Records whether acknowledgements wait until events are stored. If so, the session's loop is signalled when more is
  /// stored. Returns `waits`.
  func awaitsStore(_ waits: Bool) -> Bool {
    guarded.withLock { $0.hasDelayedAcknowledgements = waits }
    return waits
  }

  // MARK: Restoring

  /// Restores the state that an earlier process has stored.
  func restore(_ restored: RestoredSession, _ kind: UpstreamKind, in journal: any SessionJournal) {
    let isUnderstood = restored.memory.kind == kind
    let clock = JournalClock.present
    update(at: clock.now) { $0.outbox.startStoring(restored.outbox, isUnderstood: isUnderstood, at: clock) }
    guard !isUnderstood else { return }
    // The new kind is submitted after the ends of the messages of the old kind. So no process takes messages of the old
    // kind for messages of the new kind.
    journal.submit(.memory(.speaks(kind)))
    guard restored.isContinued else { return }
    logger.warning(
      "the upstream is of another kind than in the last run: queued messages are rejected, and nothing is resumed",
      [.text("kind", kind.rawValue), .number("messages", restored.outbox.messages.count)])
  }
}

extension PostedMessages {
  /// The journal entries for the messages that were queued. `time` is wall-clock time, and `keyTime` is a time of the
  /// `KeyClock`.
  fileprivate func entries(of results: [EnqueueResults], time: Int64, keyTime: Int64) -> [JournalEntry] {
    var entries: [JournalEntry] = []
    entries.reserveCapacity(payloads.count + 4)
    var index = 0
    for run in results {
      if case .queued(let first, _) = run.result {
        for offset in 0..<run.count {
          let message = StoredMessage(
            number: first + UInt64(offset), payload: payloads[index + offset].standalone, kind: kind, topic: topic,
            deadline: timeToLive.map { time + $0.millisecondsRoundedUp }, time: time)
          entries.append(.outbox(.accepted(message)))
        }
      }
      index += run.count
    }
    if let key, case .queued(let first, _)? = results.first?.result {
      let acceptance = IdempotencyTable.Acceptance(
        first: first, batchCount: key.isBatch ? Int32(payloads.count) : nil, kind: kind, position: key.position)
      entries.append(
        .keyed(
          StoredKey(
            key: key.key, fingerprint: key.fingerprint, principal: key.principal, acceptance: acceptance,
            accepted: keyTime, end: keyTime + key.lifetime.millisecondsRoundedUp)))
    }
    return entries
  }
}

extension SessionHandle.Guarded {
  /// Shows the oldest confirmation that is withheld.
  fileprivate mutating func releaseConfirmation() {
    outbox.releaseConfirmation(of: withheldConfirmations[withheldConfirmations.front].sequence)
    withheldConfirmations.removeFirst()
  }

  /// The messages that were accepted together with this message, including it; nil if they are stored and their ticket
  /// is forgotten.
  fileprivate func acceptance(of sequence: UInt64) -> StoredAcceptance? {
    // The numbers increase, so a binary search finds the message.
    var (low, high) = (acceptances.front, acceptances.end)
    while low < high {
      let middle = low + (high - low) / 2
      if acceptances[middle].numbers.upperBound < sequence { low = middle + 1 } else { high = middle }
    }
    guard low < acceptances.end, acceptances[low].numbers.contains(sequence) else { return nil }
    return acceptances[low]
  }

  /// Remembers the ticket of accepted messages, and forgets the tickets that are stored.
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
    // The outbox has lowered its intent, since messages have returned to the queue. The intents that wait to be stored
    // are for these messages.
    if case .outbox(.intended)? = entries.first { intents.removeAll() }
    return entries
  }

  mutating func submitChanges(to journal: any SessionJournal) {
    guard outbox.hasUnstoredChanges else { return }
    let entries = takeChanges()
    // Other changes may be stored later, as notes: after a restart, a message whose last state is missing becomes
    // `unknown`, or expires again.
    if case .outbox(.intended)? = entries.first {
      journal.submit(contentsOf: entries)
    } else {
      journal.note(contentsOf: entries)
    }
  }
}
