import ByteStreams
import Consumers
import HTTPServer
import Host
import Journal
import Metrics
import Reactor
import Sessions

/// A held request for a consumer: a receive that waits for pushes, or any request that waits until its result is
/// stored. A receive may do both, one after the other. Its `Pending` is in a table of the loop, so that this struct
/// fits inline in the connection.
struct HeldConsumerRequest: HolderRequest {
  struct Pending {
    let target: ConsumerTarget
    let isReceive: Bool
    /// Whether the request acknowledges pushes of an earlier receive.
    fileprivate let acknowledges: Bool
    /// The turn of a receive that is held; nil if the request never waits for pushes.
    fileprivate let turn: ReceiveTurn?
    fileprivate(set) var phase: Phase
    /// Whether the request is notified when something is stored.
    fileprivate(set) var isStoring = false
    /// When the request was received.
    fileprivate let start: MonotonicTime
    /// When the wait for the store ends.
    fileprivate var storeDeadline: MonotonicTime
    /// The stored end of the leases of the result, by the clock that also counts the time of a suspended machine.
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
      isReceive = target.action == .receive
      acknowledges = isReceive && result.isRead
      phase = .storing(result, ticket)
      (start, storeDeadline) = (now, now + target.storeWait)
      noteLeases(of: result, at: now)
      beginStoring()
    }

    /// - Parameter now: when the leases were made.
    fileprivate mutating func noteLeases(of result: ConsumerResult, at now: MonotonicTime) {
      if let end = result.leaseEnd { leaseEnd = ProcessInformation.bootTime() + (end - now) }
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
    /// The result needs no store, or was not stored by the deadline.
    case complete(ConsumerResult)
    case refused(Problem)
  }

  let api: API
  let slot: Int32
  let isReceive: Bool
  let isStored: Bool
  /// The deadline of a wait that does not depend on the store.
  let clientDeadline: MonotonicTime

  fileprivate init(_ pending: Pending, _ api: API) {
    self.api = api
    isReceive = pending.isReceive
    isStored = pending.target.session.consumers.isStored
    if case .receiving(let receive) = pending.phase {
      clientDeadline = receive.deadline
    } else {
      clientDeadline = pending.storeDeadline
    }
    slot = Int32(api.consumerRequests.insert(pending))
  }

  private var pending: Pending {
    guard let pending = api.consumerRequests[Int(slot)] else { preconditionFailure("a request waits that has ended") }
    return pending
  }

  var heldCount: Gauge? { isReceive ? api.common.metrics.heldReceives : nil }
  var notifier: Notifier { pending.target.session.consumers.notifier }
  /// The notifier serves all consumers of the session, and usually another worker takes the push. The deadline changes
  /// once a push is leased, since the lease must be stored, and once an acknowledgement is stored.
  var isConcerned: Bool {
    guard isStored else { return hasNewData }
    let before = deadline
    return hasNewData || deadline != before
  }

  var deadline: MonotonicTime {
    guard isStored else { return clientDeadline }
    let pending = pending
    return switch pending.phase {
    case .receiving(let receive):
      receive.acknowledgement == nil ? receive.deadline : max(receive.deadline, pending.storeDeadline)
    case .storing, .complete, .refused: pending.storeDeadline
    }
  }

  /// A request must not be acknowledged before its changes are stored, so it then does not end at a drain.
  var endsAtDrain: Bool {
    guard isStored else { return true }
    return switch pending.phase {
    case .receiving(let receive): !pending.isUnstored(receive.acknowledgement)
    case .storing: false
    case .complete, .refused: true
    }
  }

  /// Leases are taken back when the request is abandoned, so they are not an effect.
  var effect: HeldEffect {
    let pending = pending
    if pending.isReceive { return pending.acknowledges ? .changeAndData : .none }
    return .change
  }

  private func outcome(of ticket: JournalTicket) -> JournalOutcome { pending.outcome(of: ticket) }

  var hasNewData: Bool {
    var pending = pending
    switch pending.phase {
    case .receiving(var receive):
      // The next holder has the pushes. A closed session has none.
      guard !pending.target.session.hasLeft else { return false }
      let hasNews = receive.hasNews()
      if receive.acknowledgement != nil, !pending.isUnstored(receive.acknowledgement) {
        receive.acknowledgement = nil
        pending.endStoring()
      }
      pending.phase = .receiving(receive)
      if isStored {
        if hasNews { take(receive, &pending) } else if hasFailed(receive.acknowledgement) { refuse(&pending) }
      }
      api.consumerRequests[Int(slot)] = pending
      return switch pending.phase {
      case .receiving: hasNews
      case .storing(_, let ticket): outcome(of: ticket) != .pending
      case .complete, .refused: true
      }
    case .storing(_, let ticket): return outcome(of: ticket) != .pending
    case .complete, .refused: return true
    }
  }

  private func hasFailed(_ ticket: JournalTicket?) -> Bool { ticket.map { outcome(of: $0) == .failed } ?? false }

  private func refuse(_ pending: inout Pending) {
    pending.phase = .refused(pending.target.problem(.notStored))
  }

  /// Takes the pushes. If they are leased, that must be stored before the response is sent.
  private func take(_ receive: PendingReceive, _ pending: inout Pending) {
    let now = ProcessInformation.monotonicTime()
    do throws(Problem) {
      let result = try api.take(receive, at: now)
      guard let ticket = result.ticket(in: pending.target.session.consumers) else {
        pending.phase = .complete(result)
        return
      }
      pending.phase = .storing(result, ticket)
      pending.noteLeases(of: result, at: now)
      // The request may have waited for the push longer than the limit for the store.
      pending.storeDeadline = min(now + pending.target.storeWait, pending.start + pending.target.longestWait)
      pending.beginStoring()
    } catch {
      pending.phase = .refused(error)
    }
  }

  var session: Session { pending.target.session }

  /// A stored result is the same at each holder. A lease is valid at each holder until its stored end.
  var isFact: Bool {
    let pending = pending
    guard case .storing(_, let ticket) = pending.phase, pending.outcome(of: ticket) == .stored else { return false }
    return ProcessInformation.bootTime() < pending.leaseEnd
  }

  func conclude(at now: MonotonicTime, into response: inout Response) {
    var pending = pending
    end(pending, at: now)
    if case .receiving(let receive) = pending.phase {
      do throws(Problem) {
        if pending.isUnstored(receive.acknowledgement) { throw pending.target.problem(.notStored) }
        // If consumers are stored, a lease would have to wait for the store, and there was nothing to lease.
        pending.phase = .complete(try api.take(receive, limit: isStored ? 0 : nil, at: now))
      } catch {
        pending.phase = .refused(error)
      }
    }
    if case .storing(let result, let ticket) = pending.phase {
      if pending.outcome(of: ticket) == .stored {
        pending.phase = .complete(result)
      } else {
        withdraw(pending, at: now)
        refuse(&pending)
      }
    }
    switch pending.phase {
    case .complete(let result):
      api.write(result, of: pending.target, into: &response)
      // A push that arrived before this request was delayed by other workers, so it is not measured.
      if pending.turn != nil, let arrival = result.arrival, arrival >= pending.start {
        api.latencies.note(.pushToConsumer, since: arrival)
      }
    case .refused(let problem): api.respond(with: problem, into: &response)
    case .receiving, .storing: break
    }
  }

  /// The client is gone, so it gets no lease. Other effects of the request remain.
  func abandon() {
    let (pending, now) = (pending, ProcessInformation.monotonicTime())
    end(pending, at: now)
    withdraw(pending, at: now)
  }

  /// Takes back the leases of this request.
  private func withdraw(_ pending: Pending, at now: MonotonicTime) {
    switch pending.phase {
    case .storing(.leased(let batch, _), _), .complete(.leased(let batch, _)):
      pending.target.session.consumers.withdraw(batch, of: pending.target.name, now: now)
    case .storing, .complete, .receiving, .refused: break
    }
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

extension API {
  func hold(_ pending: HeldConsumerRequest.Pending) -> Outcome { .wait(HeldConsumerRequest(pending, self)) }
}
