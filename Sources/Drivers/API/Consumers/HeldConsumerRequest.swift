import ByteStreams
import Consumers
import HTTPServer
import Host
import Metrics
import Reactor
import Sessions

/// A request for a consumer: a receive that waits for pushes, or any request whose result must be stored.
struct PendingConsumerRequest: StoredChange {
  private enum Phase {
    case receiving(PendingReceive)
    case done(ConsumerResult)
    case refused(Problem)
  }

  private let target: ConsumerTarget
  let isReceive: Bool
  /// Whether the request acknowledges pushes of an earlier receive.
  private let acknowledges: Bool
  /// The turn of a receive that is held; nil if the request never waits for pushes.
  private let turn: ReceiveTurn?
  private var phase: Phase
  /// When the request was received.
  private let start: MonotonicTime
  var storing: StoreWait?

  /// A receive that waits for pushes. If it acknowledges pushes, this must be stored first.
  init(_ receive: PendingReceive, at now: MonotonicTime) {
    (target, isReceive, turn, start) = (receive.target, true, receive.turn, now)
    acknowledges = receive.acknowledges
    phase = .receiving(receive)
    storing = receive.acknowledgement.map {
      StoreWait(
        for: $0, in: receive.target.session, from: now, until: max(receive.deadline, now + receive.target.storeWait),
        ifLost: .moves, .never)
    }
  }

  /// A request that has its result.
  init(_ result: ConsumerResult, of target: ConsumerTarget, at now: MonotonicTime) {
    (self.target, turn, start) = (target, nil, now)
    isReceive = result.isOfReceive
    acknowledges = isReceive && result.isRead
    phase = .done(result)
    store(result, from: now, until: now + target.storeWait)
  }

  /// Begins to wait until the result is stored.
  private mutating func store(_ result: ConsumerResult, from now: MonotonicTime, until deadline: MonotonicTime) {
    guard let change = result.submitted(in: target.session) else { return }
    // A lease is valid at each holder until its stored end. A submitted change may be stored after the session is lost,
    // and a repetition would find it done.
    storing = StoreWait(
      for: change, in: target.session, from: now, until: deadline, ifLost: isReceive ? .moves : .continues,
      result.leaseEnd.map { .leased(until: $0) } ?? .always)
  }

  var session: Session { target.session }
  var afterLoss: AfterLoss { .moves }

  /// Leases are taken back when the request is abandoned, so they are not an effect.
  var effect: HeldEffect { isReceive ? acknowledges ? .changeAndData : .none : .change }

  func end(at now: MonotonicTime) {
    if let turn { session.consumers.endHolding(turn, of: target.name, now: now) }
  }

  mutating func proceed(_ cause: WaitCause, _ api: API, at now: MonotonicTime) -> WaitStep {
    guard case .receiving(var receive) = phase else { return .ready }
    if cause == .end {
      // The wait has ended without pushes. If consumers are stored, the request takes none now, since their leases
      // would have to wait for the store.
      take(receive, limit: session.consumers.isStored ? 0 : nil, api)
      return .ready
    }
    let hasNews = receive.hasNews()
    phase = .receiving(receive)
    guard hasNews else { return .wait(session.consumers.notifier, until: receive.deadline) }
    take(receive, api)
    return .ready
  }

  /// Takes the pushes. If they are leased, the leases must be stored before the response is sent.
  private mutating func take(_ receive: PendingReceive, limit: Int? = nil, _ api: API) {
    // The clock is read here, since the time of the turn may be too old: if the process was stopped in this turn, the
    // stored end of a lease would be too early.
    let now = ProcessInformation.monotonicTime()
    do throws(Problem) {
      let result = try receive.take(atMost: limit, at: now)
      phase = .done(result)
      // The request may have waited for the push longer than the limit for the store.
      store(result, from: now, until: min(now + target.storeWait, start + target.longestWait))
    } catch {
      phase = .refused(error)
    }
  }

  mutating func noteStored(_ api: API, at now: MonotonicTime) {
    // Only the acknowledgement is stored. The result of the request, for which it still waits, may be a further change.
    guard case .receiving(var receive) = phase else { return }
    receive.acknowledgement = nil
    (phase, storing) = (.receiving(receive), nil)
  }

  mutating func withdraw(_ change: SubmittedChange, at now: MonotonicTime) -> StoreWait.Withdrawal {
    withdrawLeases(at: now)
    var problem = target.problem(.notStored)
    if case .receiving(let receive) = phase {
      // A reader that another has replaced must stop. After `store-failed`, it would repeat the request and replace the
      // other reader.
      do throws(ConsumerRefusal) { try session.consumers.check(receive.turn, of: target.name) } catch {
        problem = target.problem(error)
      }
    }
    phase = .refused(problem)
    return .isDone
  }

  /// Takes back the leases of this request.
  private func withdrawLeases(at now: MonotonicTime) {
    guard case .done(.leased(let batch, _)) = phase else { return }
    session.consumers.withdraw(batch, of: target.name, now: now)
  }

  func write(_ api: API, at now: MonotonicTime, into response: inout Response) throws(Problem) {
    switch phase {
    // This is possible only if the session was lost, and was then closed.
    case .receiving: throw API.holderUnavailable
    case .refused(let problem): throw problem
    case .done(let result):
      result.write(target, api, into: &response)
      // A push that arrived before this request was delayed by other workers, so it is not measured.
      if turn != nil, let arrival = result.arrival, arrival >= start {
        api.latencies.note(.pushToConsumer, since: arrival)
      }
    }
  }

  func writeUnstored(_ api: API, at now: MonotonicTime, into response: inout Response) throws(Problem) {
    try write(api, at: now, into: &response)
  }

  /// The client is gone, so it gets no lease. Other effects of the request remain.
  func abandon(_ api: API, at now: MonotonicTime) { withdrawLeases(at: now) }
}

/// The waiting part of a `PendingConsumerRequest`.
struct HeldConsumerRequest: StoredRequest {
  let api: API
  let slot: Int32
  private let isReceive: Bool

  init(holding change: consuming PendingConsumerRequest, _ api: API) {
    self.api = api
    isReceive = change.isReceive
    slot = Int32(api.consumerRequests.insert(change))
  }

  var heldCount: Gauge? { isReceive ? api.common.metrics.heldReceives : nil }
  var effect: HeldEffect { change.effect }

  var change: PendingConsumerRequest {
    guard let pending = api.consumerRequests[Int(slot)] else { preconditionFailure("a request waits that has ended") }
    return pending
  }

  func update<Result>(_ body: (inout PendingConsumerRequest) -> Result) -> Result {
    guard let result = api.consumerRequests.change(Int(slot), body) else {
      preconditionFailure("a request waits that has ended")
    }
    return result
  }

  func remove() -> PendingConsumerRequest {
    guard let pending = api.consumerRequests.remove(Int(slot)) else {
      preconditionFailure("a request waits that has ended")
    }
    return pending
  }
}
