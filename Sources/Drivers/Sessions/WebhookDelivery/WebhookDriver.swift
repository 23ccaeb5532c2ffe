import ByteStreams
import Consumers
import Dialing
import HTTPCodec
import Host
import Inbox
import Logging
import Reactor
import Synchronization
import Threading
import Webhooks

/// The worker of one webhook's consumer. It leases pushes, posts them to the receiver, and settles the leases as the
/// machine decides.
///
/// The driver is used only on the session's loop. If the process ends before a leased push is settled, the push is
/// delivered again after the lease has expired.
final class WebhookDriver: SignalTarget, TimerTarget {
  /// The pause after `consumers` has refused a call, for example because the store has failed.
  private static var pauseAfterRefusal: TimeSpan { .seconds(1) }

  private let webhooks: SessionWebhooks
  private let resolver: Resolver
  private let loop: LoopContext
  private let metrics: WebhookMetrics
  private let logger: Logger
  /// Limits log lines: a receiver that is down would cause a line for each attempt.
  private let lineLimiter = LogLineLimiter()
  private var plan: WebhookPlan
  private var machine: WebhookMachine
  /// The receive of the driver. It is held from `start` to `stop`, so that the consumer does not become idle.
  private var turn: ReceiveTurn?
  private var listener: Notifier.Listener?
  private var signal: Signal?
  private var timer: LoopTimer?
  /// Open connections without a request.
  private var idle: [HTTPClient] = []
  /// The connections of attempts in progress.
  private var busy: [ObjectIdentifier: HTTPClient] = [:]
  private var bytesInProgress = 0
  /// Whether no attempt may send its request any more.
  fileprivate private(set) var isAborted = false
  private var lastFailureTime: Int64 = 0
  /// Ended attempts whose settlement the store has refused. While there is such an attempt, no other attempt begins.
  private var unsettled: [EndedAttempt] = []
  /// The number of missing pushes that no log line has reported yet.
  private var missed: UInt64 = 0

  private struct EndedAttempt {
    let lease: Lease
    let verdict: WebhookVerdict
    /// Whether the response to this attempt has disabled the webhook.
    let isDisabling: Bool
    let endpoint: HTTPEndpoint
  }

  init(_ plan: WebhookPlan, _ webhooks: SessionWebhooks, _ resolver: Resolver, loop: LoopContext) {
    self.plan = plan
    self.webhooks = webhooks
    self.resolver = resolver
    self.loop = loop
    machine = WebhookMachine(plan.settings)
    metrics = webhooks.metrics(of: plan.settings.name)
    logger = webhooks.logger.with([.text("webhook", plan.settings.name)])
  }

  var name: String { plan.settings.name }
  private var consumers: ConcurrentConsumers { webhooks.consumers }
  /// Whether attempts are in progress, or ended attempts are not settled yet.
  var isBusy: Bool { machine.inProgress > 0 || !unsettled.isEmpty }

  // MARK: Life cycle

  /// - Parameter isNewWorker: whether this process has had no worker of this name before.
  func start(isNewWorker: Bool) {
    let signal = loop.makeSignal(for: self)
    let listener = Notifier.Listener(signal)
    consumers.notifier.add(listener)
    (self.signal, self.listener) = (signal, listener)
    takeConsumer(isNewWorker: isNewWorker)
    pump()
  }

  /// Applies reloaded settings, and starts again if the driver was stopped. The requests of attempts in progress keep
  /// the old settings, and their outcomes are judged by the new settings.
  func reload(_ plan: WebhookPlan) {
    let keepsEndpoint = plan.hasSameEndpoint(as: self.plan)
    let old = self.plan.settings
    machine.reload(plan.settings, isNewEndpoint: !keepsEndpoint)
    self.plan = keepsEndpoint ? plan.with(endpointOf: self.plan) : plan
    // Idle connections are closed, since the contents of files that the settings name may have changed.
    for client in idle { client.cancel() }
    idle = []
    guard listener != nil else { return start(isNewWorker: false) }
    if plan.settings != old { takeConsumer(isNewWorker: false) }
    pump()
  }

  /// From now on, no attempt begins. The consumer is kept until it has been idle for its maximum time.
  func stop() {
    guard let listener else { return }
    consumers.notifier.remove(listener)
    signal?.close()
    (self.listener, signal) = (nil, nil)
    setTimer(nil)
    if let turn = turn.take() { consumers.endHolding(turn, of: name, now: loop.now) }
    for client in idle { client.cancel() }
    idle = []
    pumpStopped()
  }

  /// Called after `stop`. Cancels the attempts in progress. Their pushes cannot be settled any more, because another
  /// gateway is the holder.
  func abort() {
    unsettled = []
    isAborted = true
    setTimer(nil)
    for client in busy.values { client.cancel() }
  }

  /// Creates the consumer of the webhook, or uses an existing consumer of this name.
  ///
  /// - Parameter isNewWorker: whether leases that the consumer has are from an earlier process.
  private func takeConsumer(isNewWorker: Bool) {
    do throws(ConsumerRefusal) {
      if let turn = turn.take() { consumers.endHolding(turn, of: name, now: loop.now) }
      try consumers.take(name, plan.settings.consumer, isNewWorker: isNewWorker, now: loop.now)
      let turn = try consumers.beginReceive(name, acknowledging: nil, now: loop.now)
      consumers.beginHolding(turn, of: name, now: loop.now)
      self.turn = turn
    } catch {
      // The session is closed.
      logger.debug("the webhook has no consumer")
    }
  }

  /// The consumer may have pushes for the driver.
  func signalled() { pump() }

  /// The pause after a refusal or a failed attempt has ended.
  func timerFired(_ token: Int) {
    timer = nil
    pump()
  }

  private func setTimer(_ deadline: MonotonicTime?) { loop.reschedule(&timer, at: deadline, self) }

  private func publish() {
    // When the last attempt of a stopped driver ends, another driver may already publish under this name.
    guard listener != nil else { return }
    webhooks.publish(WebhookStatus(machine, lastFailureTime: lastFailureTime), of: name)
  }

  // MARK: Delivering

  /// Begins as many attempts as are allowed and possible.
  private func pump() {
    guard let turn, let listener else { return pumpStopped() }
    // The flag is set before the last check for pushes, so that a push that arrives after the check sends a signal.
    listener.isWaiting.store(true, ordering: .sequentiallyConsistent)
    settleAgain()
    do throws(ConsumerRefusal) {
      while room > 0 {
        let batch = try consumers.lease(
          turn, of: name, limit: room, maxBytes: WebhookSettings.bytesInProgress - bytesInProgress, now: loop.now)
        if let gap = batch.gap { note(gap) }
        for message in batch.messages { begin(message) }
        if batch.messages.isEmpty {
          // The driver searches for pushes once per turn of the loop, so that the loop stays responsive.
          if batch.more { signal?.notify() }
          break
        }
      }
      if !unsettled.isEmpty || !isPermitted {
        setTimer(loop.now + Self.pauseAfterRefusal)
      } else if machine.pausedUntil > loop.now {
        setTimer(machine.pausedUntil)
      }
    } catch {
      setTimer(loop.now + Self.pauseAfterRefusal)
    }
    // A driver that cannot begin another attempt needs no signal for pushes.
    if room == 0 { listener.isWaiting.store(false, ordering: .sequentiallyConsistent) }
    publish()
  }

  /// Settles ended attempts, also after `stop`.
  private func pumpStopped() {
    settleAgain()
    if !unsettled.isEmpty { setTimer(loop.now + Self.pauseAfterRefusal) }
  }

  /// Whether this gateway may deliver. Without the permission, another gateway may be the holder, and deliver.
  private var isPermitted: Bool { webhooks.permission?.isGiven ?? true }

  private var room: Int {
    isPermitted && unsettled.isEmpty && bytesInProgress < WebhookSettings.bytesInProgress
      ? machine.room(at: loop.now) : 0
  }

  private func begin(_ push: LeasedMessage) {
    machine.begin()
    webhooks.attemptBegins()
    bytesInProgress += push.message.rendered.count
    let client =
      idle.popLast()
      ?? HTTPClient(plan.endpoint, resolver: resolver, permission: webhooks.permission, loop: loop)
    busy[ObjectIdentifier(client)] = client
    // The HTTP client has postponed its deadline, since the receiver is still reading the request. So the lease must
    // also be extended.
    client.whenPostponed = { [weak self] in self?.extend(push.lease) }
    let unsigned = UnsignedPush(
      id: Self.id(of: push.message, in: webhooks.inbox.latest), timestamp: loop.wallClock / 1_000,
      body: push.message.rendered, secrets: plan.settings.secrets)
    loop.spawn(WebhookAttempt(push, unsigned, plan.settings, client, self))
  }

  private func extend(_ lease: Lease) {
    guard isPermitted else { return }
    do throws(ConsumerRefusal) {
      _ = try consumers.settle([(lease, .extend)], of: name, now: loop.now)
    } catch {
      // If the lease expires before the attempt ends, the push is delivered again.
    }
  }

  /// The id of the push in the form of Standard Webhooks, whose ids have no dots: `msg_epoch_number`, or
  /// `msg_epoch_term_number` if the session is stored.
  private static func id(of push: RetainedMessage, in log: Cursor) -> String {
    var text = ByteQueue()
    push.id(like: log).write(into: &text)
    let parts = text.bytes.text().dropFirst(2).split(separator: ".")
    return "msg_" + parts.joined(separator: "_")
  }

  fileprivate func ended(_ attempt: WebhookAttempt, _ outcome: HTTPClient.Outcome) {
    let push = attempt.push
    bytesInProgress -= push.message.rendered.count
    busy[ObjectIdentifier(attempt.client)] = nil
    attempt.client.whenPostponed = nil
    defer { webhooks.attemptEnded() }
    guard let outcome = WebhookOutcome(outcome) else {
      machine.abandon()
      return pump()
    }
    let wasDisabled = machine.isDisabled
    let isCurrent = attempt.client.endpoint === plan.endpoint
    let verdict = machine.end(
      outcome, of: push.lease, age: loop.now - push.message.arrival, isCurrent: isCurrent, now: loop.now,
      using: &loop.entropy)
    metrics.ended(verdict.result, after: loop.now - attempt.start)
    if verdict.result != .delivered, isCurrent { lastFailureTime = loop.wallClock }
    // The failure is published before the settlement. So a client that sees the dead letter can also see the reason.
    if verdict.failure != nil { publish() }
    settle(
      EndedAttempt(
        lease: push.lease, verdict: verdict, isDisabling: machine.isDisabled && !wasDisabled,
        endpoint: attempt.client.endpoint))
    if listener != nil, isCurrent {
      idle.append(attempt.client)
    } else {
      attempt.client.cancel()
    }
    pump()
  }

  private func settle(_ attempt: EndedAttempt) {
    do throws(ConsumerRefusal) {
      let outcome = try consumers.settle([(attempt.lease, attempt.verdict.settlement)], of: name, now: loop.now).first
      note(attempt, outcome)
    } catch {
      if error == .notStored { unsettled.append(attempt) }
    }
  }

  /// Tries again to settle the attempts whose settlement the store has refused. If the lease of such an attempt has
  /// expired, its push is delivered again.
  private func settleAgain() {
    let attempts = unsettled
    unsettled = []
    for attempt in attempts { settle(attempt) }
  }

  // MARK: Log

  private func note(_ attempt: EndedAttempt, _ outcome: SettlementOutcome?) {
    guard let failure = attempt.verdict.failure else { return }
    var fields: [LogField] = [
      .text("receiver", attempt.endpoint.url.origin), .text("reason", failure.detail),
      .number("push", Int(failure.push)), .number("attempt", Int(failure.attempt)),
    ]
    if attempt.isDisabling {
      logger.error(
        "the webhook is disabled until the configuration is reloaded: its receiver responded with 410", fields)
      return
    }
    let suppressed = lineLimiter.admit(at: loop.now)
    if let suppressed, suppressed > 0 { fields.append(.number("suppressed", suppressed)) }
    let level: LogLevel = suppressed == nil ? .debug : .warning
    if outcome == .dead {
      logger.log(level, "the webhook gives up a push: it is a dead letter", fields)
    } else {
      if case .release(let delay) = attempt.verdict.settlement { fields.append(.text("retry_in", delay.text)) }
      logger.log(level, "a delivery to the webhook failed", fields)
    }
  }

  private func note(_ gap: Gap) {
    missed += gap.missed ?? 0
    guard lineLimiter.admit(at: loop.now) != nil else { return }
    logger.warning(
      "pushes are missing: they were removed before the webhook delivered them",
      missed > 0 ? [.number("missed", Int(clamping: missed))] : [])
    missed = 0
  }
}

/// One request of a webhook.
private final class WebhookAttempt: LoopTask {
  let push: LeasedMessage
  let client: HTTPClient
  let start: MonotonicTime
  private let unsigned: UnsignedPush
  private let settings: WebhookSettings
  private let driver: WebhookDriver

  init(
    _ push: LeasedMessage, _ unsigned: UnsignedPush, _ settings: WebhookSettings, _ client: HTTPClient,
    _ driver: WebhookDriver
  ) {
    self.push = push
    self.unsigned = unsigned
    self.settings = settings
    self.client = client
    self.driver = driver
    start = ProcessInformation.monotonicTime()
  }

  func run() async {
    let request = request(signature: await unsigned.signature())
    // The driver may have been aborted while another thread signed the push.
    driver.ended(self, driver.isAborted ? .cancelled : await client.send(request, within: settings.timeout))
  }

  private func request(signature: String) -> HTTPClientRequest {
    let url = settings.url
    var request = HTTPClientRequest(target: url.target, host: url.hostField, content: unsigned.body)
    request.add("Content-Type", "application/json")
    request.add("User-Agent", "drawbridge")
    request.add("webhook-id", unsigned.id)
    request.add("webhook-timestamp", "\(unsigned.timestamp)")
    request.add("webhook-signature", signature)
    if let authorization = url.basicAuthorization { request.add("Authorization", authorization) }
    return request
  }
}

/// A push that is signed for its webhook.
private struct UnsignedPush: Sendable {
  let id: String
  /// In seconds of UNIX time.
  let timestamp: Int64
  let body: ByteString
  let secrets: [WebhookSecret]

  /// Signs the large pushes of all webhooks. `WebhookSettings` limits the pushes that wait for it.
  private static let largePushes = WorkThread(named: "signatures")

  /// The value of `webhook-signature`. A large push is signed on another thread, since a signature takes about 1 ms for
  /// each MiB.
  func signature() async -> String {
    guard body.count >= LargeSlice.smallest else { return sign() }
    return await withCheckedContinuation { signed in
      Self.largePushes.run { signed.resume(returning: sign()) }
    }
  }

  private func sign() -> String {
    let content = WebhookContent(id: id, timestamp: timestamp, body: body.bytes)
    return secrets.map { $0.signature(of: content) }.joined(separator: " ")
  }
}

extension WebhookOutcome {
  /// Returns nil if the attempt was cancelled.
  init?(_ outcome: HTTPClient.Outcome) {
    switch outcome {
    case .response(let response): self = .response(status: response.status, retryAfter: response.retryAfter)
    case .timeout(let detail): self = .timeout(detail)
    case .failed(let detail), .invalid(let detail): self = .failed(detail)
    case .cancelled: return nil
    }
  }
}
