import ByteStreams
import HTTPServer
import Host
import Journal
import Reactor
import Sessions
import Upstream

/// A change that a session has submitted to its store.
struct SubmittedChange {
  fileprivate enum Part { case deliveries, consumers }

  private let ticket: JournalTicket
  private let part: Part

  private init(_ ticket: JournalTicket, of part: Part) { (self.ticket, self.part) = (ticket, part) }

  private init?(_ ticket: JournalTicket?, of part: Part) {
    guard let ticket else { return nil }
    self.init(ticket, of: part)
  }

  /// Posted messages. nil if they need not be stored.
  init?(_ receipt: PostReceipt) { self.init(receipt.ticket, of: .deliveries) }

  /// A change of the desired state, or of messages. nil if it need not be stored.
  init?(_ ticket: JournalTicket?) { self.init(ticket, of: .deliveries) }

  /// The message of an earlier request. nil if it is stored.
  init?(of message: UInt64, in session: Session) {
    self.init(session.upstream.ticket(of: message), of: .deliveries)
  }

  /// The last change of a session's consumers. nil if it and all earlier changes are stored.
  init?(ofConsumersIn session: Session) { self.init(session.consumers.unstored, of: .consumers) }

  func outcome(in session: Session) -> JournalOutcome {
    switch part {
    case .deliveries: session.upstream.outcome(of: ticket)
    case .consumers: session.consumers.outcome(of: ticket)
    }
  }

  /// Whether this gateway will never know if the change was stored.
  func isLost(in session: Session) -> Bool { session.upstream.isLost(ticket) }

  /// Ends messages that are not stored.
  func reject(_ messages: [(first: UInt64, count: Int)], in session: Session) -> StoreWait.Withdrawal {
    switch session.upstream.reject(messages, ticket) {
    case .isStored: .wasStored
    case .isRejected(let withdrawal): .isSubmitted(Self(withdrawal, of: .deliveries))
    case .isKept: .isKept
    }
  }

  fileprivate func notifier(in session: Session) -> Notifier {
    switch part {
    case .deliveries: session.upstream.deliveryNotifier
    case .consumers: session.consumers.notifier
    }
  }

  fileprivate func beginWaiting(in session: Session) {
    switch part {
    case .deliveries: session.upstream.beginWaitingForStore()
    case .consumers: session.consumers.beginWaitingForStore()
    }
  }

  fileprivate func endWaiting(in session: Session) {
    switch part {
    case .deliveries: session.upstream.endWaitingForStore()
    case .consumers: session.consumers.endWaitingForStore()
    }
  }
}

/// The wait of a request until its change is stored. The endpoint begins the wait, and `StoredRequest` does the rest.
struct StoreWait {
  /// How the wait continues if the change cannot be stored, or not in time.
  enum Withdrawal {
    /// The change was stored in the meantime.
    case wasStored
    /// The change is taken back as soon as this second change is stored.
    case isSubmitted(SubmittedChange)
    /// The change stays in effect.
    case isKept
    /// The change is taken back, or a repetition of the request does no harm.
    case isDone
  }

  /// Until when the response is true at the next holder, once the change is stored.
  enum Validity {
    case always
    /// Until the stored end of leases.
    case leased(until: MonotonicTime)
    /// The endpoint does not know the response yet.
    case never
  }

  fileprivate enum Phase {
    case waiting
    case withdrawing(SubmittedChange)
    case refused
    case stored
  }

  fileprivate let change: SubmittedChange
  fileprivate var phase = Phase.waiting
  /// When the wait began.
  let start: MonotonicTime
  private let deadline: MonotonicTime
  /// What becomes of the request if the session is lost before the change is stored.
  fileprivate var ifLost: AfterLoss
  /// The end of the validity in boot time, which includes the time in which the machine is suspended.
  private let validUntil: MonotonicTime

  /// Begins the wait.
  init(
    for change: SubmittedChange, in session: Session, from start: MonotonicTime, until deadline: MonotonicTime,
    ifLost: AfterLoss, _ validity: Validity = .always
  ) {
    self.change = change
    self.start = start
    self.deadline = deadline
    self.ifLost = ifLost
    switch validity {
    case .always: validUntil = .distantFuture
    case .leased(let end):
      // The boot time is read first. If the process is stopped between the two readings, the end is too early, which is
      // harmless.
      let bootTime = ProcessInformation.bootTime()
      validUntil = bootTime + (end - ProcessInformation.monotonicTime())
    case .never: validUntil = .zero
    }
    change.beginWaiting(in: session)
  }

  var isStored: Bool { if case .stored = phase { true } else { false } }

  /// The change that takes the change of the request back; nil if there is none.
  var withdrawal: SubmittedChange? { if case .withdrawing(let withdrawal) = phase { withdrawal } else { nil } }

  /// Whether the store still decides the outcome of the request.
  fileprivate var isPending: Bool { if case .waiting = phase { true } else { false } }

  fileprivate func outcome(in session: Session) -> JournalOutcome { change.outcome(in: session) }

  /// A drain does not end the wait, since the response acknowledges the change.
  fileprivate func step(in session: Session) -> WaitStep {
    .wait(change.notifier(in: session), until: deadline, endsAtDrain: false)
  }

  /// A stored change is the same at each holder.
  fileprivate func afterLoss(in session: Session) -> AfterLoss {
    guard isStored || isPending && outcome(in: session) == .stored else { return ifLost }
    return validUntil == .distantFuture || ProcessInformation.bootTime() < validUntil ? .concludes : .moves
  }

  fileprivate mutating func noteStored(in session: Session) {
    phase = .stored
    change.endWaiting(in: session)
  }

  /// Ends the wait of a request that ends before its change is stored.
  fileprivate func end(in session: Session) {
    if !isStored { change.endWaiting(in: session) }
  }
}

/// The state of a request whose change must be stored before the response. It says what is special about the change.
protocol StoredChange {
  var session: Session { get }
  /// The wait for the store; nil if nothing must be stored.
  var storing: StoreWait? { get set }
  /// What becomes of the request if the session is lost while `storing` is nil.
  var afterLoss: AfterLoss { get }

  /// Begins and ends all that the request needs in order to wait. Both are called once.
  func begin(at now: MonotonicTime)
  func end(at now: MonotonicTime)

  /// Acts and decides, like `HolderRequest.proceed`. Not called while `storing` waits. May begin to wait for the store,
  /// and return `.ready`.
  mutating func proceed(_ cause: WaitCause, _ api: API, at now: MonotonicTime) -> WaitStep

  /// Called when the change is stored.
  mutating func noteStored(_ api: API, at now: MonotonicTime)

  /// Takes the change back, since it cannot be stored, or not in time. Called at most once.
  mutating func withdraw(_ change: SubmittedChange, at now: MonotonicTime) -> StoreWait.Withdrawal

  /// Writes the response. Throws only if the request may be executed again.
  func write(_ api: API, at now: MonotonicTime, into response: inout Response) throws(Problem)

  /// Writes the response if the change is not stored. Called after `withdraw`.
  func writeUnstored(_ api: API, at now: MonotonicTime, into response: inout Response) throws(Problem)

  /// Called instead of `write` and `writeUnstored` when the client is gone.
  func abandon(_ api: API, at now: MonotonicTime)
}

extension StoredChange {
  func begin(at now: MonotonicTime) {}
  func end(at now: MonotonicTime) {}
}

/// A held request whose change must be stored before the response. The change is in a table of the loop, so that the
/// request fits inline in the connection.
protocol StoredRequest: HolderRequest {
  associatedtype Change: StoredChange

  init(holding change: consuming Change, _ api: API)

  var change: Change { get }
  func update<Result>(_ body: (inout Change) -> Result) -> Result
  /// Removes the change from the table.
  func remove() -> Change
}

/// The stage between the cluster and an endpoint, for requests that change what is stored. No endpoint waits for the
/// store: it executes a request, states the submitted change, and writes the response when the change is stored.
extension StoredRequest {
  var session: Session { change.session }

  var afterLoss: AfterLoss {
    let change = change
    return change.storing?.afterLoss(in: change.session) ?? change.afterLoss
  }

  func proceed(_ cause: WaitCause, at now: MonotonicTime) -> WaitStep {
    let api = api
    return update { $0.advance(cause, api, at: now) }
  }

  func conclude(at now: MonotonicTime, into response: inout Response) throws(Problem) {
    var change = remove()
    // If the session was lost and then closed, the request did not advance since then.
    change.checkStore(.end, api, at: now)
    change.storing?.end(in: change.session)
    change.end(at: now)
    guard change.storing?.isStored ?? true else { return try change.writeUnstored(api, at: now, into: &response) }
    try change.write(api, at: now, into: &response)
  }

  func abandon() {
    let (change, now) = (remove(), ProcessInformation.monotonicTime())
    change.storing?.end(in: change.session)
    change.end(at: now)
    change.abandon(api, at: now)
  }
}

extension StoredChange {
  fileprivate mutating func advance(_ cause: WaitCause, _ api: API, at now: MonotonicTime) -> WaitStep {
    while true {
      checkStore(cause, api, at: now)
      if let storing, !storing.isStored {
        guard storing.isPending || storing.withdrawal?.outcome(in: session) == .pending else { return .ready }
        return storing.step(in: session)
      }
      let step = proceed(cause, api, at: now)
      guard case .ready = step, storing?.isPending ?? false else { return step }
    }
  }

  /// Notes whether the change is stored by now. Takes it back if it cannot be stored, or if the wait ends.
  fileprivate mutating func checkStore(_ cause: WaitCause, _ api: API, at now: MonotonicTime) {
    guard let wait = storing, wait.isPending else { return }
    let outcome = wait.outcome(in: session)
    if outcome == .stored { return becomeStored(api, at: now) }
    if outcome == .pending, cause == .news { return }
    switch withdraw(wait.change, at: now) {
    case .wasStored: becomeStored(api, at: now)
    case .isSubmitted(let withdrawal): storing?.phase = .withdrawing(withdrawal)
    case .isKept: storing?.phase = .refused
    case .isDone:
      storing?.phase = .refused
      storing?.ifLost = .moves
    }
  }

  private mutating func becomeStored(_ api: API, at now: MonotonicTime) {
    let session = session
    storing?.noteStored(in: session)
    noteStored(api, at: now)
  }
}

extension API {
  /// Responds, or begins the wait of a request that an endpoint has executed. Throws only if the request may be
  /// executed again.
  func respond<Request: StoredRequest>(
    to change: consuming Request.Change, as request: Request.Type, at now: MonotonicTime, into response: inout Response
  ) throws(Problem) -> Outcome {
    var change = change
    change.begin(at: now)
    // A change that cannot be stored is refused by the held request, which knows what becomes of it after a loss.
    if let wait = change.storing, wait.outcome(in: change.session) == .stored {
      change.checkStore(.news, self, at: now)
    }
    guard change.storing?.isStored ?? true, case .ready = change.proceed(.news, self, at: now),
      change.storing?.isStored ?? true
    else { return .wait(Request(holding: change, self)) }
    change.end(at: now)
    try change.write(self, at: now, into: &response)
    return .respond
  }
}
