import ByteStreams
import HTTPCodec
import HTTPServer
import Host
import Idempotency
import Journal
import Metrics
import Reactor
import Sessions
import Threading
import Upstream

/// A `POST /v1/messages` whose messages are queued and whose response waits until they reach a state.
struct PendingSend {
  var receipt: SendReceipt
  let parameters: SendParameters
  let isReplayed: Bool
  /// Whether the client repeats an earlier request. If so, the response says this. If another gateway repeats a
  /// forwarded request, the client has sent it only once.
  let showsReplay: Bool
  /// All messages before this position have reached the state. Each notification continues here, so that a batch is
  /// read only once in total.
  var progress = BatchResults.Position()
  /// The idempotency key, which is accepted once the messages are stored.
  var key: AcceptanceKey?
  /// The ticket of the withdrawal of messages that were not stored. The client gets its response once the withdrawal is
  /// stored, or cannot be stored.
  var withdrawal: JournalTicket?
  /// When the wait for the store began, and its deadline.
  var start = MonotonicTime.zero
  var storeDeadline = MonotonicTime.zero

  init(
    receipt: SendReceipt, parameters: SendParameters, isReplayed: Bool, byGateway: Bool = false,
    key: AcceptanceKey? = nil
  ) {
    self.receipt = receipt
    self.parameters = parameters
    self.isReplayed = isReplayed
    showsReplay = isReplayed && !byGateway
    self.key = key
  }
}

/// The waiting part of a `PendingSend`. The `PendingSend` itself is in a table of the loop, so that this struct fits
/// inline in the connection.
struct HeldSend: HolderRequest {
  let api: API
  let slot: Int
  /// The deadline of the wait for the state of the messages.
  let clientDeadline: MonotonicTime

  var heldCount: Gauge? { nil }
  var effect: HeldEffect { .change }
  /// The messages stay queued, unless their withdrawal is stored.
  var residue: Residue { .mayBeDone }

  private var pending: PendingSend {
    guard let pending = api.sends[slot] else { preconditionFailure("a request waits that has ended") }
    return pending
  }

  var session: Session { pending.receipt.session }
  /// Until the messages are stored, only the journal of this gateway can report the outcome. After that, the next
  /// holder sends them, and only that gateway knows their states.
  var afterLoss: AfterLoss { pending.receipt.ticket == nil ? .concludes : .continues }

  func proceed(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    guard let step = api.sends.change(slot, { $0.advance(cause, until: clientDeadline, api, at: now) }) else {
      preconditionFailure("a request waits that has ended")
    }
    return step
  }

  func conclude(at now: MonotonicTime, into response: inout Response) {
    var pending = pending
    end()
    if pending.receipt.ticket != nil {
      api.latencies.note(.storedSend, since: pending.start)
      return api.respond(with: api.endUnstored(pending, at: now), into: &response)
    }
    if pending.parameters.until == .queued {
      api.latencies.note(.storedSend, since: pending.start)
      // The response is the same as without a store: 202, unless this is a repetition and the outcome of every message
      // is known.
      let isKnown = pending.showsReplay && pending.receipt.advance(&pending.progress, to: .confirmed)
      return pending.write(isComplete: isKnown, at: now, into: &response)
    }
    let isComplete = pending.receipt.advance(&pending.progress, to: pending.parameters.until)
    pending.write(isComplete: isComplete, at: now, into: &response)
  }

  /// The client is gone. Its messages stay queued, and will be stored, unless they were withdrawn or the session is
  /// lost.
  func abandon() {
    if let withdrawal = pending.withdrawal, !pending.receipt.session.upstream.isLost(withdrawal) {
      api.noteWithdrawn(pending)
    } else if pending.receipt.ticket != nil {
      api.acceptUnstored(pending, at: ProcessInformation.monotonicTime())
    }
    end()
  }

  private func end() {
    let (upstream, until) = (pending.receipt.session.upstream, pending.parameters.until)
    if pending.receipt.ticket != nil { upstream.endWaitingForStore() }
    if until == .written { upstream.endWaitingForWrites() }
    if until == .confirmed { upstream.endWaitingForConfirmations() }
    api.sends.remove(slot)
  }
}

extension PendingSend {
  /// - Parameter clientDeadline: the deadline of the wait for the state of the messages.
  fileprivate mutating func advance(
    _ cause: WaitCause, until clientDeadline: MonotonicTime, _ api: API, at now: MonotonicTime
  ) -> WaitStep {
    let upstream = receipt.session.upstream
    if receipt.ticket != nil {
      if withdrawal == nil {
        if isStored {
          noteStored(api, at: now)
        } else if cause == .end || hasFailed {
          switch reject() {
          case .isStored: noteStored(api, at: now)
          case .isRejected(let withdrawal): self.withdrawal = withdrawal
          case .isKept: return .ready
          }
        }
      }
      if let withdrawal, upstream.outcome(of: withdrawal) != .pending { return .ready }
      if receipt.ticket != nil {
        // Messages must not be acknowledged before they are stored.
        return .wait(upstream.deliveryNotifier, until: max(clientDeadline, storeDeadline), endsAtDrain: false)
      }
    }
    guard parameters.until != .queued else { return .ready }
    return receipt.advance(&progress, to: parameters.until)
      ? .ready : .wait(upstream.deliveryNotifier, until: clientDeadline)
  }

  private mutating func noteStored(_ api: API, at now: MonotonicTime) {
    api.accept(self, at: now)
    receipt.session.upstream.endWaitingForStore()
    (receipt.ticket, key) = (nil, nil)
  }

  func write(isComplete: Bool, at now: MonotonicTime, into response: inout Response) {
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
