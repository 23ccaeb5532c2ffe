import ByteStreams
import HTTPCodec
import HTTPServer
import Metrics
import Reactor
import Sessions
import Upstream

/// A `POST /v1/messages` whose messages are queued and whose response waits until they reach a state.
struct PendingSend {
  let receipt: SendReceipt
  let parameters: SendParameters
  let isReplayed: Bool
  /// The messages before this one have reached the state. Each notification continues here, so that a batch is read once in all.
  var progress = BatchResults.Position()
}

/// The waiting part of a `PendingSend`, which is in a table of the loop, so that this struct fits inline in the connection.
struct HeldSend: WaitingRequest {
  let api: API
  let slot: Int
  let deadline: MonotonicTime

  var heldCount: Gauge? { nil }
  var notifier: Notifier { pending.receipt.session.upstream.deliveryNotifier }
  /// Rung whenever any message reaches a state that a client waits for.
  var sharesNotifier: Bool { true }

  private var pending: PendingSend {
    guard let pending = api.sends[slot] else { preconditionFailure("a request waits that has ended") }
    return pending
  }

  var hasNewData: Bool {
    var pending = pending
    let before = pending.progress
    let isComplete = pending.receipt.advance(&pending.progress, to: pending.parameters.until)
    if pending.progress != before { api.sends[slot] = pending }
    return isComplete
  }

  func finish(at now: MonotonicTime, into response: inout Response) {
    let pending = pending
    let isComplete = hasNewData
    abandon()
    pending.write(isComplete: isComplete, at: now, into: &response)
  }

  func abandon() {
    let (upstream, until) = (pending.receipt.session.upstream, pending.parameters.until)
    if until == .written { upstream.endWaitingForWrites() }
    if until == .confirmed { upstream.endWaitingForConfirmations() }
    api.sends.remove(slot)
  }
}

extension PendingSend {
  func write(isComplete: Bool, at now: MonotonicTime, into response: inout Response) {
    receipt.write(
      isComplete: isComplete, showsStates: isReplayed || parameters.until != .queued, at: now, into: &response)
    if parameters.isTimeToLiveReduced, let granted = parameters.timeToLive {
      response.fields.appendField("TTL", decimal: Int(granted.seconds))
    }
    if isReplayed { response.fields.append("Idempotency-Replayed: true\r\n" as StaticString) }
    if parameters.isPreferenceApplied {
      response.fields.append("Preference-Applied: wait=" as StaticString)
      response.fields.append(decimal: Int(parameters.wait.seconds))
      response.fields.append("\r\n" as StaticString)
    }
  }
}
