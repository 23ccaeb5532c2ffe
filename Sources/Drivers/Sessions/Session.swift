import ByteStreams
import Consumers
import Continuity
import Dialing
import Events
import Host
import Inbox
import Idempotency
import Journal
import Logging
import Metrics
import Reactor
import Synchronization
import Threading
import Upstream
import UpstreamProtocol
import UpstreamSession

/// A session with one upstream: the connection and its outgoing messages (`upstream`), and the pushes that are kept for
/// clients (`inbox`).
///
/// Thread-safe. One event loop serves the connection of the session.
package final class Session: Sendable {
  /// The name of the session that the top-level `upstream` setting configures. The paths of its resources do not
  /// contain a name.
  package static let defaultName = SessionName.default

  package let name: String
  /// The prefix of the paths of this session: `/v1/sessions/{name}/`, or `/v1/` for the default session.
  package let path: String
  package let inbox: ConcurrentInbox
  package let consumers: ConcurrentConsumers
  package let upstream: SessionHandle
  /// Which gateway is the holder. All session objects of a slot use one `SessionPlacement`.
  package let placement: SessionPlacement
  /// This gateway's copy of the pushes of other holders; nil if the session is not shared.
  private let sharedCopy: FollowedCopy?
  /// The permission of this gateway, as the holder, to write. nil if this gateway is the holder without a deadline, or
  /// is not the holder.
  private let permission: WritePermission?
  /// Whether only another session object, at this or another gateway, can execute the requests. Once true, the value
  /// stays true.
  private let retired: Atomic<Bool>
  /// The webhooks of the session; nil if a client has created the session, or if its holder is another gateway.
  package let webhooks: SessionWebhooks?
  /// The terms of the session's delivery ids.
  package let deliveryTerms: DeliveryTerms
  /// A number that is different for each created session of this process. 0 for a configured session.
  let number: UInt64
  /// The index of the session's loop. Used for created sessions only.
  let loop: Int
  /// The request that created the session; nil if it is configured.
  package let creation: SessionCreation?
  private let sink: InboxSink
  /// The idempotency keys that earlier processes stored, until the API takes them.
  private let restoredKeys: Locked<[StoredKey]>
  /// The directory that closes the session when it is idle; nil if the session is configured.
  private let created: CreatedSessions?
  /// When a client last used the session, in nanoseconds. Recorded for created sessions only.
  private let lastUse = Atomic<UInt64>(0)

  /// Creates a configured session.
  ///
  /// - Parameters:
  ///   - metrics: the registry in which the session registers its metrics, labelled with its name.
  ///   - attemptLimiter: limits connection attempts per host, for all sessions of the process.
  ///   - budget: limits the memory of all inboxes together.
  ///   - webhooks: the webhooks of the configuration.
  ///   - opened: the journal and the restored state; nil if the session is not stored. Released after the call.
  package init(
    _ name: String, _ settings: PreparedSettings, retention: Retention, logger: Logger, metrics: MetricsRegistry,
    attemptLimiter: ConcurrentAttemptLimiter, budget: RetentionBudget = RetentionBudget(), webhooks: [WebhookPlan] = [],
    opened: OpenedJournal? = nil
  ) {
    self.name = name
    path = name == Self.defaultName ? "/v1/" : "/v1/sessions/\(name)/"
    if let opened {
      inbox = ConcurrentInbox(
        restoring: opened.restored, in: opened.journal, retention: retention, budget: budget)
      consumers = ConcurrentConsumers(inbox: inbox, restoring: opened.restored.consumers, in: opened.journal)
      deliveryTerms = DeliveryTerms(opened.restored)
    } else {
      inbox = Self.makeInbox(retention, budget)
      consumers = ConcurrentConsumers(inbox: inbox)
      deliveryTerms = DeliveryTerms(epoch: inbox.epoch)
    }
    restoredKeys = Locked(opened?.restored.keys.changes ?? [])
    (number, loop) = (0, 0)
    placement = SessionPlacement()
    (sharedCopy, permission) = (nil, nil)
    retired = Atomic(false)
    creation = nil
    created = nil
    sink = InboxSink(inbox, consumers)
    let logger = logger.with([.text("session", name)])
    upstream = SessionHandle(
      settings, named: name, sink: sink, logger: logger, metrics: metrics, attemptLimiter: attemptLimiter,
      opened: opened)
    self.webhooks = SessionWebhooks(
      webhooks, inbox, consumers, logger: logger, metrics: WebhookMetricsTable(metrics, session: name))
    SessionMetrics.register(of: self, in: metrics)
    if let opened { resume(opened, settings) }
  }

  /// The role of this gateway for a shared session.
  enum Role {
    /// This gateway is the holder. It writes to the upstream only while the permission is given, or always if the
    /// permission is nil.
    case local(OpenedJournal, WritePermission?)
    /// Another gateway is the holder. Polls and streams read this inbox.
    case followed(ConcurrentInbox)
  }

  /// Creates a session object for a slot.
  init(_ plan: SharedSlot.Plan, _ role: Role, _ parts: SharedSlot.Parts) {
    name = plan.name
    path = name == Self.defaultName ? "/v1/" : "/v1/sessions/\(name)/"
    var opened: OpenedJournal?
    var permission: WritePermission?
    switch role {
    case .local(let journal, let given):
      (opened, permission) = (journal, given)
      inbox = ConcurrentInbox(
        restoring: journal.restored, in: journal.journal, retention: plan.retention, budget: plan.budget)
      consumers = ConcurrentConsumers(
        inbox: inbox, restoring: journal.restored.consumers, in: journal.journal,
        budget: plan.created == nil ? nil : plan.budget, owner: plan.created?.creation.owner ?? "")
      deliveryTerms = DeliveryTerms(journal.restored)
      restoredKeys = Locked(journal.restored.keys.changes)
    case .followed(let followed):
      inbox = followed
      consumers = ConcurrentConsumers(inbox: inbox)
      consumers.close()
      deliveryTerms = DeliveryTerms(epoch: inbox.epoch)
      restoredKeys = Locked([])
    }
    (number, loop) = (0, 0)
    placement = parts.placement
    sharedCopy = parts.copy
    self.permission = permission
    retired = Atomic(opened == nil)
    creation = plan.created?.creation
    created = plan.created?.directory
    sink = InboxSink(inbox, consumers)
    let logger = plan.logger.with([.text("session", name)])
    upstream = SessionHandle(
      plan.settings, sink: sink, logger: logger, sharedMetrics: parts.metrics, attemptLimiter: plan.attemptLimiter,
      ownedBy: creation?.owner, lineLimiter: plan.created?.lineLimiter, opened: opened, permission: permission,
      lateCalls: plan.budget.lateCalls)
    // Only the holder delivers to webhooks, since the journal has the positions and leases of webhooks.
    webhooks =
      opened == nil || creation != nil
      ? nil
      : SessionWebhooks(
        plan.webhooks, inbox, consumers, permission: permission, logger: logger, metrics: parts.webhookMetrics)
    if let opened { resume(opened, plan.settings) }
    lastUse.store(ProcessInformation.monotonicTime().nanoseconds, ordering: .relaxed)
  }

  private func resume(_ opened: OpenedJournal, _ settings: PreparedSettings) {
    // If the protocol of the stored state can resume, the store has recorded no gap. If another protocol is configured
    // now, it cannot resume from that state, so the gap is recorded here.
    if opened.restored.isContinued, opened.restored.memory.kind != settings.kind { inbox.recordUpstreamGap() }
    opened.journal.observe(self)
    // The store may have changed before `observe` was called, and the session was not notified of these changes.
    journalChanged()
  }

  /// Creates a session on request of a client.
  ///
  /// - Parameters:
  ///   - metrics: the metrics of all created sessions together.
  ///   - onEnd: called once, when the session has ended for good.
  init(
    _ name: String, _ number: UInt64, on loop: Int, _ creation: SessionCreation, _ settings: PreparedSettings,
    retention: Retention, logger: Logger,
    metrics: UpstreamMetrics, attemptLimiter: ConcurrentAttemptLimiter, lineLimiter: LogLineLimiter,
    budget: RetentionBudget,
    in created: CreatedSessions, onEnd: @escaping @Sendable () -> Void
  ) {
    self.name = name
    path = "/v1/sessions/\(name)/"
    inbox = Self.makeInbox(retention, budget)
    deliveryTerms = DeliveryTerms(epoch: inbox.epoch)
    restoredKeys = Locked([])
    consumers = ConcurrentConsumers(inbox: inbox, budget: budget, owner: creation.owner)
    placement = SessionPlacement()
    (sharedCopy, permission) = (nil, nil)
    retired = Atomic(false)
    (self.number, self.loop) = (number, loop)
    self.creation = creation
    self.created = created
    sink = InboxSink(inbox, consumers, onEnd: onEnd)
    upstream = SessionHandle(
      settings, ownedBy: creation.owner, sink: sink, logger: logger.with([.text("session", name)]),
      sharedMetrics: metrics, attemptLimiter: attemptLimiter, lineLimiter: lineLimiter,
      lateCalls: budget.lateCalls)
    webhooks = nil
    noteUse(at: creation.time)
  }

  private static func makeInbox(_ retention: Retention, _ budget: RetentionBudget) -> ConcurrentInbox {
    var generator = SystemRandomNumberGenerator()
    return ConcurrentInbox(epoch: Epoch(using: &generator), retention: retention, budget: budget)
  }

  /// The prefix of the names of the session's settings.
  package var settingPrefix: String {
    if let creation { return "profiles.\(creation.profile)." }
    return name == Self.defaultName ? "" : "sessions.\(name)."
  }

  /// Returns the idempotency keys that earlier processes stored, once. Some may have expired.
  package func takeRestoredKeys() -> [StoredKey] {
    restoredKeys.withLock { keys in
      defer { keys = [] }
      return keys
    }
  }

  /// Starts connecting. All I/O of the session takes place on `loop`.
  func start(on loop: EventLoop, resolver: Resolver) {
    startUpkeep(on: loop)
    upstream.start(on: loop, resolver: resolver)
  }

  /// Starts the timers of the session. The connection has its own timers.
  func startUpkeep(on loop: EventLoop) {
    loop.submit { [self] context in SessionUpkeep(self, loop: context) }
    loop.submit { [consumers] context in ConsumerClock(consumers, loop: context) }
  }

  /// Starts the upkeep of a session that has another holder: pushes expire by time, and the session is followed while
  /// clients read it.
  func startFollowing(on loop: EventLoop) {
    loop.submit { [self] context in SessionUpkeep(self, loop: context) }
  }

  /// Whether only another session object can execute the requests.
  var isRetired: Bool { retired.load(ordering: .acquiring) }

  /// Whether this gateway is the holder, and its deadline has not passed. While a process is stopped, its deadline may
  /// pass, and another gateway may become the holder. The permission is read first. If the permission expires and is
  /// then given again, it belongs to the next term, and this session object has been retired by then. The journal ends
  /// before the permission is given again, and its end notifies the requests that wait for the journal.
  var isHolderByClock: Bool { permission?.isGiven ?? true && !isRetired && !upstream.hasLostJournal }

  /// The copy that readers use here; nil if this gateway is the holder, or the session is not shared. A holder whose
  /// deadline has passed also uses the copy, which will soon have the changes that this gateway has missed.
  package var copy: FollowedCopy? {
    guard let sharedCopy, !isHolderByClock else { return nil }
    return sharedCopy
  }

  /// Called when this gateway is no longer the holder. From now on, the session accepts no messages, and its loop
  /// closes the socket in the next turn. Stored messages and consumers stay unchanged, for the next holder.
  func retire() {
    retired.store(true, ordering: .releasing)
    sink.sessionWillEnd()
    upstream.abort()
    webhooks?.abort()
    consumers.close()
    upstream.deliveryNotifier.notify()
  }

  /// Makes the store continue to follow the session if clients read it here.
  fileprivate func keepFollowing(at now: MonotonicTime) {
    copy?.keep(at: now, hasReaders: inbox.hasReaders, wakesHolder: upstream.connectsOnDemand || creation != nil)
  }

  /// Called at the holder while clients of another gateway read this session.
  func noteDistantReaders(at now: MonotonicTime) {
    sink.noteDistantReaders(until: now + FollowedCopy.distantReadersTime)
    upstream.noteReader()
  }

  /// Applies reloaded settings.
  func reload(_ change: SessionReload) {
    if let retention = change.retention { self.change(retention) }
    webhooks?.replace(with: change.webhooks)
    switch change.upstream {
    case .unchanged: break
    case .topics(let settings): upstream.changeTopics(settings)
    case .connection(let settings, let reason): upstream.reconfigure(settings, because: reason)
    }
  }

  /// Applies new limits to the pushes that are kept.
  func change(_ retention: Retention) {
    if inbox.change(retention, now: ProcessInformation.monotonicTime()) { consumers.pushed() }
  }

  /// Shuts the session down: sends queued messages for up to `limit`, then closes the connection. Records no gap.
  ///
  /// - Parameter end: called on the session's loop when the shutdown is complete.
  func shutDown(flushWithin limit: TimeSpan, whenEnded end: @escaping @Sendable () -> Void) {
    sink.sessionWillEnd()
    upstream.close(flushWithin: limit, whenEnded: end)
  }

  /// Ends the session without a closing handshake. Records no gap.
  ///
  /// - Parameter end: called on the session's loop when the session has ended.
  func abort(whenEnded end: @escaping @Sendable () -> Void) {
    sink.sessionWillEnd()
    upstream.abort(whenEnded: end)
  }

  // MARK: Sessions that clients create

  /// Called when a client sends messages, or reads pushes.
  package func noteUse(at now: MonotonicTime) {
    guard creation != nil else { return }
    lastUse.store(now.nanoseconds, ordering: .relaxed)
    // The holder decides when the session is idle.
    copy?.noteUse(at: now, wakesHolder: true)
  }

  /// Whether clients use the session: a request is held, a stream is open, or an accepted message has no final state.
  private var isInUse: Bool { sink.hasReaders || upstream.hasWork }

  /// The time at which the session will be closed unless a client uses it before; nil for a configured session.
  package func idleDeadline(at now: MonotonicTime) -> MonotonicTime? {
    guard let creation else { return nil }
    let last = isInUse ? now : MonotonicTime(nanoseconds: lastUse.load(ordering: .relaxed))
    return last + creation.idleLimit
  }

  /// Closes the session if it is idle and this gateway is the holder. Returns false if the session is closed.
  fileprivate func keepOpen(at now: MonotonicTime) -> Bool {
    if inbox.hasEnded { return false }
    guard let created, creation != nil else { return true }
    if isInUse { noteUse(at: now) } else if isHolderByClock { created.closeIfIdle(self, at: now) }
    return !inbox.isClosed
  }

  /// Ends the session for good. From now on, it accepts no messages. Held requests end.
  func close(code: UInt16) {
    sink.sessionWillEnd()
    // The inbox is closed first. The next calls end requests, and their clients must find the session closed, so that
    // they get 410.
    inbox.close()
    upstream.end(code: code)
    consumers.close()
  }
}

extension Session: JournalObserver {
  /// Called on the thread of the store, when entries were stored or the state of the store has changed.
  package func journalChanged() {
    inbox.journalChanged()
    consumers.journalChanged()
    upstream.journalChanged()
  }
}

/// The request that created a session.
package struct SessionCreation: Sendable {
  /// The name of the profile.
  package let profile: String
  /// The values of all variables of the profile, by name, including defaults.
  package let variables: [String: String]
  /// The principal of the client.
  package let owner: String
  package let time: MonotonicTime
  /// How long the session may be idle before it is closed.
  package let idleLimit: TimeSpan
  /// The incarnation: random bits that are the same at every gateway and in every term. If the session is closed and
  /// created again under the same name, the new session has different bits.
  package let incarnation: UInt64

  package init(
    profile: String, variables: [String: String], owner: String, time: MonotonicTime, idleLimit: TimeSpan,
    incarnation: UInt64 = .random(in: 0...UInt64.max)
  ) {
    self.incarnation = incarnation
    self.profile = profile
    self.variables = variables
    self.owner = owner
    self.time = time
    self.idleLimit = idleLimit
  }
}

/// Appends messages from the upstream to the inbox.
private final class InboxSink: UpstreamSink {
  private let inbox: ConcurrentInbox
  private let consumers: ConcurrentConsumers
  private let isEnding = Atomic(false)
  /// The time until which this gateway assumes that other gateways have readers, in nanoseconds.
  private let distantReadersEnd = Atomic<UInt64>(0)
  private let onEnd: (@Sendable () -> Void)?

  init(_ inbox: ConcurrentInbox, _ consumers: ConcurrentConsumers, onEnd: (@Sendable () -> Void)? = nil) {
    self.inbox = inbox
    self.consumers = consumers
    self.onEnd = onEnd
  }

  func sessionEnded() { onEnd?() }

  func sessionWillEnd() { isEnding.store(true, ordering: .releasing) }

  func received(_ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, now: Int64) {
    inbox.append(payload, kind: kind, topic: topic, time: now, now: ProcessInformation.monotonicTime())
    consumers.pushed()
  }

  func received(_ event: EventRecord, _ continuation: Continuation?, now: Int64) {
    inbox.append(event, continuation, time: now, now: ProcessInformation.monotonicTime())
    consumers.pushed()
  }

  func rendered(_ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, now: Int64) -> RenderedPush? {
    passing(inbox.render(payload, kind: kind, topic: topic, time: now), in: nil, now: now)
  }

  func rendered(_ event: EventRecord, now: Int64) -> RenderedPush? {
    passing(inbox.render(event, time: now), in: event.namespace.text(), now: now)
  }

  private func passing(_ push: ConcurrentInbox.RenderedPush, in namespace: String?, now: Int64) -> RenderedPush {
    { [self] continuation in
      let continued = namespace.flatMap { name in continuation.map { (name, $0) } }
      inbox.append(push, continued, time: now, now: ProcessInformation.monotonicTime())
      consumers.pushed()
    }
  }

  var lastTicket: JournalTicket? { inbox.lastTicket }

  func resumes(from cursor: [UInt8]?) { inbox.resumes(from: cursor) }

  func remembers(_ changes: [MemoryChange]) { inbox.remembers(changes) }

  func storeRemembered() { inbox.storeRemembered() }

  var hasReaders: Bool { inbox.hasReaders || consumers.hasReaders || hasDistantReaders }

  func noteDistantReaders(until end: MonotonicTime) {
    distantReadersEnd.store(end.nanoseconds, ordering: .releasing)
  }

  private var hasDistantReaders: Bool {
    let end = distantReadersEnd.load(ordering: .acquiring)
    return end > 0 && ProcessInformation.monotonicTime().nanoseconds < end
  }

  func stateChanged() { if inbox.hasStateReaders { inbox.notifier.notify() } }

  func connectionLost() {
    guard !isEnding.load(ordering: .acquiring) else { return }
    inbox.recordUpstreamGap()
    consumers.pushed()
  }
}

/// Drops expired pushes and late replies even if no new messages arrive. Closes a created session that is idle. Makes
/// the store follow a remote session while clients read it here.
private final class SessionUpkeep: LoopTask, TimerTarget {
  /// The interval of all sessions, unless a short idle limit of a created session needs a shorter interval.
  private static var interval: TimeSpan { .seconds(5) }
  private static var shortestInterval: TimeSpan { .milliseconds(100) }

  /// The reference is weak, so that a closed session is freed before the timer fires. Until the timer fires, clients
  /// may create and close many sessions.
  private weak var session: Session?
  private let loop: LoopContext
  private let interval: TimeSpan

  init(_ session: Session, loop: LoopContext) {
    self.session = session
    self.loop = loop
    let idle = session.creation?.idleLimit ?? .hours(1)
    interval = min(Self.interval, max(Self.shortestInterval, idle / 4))
  }

  func run() async { timerFired(0) }

  func timerFired(_ token: Int) {
    guard let session, session.keepOpen(at: loop.now) else { return }
    // Consumers may have new pushes now: with `order_by`, a later push waits for an earlier push with the same key,
    // which may have expired. Readers of consumers also get a gap for expired pushes.
    if session.inbox.expire(now: loop.now) { session.consumers.pushed() }
    session.upstream.expireCalls(now: loop.now)
    session.keepFollowing(at: loop.now)
    _ = loop.schedule(at: loop.now + interval, self)
  }
}
