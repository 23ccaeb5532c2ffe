import ByteStreams
import Consumers
import HTTPServer
import Host
import Journal
import Metrics
import Reactor
import Sessions

/// A held request for a consumer: a receive that waits for pushes, or any request that waits until its result is
/// stored. A receive may do both, one after the other. The `Pending` of a request is in a table of the loop, so that
/// this struct fits inline in the connection.
struct HeldConsumerRequest: HolderRequest {
  struct Pending {
    let target: ConsumerTarget
    let isReceive: Bool
    /// Whether the request acknowledges pushes of an earlier receive.
    fileprivate let acknowledges: Bool
    /// The turn of a receive that is held; nil if the request never waits for pushes.
    fileprivate let turn: ReceiveTurn?
    fileprivate(set) var phase: Phase
    /// Whether the request is notified when changes are stored.
    fileprivate(set) var isStoring = false
    /// When the request was received.
    fileprivate let start: MonotonicTime
    /// When the wait for the store ends.
    fileprivate var storeDeadline: MonotonicTime
    /// The stored end of the leases of the result, in boot time, which includes the time in which the machine is
    /// suspended.
    fileprivate var leaseEnd = MonotonicTime.distantFuture

    /// A receive that waits for pushes.
    init(_ receive: PendingReceive, at now: MonotonicTime) {
      (target, isReceive, turn) = (receive.target, true, receive.turn)
      acknowledges = receive.acknowledges
      phase = .receiving(receive)
      (start, storeDeadline) = (now, now + target.storeWait)
      if receive.acknowledgement != nil { beginStoring() }
    }

    /// A request whose result is not stored yet.
    init(_ result: ConsumerResult, _ ticket: JournalTicket, of target: ConsumerTarget, at now: MonotonicTime) {
      (self.target, turn) = (target, nil)
      isReceive = result.isOfReceive
      acknowledges = isReceive && result.isRead
      phase = .storing(result, ticket)
      (start, storeDeadline) = (now, now + target.storeWait)
      noteLeases(of: result)
      beginStoring()
    }

    fileprivate mutating func noteLeases(of result: ConsumerResult) {
      guard let end = result.leaseEnd else { return }
      // The boot time is read first. If the process is stopped between the two readings, `leaseEnd` is too early, which
      // is harmless.
      let bootTime = ProcessInformation.bootTime()
      leaseEnd = bootTime + (end - ProcessInformation.monotonicTime())
    }

    fileprivate func outcome(of ticket: JournalTicket) -> JournalOutcome {
      target.session.consumers.outcome(of: ticket)
    }

    fileprivate func isUnstored(_ ticket: JournalTicket?) -> Bool {
      ticket.map { outcome(of: $0) != .stored } ?? false
    }

    fileprivate mutating func beginStoring() {
      guard !isStoring else { return }
      isStoring = true
      target.session.consumers.beginWaitingForStore()
    }

    fileprivate mutating func endStoring() {
      guard isStoring else { return }
      isStoring = false
      target.session.consumers.endWaitingForStore()
    }
  }

  enum Phase {
    case receiving(PendingReceive)
    case storing(ConsumerResult, JournalTicket)
    /// The result need not be stored.
    case complete(ConsumerResult)
    case refused(Problem)
  }

  let api: API
  let slot: Int32
  let isReceive: Bool

  fileprivate init(_ pending: Pending, _ api: API) {
    self.api = api
    isReceive = pending.isReceive
    slot = Int32(api.consumerRequests.insert(pending))
  }

  private var pending: Pending {
    guard let pending = api.consumerRequests[Int(slot)] else { preconditionFailure("a request waits that has ended") }
    return pending
  }

  var heldCount: Gauge? { isReceive ? api.common.metrics.heldReceives : nil }

  /// Leases are taken back when the request is abandoned, so they are not an effect.
  var effect: HeldEffect {
    let pending = pending
    if pending.isReceive { return pending.acknowledges ? .changeAndData : .none }
    return .change
  }

  func proceed(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    api.consumerRequests.change(Int(slot)) { $0.advance(cause, api, at: now) }
    return pending.step
  }

  var session: Session { pending.target.session }

  /// A stored result is the same at each holder. A lease is valid at each holder until its stored end. A change that
  /// this gateway has submitted may still be stored, and a repetition would find it done.
  var afterLoss: AfterLoss {
    let pending = pending
    guard case .storing(_, let ticket) = pending.phase else { return .moves }
    guard pending.outcome(of: ticket) == .stored else { return isReceive ? .moves : .continues }
    return ProcessInformation.bootTime() < pending.leaseEnd ? .concludes : .moves
  }

  func conclude(at now: MonotonicTime, into response: inout Response) throws(Problem) {
    let pending = pending
    end(pending, at: now)
    switch pending.phase {
    // These two are possible only if the session was lost, and was then closed.
    case .receiving: throw API.holderUnavailable
    case .storing(_, let ticket) where pending.outcome(of: ticket) != .stored:
      pending.withdraw(at: now)
      throw API.holderUnavailable
    case .complete(let result), .storing(let result, _):
      api.write(result, of: pending.target, into: &response)
      // A push that arrived before this request was delayed by other workers, so it is not measured.
      if pending.turn != nil, let arrival = result.arrival, arrival >= pending.start {
        api.latencies.note(.pushToConsumer, since: arrival)
      }
    case .refused(let problem): throw problem
    }
  }

  /// The client is gone, so it gets no lease. Other effects of the request remain.
  func abandon() {
    let (pending, now) = (pending, ProcessInformation.monotonicTime())
    end(pending, at: now)
    pending.withdraw(at: now)
  }

  private func end(_ pending: Pending, at now: MonotonicTime) {
    var pending = pending
    if let turn = pending.turn {
      pending.target.session.consumers.endHolding(turn, of: pending.target.name, now: now)
    }
    pending.endStoring()
    api.consumerRequests.remove(Int(slot))
  }
}

extension HeldConsumerRequest.Pending {
  /// What the request waits for.
  fileprivate var step: WaitStep {
    let notifier = target.session.consumers.notifier
    // A request does not end at a drain before its changes are stored, since its response would acknowledge them.
    switch phase {
    case .receiving(let receive) where receive.acknowledgement == nil: return .wait(notifier, until: receive.deadline)
    case .receiving(let receive):
      return .wait(notifier, until: max(receive.deadline, storeDeadline), endsAtDrain: false)
    // If the store fails after `advance` has read the outcome, a further notification refuses the request.
    case .storing(_, let ticket) where outcome(of: ticket) != .stored:
      return .wait(notifier, until: storeDeadline, endsAtDrain: false)
    case .storing, .complete, .refused: return .ready
    }
  }

  fileprivate mutating func advance(_ cause: WaitCause, _ api: API, at now: MonotonicTime) {
    switch phase {
    case .receiving(let receive) where cause == .end:
      if isUnstored(receive.acknowledgement) { return refuse() }
      // The wait has ended without pushes. If consumers are stored, the request takes none now, since their leases
      // would have to wait for the store.
      take(receive, limit: target.session.consumers.isStored ? 0 : nil, api)
    case .receiving(var receive):
      let hasNews = receive.hasNews()
      if receive.acknowledgement != nil, !isUnstored(receive.acknowledgement) {
        receive.acknowledgement = nil
        endStoring()
      }
      phase = .receiving(receive)
      if hasNews {
        take(receive, api)
      } else if let ticket = receive.acknowledgement, outcome(of: ticket) == .failed {
        refuse()
      }
    case .storing(_, let ticket):
      let outcome = outcome(of: ticket)
      guard outcome == .failed || outcome == .pending && cause == .end else { return }
      withdraw(at: now)
      refuse()
    case .complete, .refused: break
    }
  }

  /// Takes the pushes. If they are leased, the leases must be stored before the response is sent.
  private mutating func take(_ receive: PendingReceive, limit: Int? = nil, _ api: API) {
    // The clock is read here, since the time of the turn may be too old: if the process was stopped in this turn, the
    // stored end of a lease would be too early.
    let now = ProcessInformation.monotonicTime()
    do throws(Problem) {
      let result = try api.take(receive, limit: limit, at: now)
      guard let ticket = result.ticket(in: target.session.consumers) else {
        phase = .complete(result)
        return
      }
      phase = .storing(result, ticket)
      noteLeases(of: result)
      // The request may have waited for the push longer than the limit for the store.
      storeDeadline = min(now + target.storeWait, start + target.longestWait)
      beginStoring()
    } catch {
      phase = .refused(error)
    }
  }

  private mutating func refuse() { phase = .refused(target.problem(.notStored)) }

  /// Takes back the leases of this request.
  fileprivate func withdraw(at now: MonotonicTime) {
    switch phase {
    case .storing(.leased(let batch, _), _), .complete(.leased(let batch, _)):
      target.session.consumers.withdraw(batch, of: target.name, now: now)
    case .storing, .complete, .receiving, .refused: break
    }
  }
}

extension API {
  func hold(_ pending: HeldConsumerRequest.Pending) -> Outcome { .wait(HeldConsumerRequest(pending, self)) }
}
