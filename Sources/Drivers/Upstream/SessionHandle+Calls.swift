import ByteStreams
import Calls
import Journal
import JSONCodec
import Outbox
import Reactor
import Synchronization
import Threading
import UpstreamProtocol
import UpstreamSession

/// Calls: requests of clients that wait for their replies. The table of calls is protected by the same lock as the
/// outbox. So no reply can be processed, and no connection can end, between the registration of a call and the queueing
/// of its request.
extension SessionHandle {
  /// The maximum number of notifiers for calls. A reply wakes only the clients of one notifier. So if there are 4,096
  /// calls, at most 16 clients check whether the reply is for them.
  private static var callNotifierLimit: Int { 256 }

  /// A registered call.
  package struct RegisteredCall: Sendable {
    package let id: CallID
    /// The number of the message with the request.
    package let sequence: UInt64
    /// Notified when the call may have an outcome.
    package let notifier: Notifier
  }

  package enum CallReceipt: Sendable {
    case registered(RegisteredCall)
    /// There are too many calls.
    case full
    /// Another call has this id.
    case idInUse
    /// The message was not queued.
    case refused(PostReceipt)
  }

  /// How a reply is assigned to its call; nil if the session is not configured for calls.
  package var correlation: Correlation? { guarded.withLock { $0.correlation } }

  /// Registers a call and queues its request. Callable from any loop.
  ///
  /// - Parameters:
  ///   - request: the request, which contains the id of the call.
  ///   - token: the id that the client has chosen for the call, as JSON.
  ///   - timeToLive: as in `post`. It must not exceed the time that the client waits.
  package func call(
    _ id: CallID, _ request: ByteSlice, token: ByteString, timeToLive: TimeSpan, by client: UInt64 = 0,
    now: MonotonicTime
  ) -> CallReceipt {
    call(token: token, timeToLive: timeToLive, by: client, now: now) { _ in (id, request) }
  }

  /// - Parameter request: returns the id and the request of the call. Its argument is the number that the message of
  ///   the request gets.
  func call(
    token: ByteString, timeToLive: TimeSpan, by client: UInt64, now: MonotonicTime,
    _ request: (UInt64) -> (CallID, ByteSlice)
  ) -> CallReceipt {
    let (receipt, signal) = update(at: now) { guarded -> (CallReceipt, Signal?) in
      expireCalls(&guarded, now: now)
      guard guarded.calls.hasRoom(for: client) else { return (.full, nil) }
      let (id, request) = request(guarded.outbox.ledger.last + 1)
      guard !guarded.calls.contains(id) else { return (.idInUse, nil) }
      let result = guarded.outbox.enqueue(
        request, kind: .text, timeToLive: timeToLive, reportsEnd: true, by: client, now: now)
      guard case .queued(let sequence, _) = result else {
        let receipt = PostReceipt(result: result, nextAttempt: guarded.nextAttempt)
        return (.refused(receipt), guarded.signal(after: result))
      }
      let lane = guarded.calls.open(id, token: token, sequence: sequence, by: client)
      mayHaveReplies.store(true, ordering: .relaxed)
      let call = RegisteredCall(id: id, sequence: sequence, notifier: guarded.callNotifier(ofLane: lane))
      return (.registered(call), guarded.signal(after: result))
    }
    signal?.notify()
    return receipt
  }

  /// Whether a call has an outcome that its client can collect and has not collected yet. If the request has changed
  /// the subscriptions, its outcome cannot be collected before this change is stored, unless the store has failed.
  package func isOver(_ call: RegisteredCall) -> Bool {
    guarded.withLock { guarded in
      guarded.calls.isOver(call.id)
        && !(guarded.outbox.isConfirmationWithheld(of: call.sequence) && journal?.isFailed == false)
    }
  }

  /// The client collects the outcome of its call, once. If the call has no outcome yet, it has timed out, and its late
  /// reply will be kept for the principal `caller`.
  ///
  /// If the ids of calls are replaced by numbers (`NumberedIDs`), also returns the number with which the request was
  /// sent.
  package func finish(
    _ call: RegisteredCall, for caller: String, now: MonotonicTime
  ) -> (outcome: CallTable.Outcome, number: UInt32?) {
    // If the request is still queued, it is not sent later, and the call ends as not sent.
    if !guarded.withLock({ $0.calls.isOver(call.id) }) {
      update { guarded in
        guarded.outbox.expire(now: now)
        guarded.outbox.withdraw(call.sequence)
      }
    }
    return end { guarded in
      let number = guarded.calls.number(of: call.id)
      return (guarded.calls.finish(call.id, for: caller, now: now) { lateCalls?.admits($0) ?? true }, number)
    }
  }

  /// The client of a call has disconnected. If the request is still queued, it is withdrawn.
  package func abandon(_ call: RegisteredCall) {
    end { guarded in
      guarded.calls.abandon(call.id)
      guarded.outbox.withdraw(call.sequence)
    }
  }

  private func end<Result>(_ body: (inout Guarded) -> Result) -> Result {
    let (result, signal) = update { guarded in
      let result = body(&guarded)
      countLateCalls(&guarded)
      mayHaveReplies.store(!guarded.calls.isEmpty, ordering: .relaxed)
      return (result, guarded.signalOfLastCall)
    }
    signal?.notify()
    return result
  }

  /// The time of the next connection attempt; nil while a connection sends, or if the time is unknown.
  package var nextAttempt: MonotonicTime? { guarded.withLock { $0.nextAttempt } }

  /// The late reply to the call whose request is the message `sequence`. Returns nil if there is none, or if the
  /// principal `caller` did not make the call.
  package func lateReply(to sequence: UInt64, for caller: String, now: MonotonicTime) -> CallReply? {
    guard mayHaveReplies.load(ordering: .relaxed) else { return nil }
    return guarded.withLock { $0.calls.lateReply(to: sequence, for: caller, now: now) }
  }

  /// Frees the memory of calls that timed out long ago.
  package func expireCalls(now: MonotonicTime) {
    guard mayHaveReplies.load(ordering: .relaxed) else { return }
    guarded.withLock { guarded in
      expireCalls(&guarded, now: now)
      mayHaveReplies.store(!guarded.calls.isEmpty, ordering: .relaxed)
    }
  }

  private func expireCalls(_ guarded: inout Guarded, now: MonotonicTime) {
    guarded.calls.expire(now: now)
    countLateCalls(&guarded)
  }

  /// Must be called after every change of late calls.
  private func countLateCalls(_ guarded: inout Guarded) {
    lateCalls?.count(guarded.calls.lateMemory, &guarded.lateMemory)
  }

  /// Number of calls whose clients still wait.
  package var callCount: Int {
    mayHaveReplies.load(ordering: .relaxed) ? guarded.withLock { $0.calls.count } : 0
  }

  // MARK: The session's loop

  /// If a text message of the upstream is the reply to a call, passes it to this call. Returns false if the message is
  /// a push.
  func receiveReply(_ message: Span<UInt8>, _ correlation: Correlation, now: MonotonicTime) -> Bool {
    guard let match = match(message, correlation) else { return false }
    return match.isIgnored || receiveReply(message, to: match.call, match.range, now: now)
  }

  /// The call to which a text message of the upstream may be the reply.
  func match(_ message: Span<UInt8>, _ correlation: Correlation) -> Correlation.Match<CallID>? {
    correlation.match(message) { token in CallID(token: token).flatMap { isKnown($0) ? $0 : nil } }
  }

  /// Like `receiveReply`, for a push that another thread has processed.
  func receiveReply(_ push: PreparedPush, now: MonotonicTime) -> Bool {
    guard let reply = push.reply else { return false }
    if reply.isIgnored { return true }
    guard let traits = reply.traits else { return false }
    return receiveReply(
      to: reply.call, push.payload, reply.range, canBeLate: !traits.hasUnpairedSurrogates, now: now)
  }

  /// Records that calls were sent under these numbers.
  func noteNumbers(_ numbers: [(call: CallID, number: UInt32)]) {
    guard !numbers.isEmpty else { return }
    guarded.withLock { guarded in
      for (call, number) in numbers { guarded.calls.sent(call, as: number) }
    }
  }

  /// Whether the call waits for its reply, or is remembered after its timeout.
  func isKnown(_ id: CallID) -> Bool { guarded.withLock { $0.calls.contains(id) } }

  /// Passes a text message of the upstream to the call `id`. `range`: the range of the id in the message. Returns false
  /// if the call cannot take the message as its reply.
  func receiveReply(_ message: Span<UInt8>, to id: CallID, _ range: Range<Int>, now: MonotonicTime) -> Bool {
    let traits: JSONTraits
    do throws(JSONError) {
      traits = try JSONValidator.validate(message)
    } catch {
      return false
    }
    return receiveReply(
      to: id, ByteString(copying: message), range, canBeLate: !traits.hasUnpairedSurrogates, now: now)
  }

  /// Passes a reply to a call. Returns false if the call is unknown or already has a reply.
  @discardableResult
  func receiveReply(
    to id: CallID, _ copy: ByteString, _ range: Range<Int> = 0..<0, canBeLate: Bool, now: MonotonicTime
  ) -> Bool {
    let (isReply, notifier, signal) = update(at: now) { guarded -> (Bool, Notifier?, Signal?) in
      let request = guarded.calls.sequence(of: id)
      let match = guarded.calls.receive(id, copy, range, canBeLate: canBeLate, now: now) {
        lateCalls?.admits($0) ?? true
      }
      countLateCalls(&guarded)
      if let request, match != .none { guarded.outbox.replied(to: request) }
      return switch match {
      case .reply(let lane): (true, guarded.callNotifier(ofLane: lane), guarded.signalAfterReply)
      case .lateReply: (true, nil, guarded.signalAfterReply)
      case .none: (false, nil, nil)
      }
    }
    notifier?.notify()
    signal?.notify()
    return isReply
  }

  /// Ends calls that can get no reply any more.
  func endCalls(_ ids: [CallID]) {
    let callers = guarded.withLock { guarded in guarded.calls.end(ids).map { guarded.callNotifier(ofLane: $0) } }
    for caller in callers { caller.notify() }
  }

  /// A connection has ended, and its messages are settled.
  func endCalls(of connection: Generation) {
    guard mayHaveReplies.load(ordering: .relaxed) else { return }
    let callers = guarded.withLock { guarded in
      let ledger = guarded.outbox.ledger
      let lanes = guarded.calls.connectionEnded(connection) { ledger.state(of: $0) == .queued }
      return lanes.map { guarded.callNotifier(ofLane: $0) }
    }
    for caller in callers { caller.notify() }
  }
}

extension SessionHandle.Guarded {
  fileprivate mutating func callNotifier(ofLane lane: Int) -> Notifier {
    let index = lane % SessionHandle.callNotifierLimit
    while callNotifiers.count <= index { callNotifiers.append(Notifier()) }
    return callNotifiers[index]
  }

  /// Whether there may be calls that must end because their requests have ended.
  @inline(__always)
  var hasEndedCalls: Bool { !outbox.ended.isEmpty || calls.pending > 0 && !isDriven }

  /// Whether the session's loop still reports the ends of connections.
  private var isDriven: Bool { !hasEnded && !isAbandoned }

  /// Ends the calls whose requests have ended in the queue. Other calls end with their connections. Returns the
  /// notifiers of their clients.
  mutating func endCallsOfEndedMessages() -> [Notifier] {
    let isDriven = isDriven
    let ended = outbox.takeEnded()
    restoreAcknowledgements(ended)
    let ledger = outbox.ledger
    let lanes = calls.messagesEnded(isDriven ? ended : calls.sequences) { sequence, hasCarrier in
      // If there is no record, the state of the request was forgotten because of many later messages. The reply may
      // still arrive.
      guard let record = ledger.record(of: sequence, now: .zero) else { return nil }
      switch record.state {
      case .queued, .written, .confirmed: return nil
      case .expired, .replaced: return .notSent
      // During a hand-over, this state may be reached although the connection is still open, so the reply may still
      // arrive. If it does not, the call ends with the connection.
      case .unknown: return hasCarrier && isDriven ? nil : .upstreamClosed
      case .rejected:
        let isSent = record.reason == .connectionLost || record.reason == .tooLarge
        return isSent ? .upstreamClosed : .notSent
      }
    }
    return lanes.map { callNotifier(ofLane: $0) }
  }

  /// The signal that must be notified after a reply. The reply may have confirmed the last message of an earlier
  /// sending connection. Queued messages wait for this confirmation and can be sent now. The reply may also have ended
  /// the last call that a shutdown waits for.
  fileprivate var signalAfterReply: Signal? {
    outbox.retiringConnection != nil && outbox.hasWaiting ? signal : signalOfLastCall
  }

  /// The signal that must be notified if the last call has ended during a shutdown; nil otherwise. A shutdown waits for
  /// the end of all calls.
  fileprivate var signalOfLastCall: Signal? { isShuttingDown && calls.pending == 0 ? signal : nil }
}
