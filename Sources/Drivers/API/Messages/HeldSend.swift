import ByteStreams
import HTTPCodec
import HTTPServer
import Metrics
import Reactor
import Sessions
import Upstream

/// A `POST /v1/messages` whose messages are queued and whose response waits until they reach a state.
struct PendingSend: StoredChange {
  let receipt: SendReceipt
  let parameters: SendParameters
  let isReplayed: Bool
  /// Whether the client repeats an earlier request. If so, the response says this. False if another gateway repeats a
  /// forwarded request, since the client has sent that request only once.
  let showsReplay: Bool
  /// The deadline of the wait for the state of the messages.
  let deadline: MonotonicTime
  /// All messages before this position have reached the state. Each check of the states begins at this position, so
  /// that all checks together read a batch only once.
  var progress = BatchResults.Position()
  /// The idempotency key, which is accepted once the messages are stored.
  var key: AcceptanceKey?
  var storing: StoreWait?

  /// - Parameters:
  ///   - now: when the messages were queued.
  ///   - byGateway: whether another gateway repeats the request, and not its client.
  init(
    _ receipt: SendReceipt, _ parameters: SendParameters, isReplayed: Bool = false, byGateway: Bool = false,
    key: AcceptanceKey? = nil, until deadline: MonotonicTime, at now: MonotonicTime
  ) {
    self.receipt = receipt
    self.parameters = parameters
    self.isReplayed = isReplayed
    showsReplay = isReplayed && !byGateway
    self.key = key
    self.deadline = deadline
    // If this gateway loses the session before the messages are stored, the request continues to wait, since only the
    // journal of this gateway can report whether they are stored. If it loses the session later, the request ends: the
    // next holder sends the messages, and only that gateway knows their states.
    storing = receipt.submitted.map {
      StoreWait(
        for: $0, in: receipt.session, from: now, until: max(deadline, now + parameters.storeWait), ifLost: .continues)
    }
  }

  var session: Session { receipt.session }
  var afterLoss: AfterLoss { .concludes }

  func begin(at now: MonotonicTime) {
    switch parameters.until {
    case .queued: break
    case .written: session.upstream.beginWaitingForWrites()
    case .confirmed: session.upstream.beginWaitingForConfirmations()
    }
  }

  func end(at now: MonotonicTime) {
    switch parameters.until {
    case .queued: break
    case .written: session.upstream.endWaitingForWrites()
    case .confirmed: session.upstream.endWaitingForConfirmations()
    }
  }

  mutating func proceed(_ cause: WaitCause, _ api: API, at now: MonotonicTime) -> WaitStep {
    guard parameters.until != .queued, parameters.wait > .zero else { return .ready }
    return receipt.advance(&progress, to: parameters.until)
      ? .ready : .wait(session.upstream.deliveryNotifier, until: deadline)
  }

  func write(_ api: API, at now: MonotonicTime, into response: inout Response) {
    var progress = progress
    let isComplete: Bool
    if parameters.until == .queued {
      if let storing { api.latencies.note(.storedSend, since: storing.start) }
      // The response is 202, unless this is a repetition and the outcome of every message is known.
      isComplete = showsReplay && receipt.advance(&progress, to: .confirmed)
    } else {
      isComplete = receipt.advance(&progress, to: parameters.until)
    }
    write(isComplete: isComplete, at: now, into: &response)
  }

  func writeUnstored(_ api: API, at now: MonotonicTime, into response: inout Response) {
    if let storing { api.latencies.note(.storedSend, since: storing.start) }
    api.respond(with: api.endUnstored(self, at: now), into: &response)
  }

  /// The client is gone. Its messages stay queued, and will be stored, unless they were withdrawn or the session is
  /// lost.
  func abandon(_ api: API, at now: MonotonicTime) {
    if let storing, !storing.isStored { _ = api.endUnstored(self, at: now) }
  }

  private func write(isComplete: Bool, at now: MonotonicTime, into response: inout Response) {
    receipt.write(
      isComplete: isComplete, showsStates: showsReplay || parameters.until != .queued, at: now, into: &response)
    if parameters.isTimeToLiveReduced, let granted = parameters.timeToLive {
      response.fields.appendField("TTL", decimal: Int(granted.seconds))
    }
    if showsReplay { response.fields.append("Idempotency-Replayed: true\r\n" as StaticString) }
    if parameters.isPreferenceApplied {
      response.fields.append("Preference-Applied: wait=" as StaticString)
      response.fields.append(decimal: Int(parameters.wait.seconds))
      response.fields.append("\r\n" as StaticString)
    }
  }
}

/// Refers to a `PendingSend` that `api.sends` keeps while the request waits.
struct HeldSend: StoredRequest {
  let api: API
  let slot: Int

  init(holding change: consuming PendingSend, _ api: API) {
    self.api = api
    slot = api.sends.insert(change)
  }

  var heldCount: Gauge? { nil }
  var effect: HeldEffect { .change }
  /// The messages stay queued, unless their withdrawal is stored.
  var residue: Residue { .mayBeDone }

  var change: PendingSend {
    guard let pending = api.sends[slot] else { preconditionFailure("a request waits that has ended") }
    return pending
  }

  func update<Result>(_ body: (inout PendingSend) -> Result) -> Result {
    guard let result = api.sends.change(slot, body) else { preconditionFailure("a request waits that has ended") }
    return result
  }

  func remove() -> PendingSend {
    guard let pending = api.sends.remove(slot) else { preconditionFailure("a request waits that has ended") }
    return pending
  }
}
