import ByteStreams
import Configuration
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

/// A session with one upstream: the connection and its outgoing messages (`upstream`), and the pushes kept for clients (`inbox`).
///
/// Its connection is served by one event loop. Can be used from any thread.
package final class Session: Sendable {
  /// The name of the session that the top-level `upstream` setting configures. Its paths need no name.
  package static let defaultName = SessionName.default

  package let name: String
  /// What the paths below this session begin with: `/v1/sessions/{name}/`, or `/v1/` for the default session.
  package let path: String
  package let inbox: SharedInbox
  package let consumers: SharedConsumers
  package let upstream: SessionHandle
  /// Which gateway holds the session. Those that take each other's place share it.
  package let placement: SessionPlacement
  /// What this gateway knows of the pushes of other holders; nil if the session is not shared.
  private let sharedCopy: FollowedCopy?
  /// Of this gateway as the holder; nil: for ever, or this gateway does not hold the session.
  private let permission: WritePermission?
  /// Whether another session executes the requests, here or elsewhere. Final.
  private let retired: Atomic<Bool>
  /// nil if a client created the session, or another gateway holds it.
  package let webhooks: SessionWebhooks?
  /// The terms of its delivery ids.
  package let deliveryTerms: DeliveryTerms
  /// Distinguishes the sessions that clients have created since the start; 0 if it is configured.
  let number: UInt64
  /// The index of the loop of a session that a client created.
  let loop: Int
  /// How a client created it; nil if it is configured.
  package let creation: SessionCreation?
  private let sink: InboxSink
  /// The idempotency keys of earlier processes, until the API takes them.
  private let restoredKeys: Locked<[StoredKey]>
  /// The directory of the session, which closes it when it is idle. Only for one that a client created.
  private let created: CreatedSessions?
  /// When a client last used it. Kept only for a session that a client created.
  private let lastUse = Atomic<UInt64>(0)

  /// A configured session.
  ///
  /// - Parameters:
  ///   - metrics: the session registers its metrics here, labelled with its name.
  ///   - attemptLimiter: limits connection attempts per host, for all sessions of the process.
  ///   - budget: limits the memory of all inboxes together.
  ///   - webhooks: those of the configuration.
  ///   - opened: where the session is stored, and what it was; nil: nowhere. Not kept.
  package init(
    _ name: String, _ settings: SharedSettings, retention: Retention, logger: Logger, metrics: MetricsRegistry,
    attemptLimiter: SharedAttemptLimiter, budget: RetentionBudget = RetentionBudget(), webhooks: [WebhookPlan] = [],
    opened: OpenedJournal? = nil
  ) {
    self.name = name
    path = name == Self.defaultName ? "/v1/" : "/v1/sessions/\(name)/"
    if let opened {
      inbox = SharedInbox(
        restoring: opened.restored, in: opened.journal, retention: retention, budget: budget)
      consumers = SharedConsumers(inbox: inbox, restoring: opened.restored.consumers, in: opened.journal)
      deliveryTerms = DeliveryTerms(opened.restored)
    } else {
      inbox = Self.makeInbox(retention, budget)
      consumers = SharedConsumers(inbox: inbox)
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

  /// What a session that several gateways share is at this one.
  enum Role {
    /// Nothing is written to its upstream without the permission; nil: that is always allowed.
    case held(OpenedJournal, WritePermission?)
    /// Another gateway holds it. Polls and streams are served from this inbox.
    case followed(SharedInbox)
  }

  /// A session in a slot.
  init(_ plan: SharedSlot.Plan, _ role: Role, _ parts: SharedSlot.Parts) {
    name = plan.name
    path = name == Self.defaultName ? "/v1/" : "/v1/sessions/\(name)/"
    var opened: OpenedJournal?
    var permission: WritePermission?
    switch role {
    case .held(let journal, let given):
      (opened, permission) = (journal, given)
      inbox = SharedInbox(
        restoring: journal.restored, in: journal.journal, retention: plan.retention, budget: plan.budget)
      consumers = SharedConsumers(
        inbox: inbox, restoring: journal.restored.consumers, in: journal.journal,
        budget: plan.created == nil ? nil : plan.budget, owner: plan.created?.creation.owner ?? "")
      deliveryTerms = DeliveryTerms(journal.restored)
      restoredKeys = Locked(journal.restored.keys.changes)
    case .followed(let followed):
      inbox = followed
      consumers = SharedConsumers(inbox: inbox)
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
    // Only the holder delivers: positions and leases of webhooks are in the journal.
    webhooks =
      opened == nil || creation != nil
      ? nil
      : SessionWebhooks(
        plan.webhooks, inbox, consumers, permission: permission, logger: logger, metrics: parts.webhookMetrics)
    if let opened { resume(opened, plan.settings) }
    lastUse.store(ProcessInformation.monotonicTime().nanoseconds, ordering: .relaxed)
  }

  private func resume(_ opened: OpenedJournal, _ settings: SharedSettings) {
    // The store leaves this gap to the session if the upstream may have restored its state, which another one does not.
    if opened.restored.isContinued, opened.restored.memory.kind != settings.kind { inbox.recordUpstreamGap() }
    opened.journal.observe(self)
    // Before the session was the observer.
    journalChanged()
  }

  /// A session that a client creates.
  ///
  /// - Parameters:
  ///   - metrics: shared with the others that clients create.
  ///   - onEnd: called once, when the session has ended for good.
  init(
    _ name: String, _ number: UInt64, on loop: Int, _ creation: SessionCreation, _ settings: SharedSettings,
    retention: Retention, logger: Logger,
    metrics: UpstreamMetrics, attemptLimiter: SharedAttemptLimiter, lineLimiter: LogLineLimiter,
    budget: RetentionBudget,
    in created: CreatedSessions, onEnd: @escaping @Sendable () -> Void
  ) {
    self.name = name
    path = "/v1/sessions/\(name)/"
    inbox = Self.makeInbox(retention, budget)
    deliveryTerms = DeliveryTerms(epoch: inbox.epoch)
    restoredKeys = Locked([])
    consumers = SharedConsumers(inbox: inbox, budget: budget, owner: creation.owner)
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

  private static func makeInbox(_ retention: Retention, _ budget: RetentionBudget) -> SharedInbox {
    var generator = SystemRandomNumberGenerator()
    return SharedInbox(epoch: Epoch(using: &generator), retention: retention, budget: budget)
  }

  /// The prefix of the paths of its settings.
  package var settingPrefix: String {
    if let creation { return "profiles.\(creation.profile)." }
    return name == Self.defaultName ? "" : "sessions.\(name)."
  }

  /// Takes the idempotency keys of earlier processes. Some may have expired.
  package func takeRestoredKeys() -> [StoredKey] {
    restoredKeys.withLock { keys in
      defer { keys = [] }
      return keys
    }
  }

  /// Starts connecting. All I/O of the session happens on `loop`.
  func start(on loop: EventLoop, resolver: Resolver) {
    startUpkeep(on: loop)
    upstream.start(on: loop, resolver: resolver)
  }

  /// Starts what happens by time, apart from the connection.
  func startUpkeep(on loop: EventLoop) {
    loop.submit { [self] context in SessionUpkeep(self, loop: context) }
    loop.submit { [consumers] context in ConsumerClock(consumers, loop: context) }
  }

  /// Follows the session of another gateway: what is too old is dropped by time, and the session is followed while it is read.
  func startFollowing(on loop: EventLoop) {
    loop.submit { [self] context in SessionUpkeep(self, loop: context) }
  }

  /// Whether another session executes the requests.
  var isRetired: Bool { retired.load(ordering: .acquiring) }

  /// Whether this gateway is the holder by the clock, too: if the process was stopped, another one may have held the session before this one has
  /// noticed its deadline. The permission is read first: one that is given anew belongs to the next term, and this session was retired before.
  /// The journal ends before that, and notifies the requests that wait for it.
  var isHeldByClock: Bool { permission?.isGiven ?? true && !isRetired && !upstream.hasLostJournal }

  /// What this gateway knows of the session that it follows; nil if it does not follow. A holder whose deadline has passed does, and will soon
  /// have read what it has missed.
  package var copy: FollowedCopy? {
    guard let sharedCopy, !isHeldByClock else { return nil }
    return sharedCopy
  }

  /// The session is not this gateway's any more. Nothing is accepted from now on, and the socket is closed in the next turn of the session's loop.
  /// Stored messages and consumers stay as they are, for the next holder.
  func retire() {
    retired.store(true, ordering: .releasing)
    sink.sessionWillEnd()
    upstream.abort()
    webhooks?.abort()
    consumers.close()
    upstream.deliveryNotifier.notify()
  }

  /// Follows the session for longer, if it is read here.
  fileprivate func keepFollowing(at now: MonotonicTime) {
    copy?.keep(at: now, hasReaders: inbox.hasReaders, wakesHolder: upstream.connectsOnDemand || creation != nil)
  }

  /// Clients of another gateway read this session, which is held here.
  func noteDistantReaders(at now: MonotonicTime) {
    sink.noteDistantReaders(until: now + FollowedCopy.distantReadersTime)
    upstream.noteReader()
  }

  /// Applies settings that were read again.
  func reload(_ change: SessionReload) {
    if let retention = change.retention { self.change(retention) }
    webhooks?.replace(with: change.webhooks)
    switch change.upstream {
    case .unchanged: break
    case .topics(let settings): upstream.changeTopics(settings)
    case .connection(let settings, let reason): upstream.reconfigure(settings, because: reason)
    }
  }

  /// Applies other limits to the pushes that are kept.
  func change(_ retention: Retention) {
    if inbox.change(retention, now: ProcessInformation.monotonicTime()) { consumers.pushed() }
  }

  /// Shuts the session down: sends queued messages for up to `limit`, then closes the connection. This does not count as a gap.
  ///
  /// - Parameter end: called on the session's loop when that is complete.
  func shutDown(flushWithin limit: TimeSpan, whenEnded end: @escaping @Sendable () -> Void) {
    sink.sessionWillEnd()
    upstream.close(flushWithin: limit, whenEnded: end)
  }

  /// Ends the session without a closing handshake. This does not count as a gap either.
  ///
  /// - Parameter end: called on the session's loop when that is complete.
  func abort(whenEnded end: @escaping @Sendable () -> Void) {
    sink.sessionWillEnd()
    upstream.abort(whenEnded: end)
  }

  // MARK: Sessions that clients create

  /// A client sends, or receives pushes.
  package func noteUse(at now: MonotonicTime) {
    guard creation != nil else { return }
    lastUse.store(now.nanoseconds, ordering: .relaxed)
    // The holder decides when the session is idle.
    copy?.noteUse(at: now, wakesHolder: true)
  }

  /// Whether a client is present: a request waits or a stream is open, or accepted messages have no final state.
  private var isInUse: Bool { sink.hasReaders || upstream.hasWork }

  /// When the session is closed unless it is used; nil if it is configured.
  package func idleDeadline(at now: MonotonicTime) -> MonotonicTime? {
    guard let creation else { return nil }
    let last = isInUse ? now : MonotonicTime(nanoseconds: lastUse.load(ordering: .relaxed))
    return last + creation.idleLimit
  }

  /// Closes the session if it is idle and this gateway holds it. Returns false once it is closed.
  fileprivate func keepOpen(at now: MonotonicTime) -> Bool {
    if inbox.hasEnded { return false }
    guard let created, creation != nil else { return true }
    if isInUse { noteUse(at: now) } else if isHeldByClock { created.closeIfIdle(self, at: now) }
    return !inbox.isClosed
  }

  /// Ends the session for good. Nothing is accepted any more, and everything that waits for it ends.
  func close(code: UInt16) {
    sink.sessionWillEnd()
    // First, so that what the rest ends finds the session closed: its clients get 410.
    inbox.close()
    upstream.end(code: code)
    consumers.close()
  }
}

extension Session: JournalObserver {
  /// Something was stored, or the state of the store has changed. Called on the thread of the store.
  package func journalChanged() {
    inbox.journalChanged()
    consumers.journalChanged()
    upstream.journalChanged()
  }
}

/// How a client created a session.
package struct SessionCreation: Sendable {
  /// The name of the profile.
  package let profile: String
  /// The values of all variables of the profile, by name.
  package let variables: [String: String]
  /// The principal of the client.
  package let owner: String
  package let time: MonotonicTime
  /// How long the session may be idle before it is closed.
  package let idleLimit: TimeSpan
  /// Random bits that the session has at every gateway and in every term: a session that is created again under its name has others.
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

/// Appends the messages from the upstream to the inbox.
private final class InboxSink: UpstreamSink {
  private let inbox: SharedInbox
  private let consumers: SharedConsumers
  private let isEnding = Atomic(false)
  /// Until when clients of other gateways count as readers, in nanoseconds.
  private let distantReadersEnd = Atomic<UInt64>(0)
  private let onEnd: (@Sendable () -> Void)?

  init(_ inbox: SharedInbox, _ consumers: SharedConsumers, onEnd: (@Sendable () -> Void)? = nil) {
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

  var lastTicket: JournalTicket? { inbox.lastTicket }

  func resumes(from cursor: [UInt8]) { inbox.resumes(from: cursor) }

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

/// Drops expired pushes and late replies, even when no new ones arrive, closes an idle session that a client created, and keeps one followed that
/// is read.
private final class SessionUpkeep: LoopTask, TimerTarget {
  /// Also of most sessions that clients create. A short idle limit shortens it.
  private static var interval: TimeSpan { .seconds(5) }
  private static var shortestInterval: TimeSpan { .milliseconds(100) }

  /// Weak, so that a closed session is freed before the timer fires: clients may create and close many in that time.
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
    // What is dropped may have blocked others of its key, and is a gap.
    if session.inbox.expire(now: loop.now) { session.consumers.pushed() }
    session.upstream.expireCalls(now: loop.now)
    session.keepFollowing(at: loop.now)
    _ = loop.schedule(at: loop.now + interval, self)
  }
}
