import ByteStreams
import Calls
import Dialing
import Events
import Host
import Idempotency
import Journal
import JournalCoding
import Logging
import Metrics
import Outbox
import Reactor
import RouteNetlink
import Synchronization
import TLSEngine
import Threading
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// One upstream session, as seen by other loops: they post messages, read its status, and open or close it.
///
/// Thread-safe. A post holds a lock for about the time of two dictionary lookups, and a burst of posts wakes the
/// session's loop once.
package final class SessionHandle: Sendable {
  /// A command to the driver.
  enum Command: Sendable {
    /// The first command, unless an operator has closed the session. The session connects, or becomes idle if it
    /// connects on demand.
    case start
    case open
    case close(code: UInt16)
    /// Like `close(code:)`, but the session closes only when all queued messages have been written, or after this time
    /// at the latest.
    case shutDown(flushWithin: TimeSpan, code: UInt16?)
    /// Closes the socket without a closing handshake, and ends the session.
    case abort
    case reconfigure(PreparedSettings, because: ReplacementReason)
    case changeTopics(PreparedSettings)
    case networkChanged(NetworkChange)
  }

  /// The state that the lock guards.
  struct Guarded: ~Copyable {
    var outbox: Outbox
    var status: SessionStatus
    var commands: [Command] = []
    /// Wakes the driver's loop; nil before the driver has started and after it has ended.
    var signal: Signal?
    var hasEnded = false
    /// Whether the session's loop has ended although the session had not ended.
    var isAbandoned = false
    /// Whether a held poll or a `TTL: 0` message needs the upstream. If so, an on-demand session connects.
    var isConnectionRequested = false
    /// The number of clients that wait until their messages are written.
    var writeWaiters = 0
    /// The number of clients that wait until their messages are confirmed.
    var confirmationWaiters = 0
    var calls = CallTable()
    /// The memory that `lateCalls` has counted for the late calls of this session (`LateCallTotal`).
    var lateMemory = 0
    /// The notifiers that wake the clients of calls. The notifier of a call has the index `lane % callNotifierLimit`,
    /// where `lane` is a number that the table of calls has given to the call.
    var callNotifiers: [Notifier] = []
    /// How a reply is assigned to its call, in the latest settings.
    var correlation: Correlation?
    /// The state of the upstream's events; nil unless pushes are events.
    var events: EventState?
    /// How clients write events, in the latest settings; nil unless pushes are events.
    var eventFormat: (any EventFormat)?
    /// Whether pings confirm messages, in the latest settings.
    var confirms: Bool
    /// The captured values that clients may see; nil if no such value is configured.
    var captures: [ShownCapture]?
    /// Whether the session is shutting down. It then ends after its last call.
    var isShuttingDown = false
    /// Called when the shutdown is complete.
    var whenEnded: (@Sendable () -> Void)?
    /// The intents (to write messages) that are submitted and not stored yet, in order. Empty without a store.
    var intents = RingDeque(filler: StoredIntent(through: 0, ticket: JournalTicket(0)))
    /// The messages that were accepted last, with their tickets: at least all messages that are not stored yet.
    var acceptances = RingDeque(
      filler: StoredAcceptance(numbers: 0...0, ticket: JournalTicket(0), displacesOthers: false))
    /// The sent messages whose confirmations are withheld until their changes are stored, in the order of the tickets.
    /// The list has at most as many messages as the ledger remembers.
    var withheldConfirmations = RingDeque(filler: WithheldConfirmation(sequence: 0, ticket: JournalTicket(0)))
    /// The number of clients that wait until their messages are stored.
    var storeWaiters = 0
    /// Whether reading from a connection is paused because too many changes wait to be stored.
    var isReadingPaused = false
    /// Whether acknowledgements for the upstream wait until their events are stored.
    var hasDelayedAcknowledgements = false

    /// A sum of counters. It changes when deliveries may have reached states that a client waits for.
    var deliveryNews: UInt64 {
      writeWaiters == 0
        ? outbox.ledger.completions : outbox.ledger.completions &+ outbox.ledger.total(.written)
    }
  }

  let guarded: Locked<Guarded>
  /// Notified when deliveries may have reached final states, or states that a client waits for.
  package let deliveryNotifier = Notifier()
  /// Number of changes of the state and of the desired state.
  private let stateChanges = Atomic<UInt64>(0)
  /// Whether a message of the upstream may be the reply to a call. Written under the lock.
  let mayHaveReplies = Atomic(false)
  /// Whether pushes and messages are events.
  package let hasEvents: Bool
  /// Whether the upstream may restore the state of the last connection on a new connection.
  let restoresState: Bool
  /// Whether the session connects only on demand.
  let isOnDemand: Atomic<Bool>
  let settings: PreparedSettings
  let sink: any UpstreamSink
  let logger: Logger
  let metrics: UpstreamMetrics
  let attemptLimiter: ConcurrentAttemptLimiter
  /// The journal of the session; nil if the session is not stored.
  let journal: (any SessionJournal)?
  /// The clock by which stored idempotency keys expire; nil if the session is not stored.
  package let keyClock: KeyClock?
  /// The permission to write to the upstream; nil if the session may always write.
  let permission: WritePermission?
  /// Whether the session opens when it starts. False if an operator has closed the session while it had another holder.
  private let opensAtStart: Bool
  /// The data from which the next connection resumes.
  let resumed: ResumedProtocol
  /// The client that has created the session; nil for a configured session. Connection attempts and name lookups for
  /// one client wait only for attempts and lookups for the same client.
  private let owner: String?
  /// Limits the late calls of created sessions; nil for a configured session.
  let lateCalls: LateCallShare?
  /// Limits the log lines of created sessions; nil for a configured session.
  let lineLimiter: LogLineLimiter?

  private init(
    _ settings: PreparedSettings, sink: any UpstreamSink, logger: Logger, metrics: UpstreamMetrics,
    attemptLimiter: ConcurrentAttemptLimiter, owner: String?, lineLimiter: LogLineLimiter?,
    opened: OpenedJournal? = nil,
    permission: WritePermission? = nil, lateCalls: LateCallTotal? = nil
  ) {
    self.lateCalls = owner.flatMap { owner in lateCalls.map { LateCallShare(of: $0, for: owner) } }
    self.attemptLimiter = attemptLimiter
    self.permission = permission
    journal = opened?.journal
    keyClock = opened.map { KeyClock($0.restored.keys, at: .present) }
    opensAtStart = opened?.restored.isOpenDesired ?? true
    resumed = ResumedProtocol(opened?.restored, settings)
    self.owner = owner
    self.lineLimiter = lineLimiter
    self.settings = settings
    isOnDemand = Atomic(settings.value.session.onDemand)
    hasEvents = settings.capabilities.contains(.events)
    restoresState = settings.capabilities.contains(.continuations)
    self.sink = sink
    self.logger = logger
    self.metrics = metrics
    let status = SessionStatus(
      url: settings.value.urls.first?.redacted ?? "", at: ProcessInformation.monotonicTime())
    guarded = Locked(
      Guarded(
        outbox: Outbox(settings.value.outbox), status: status, correlation: settings.value.conventions.correlation,
        events: hasEvents ? EventState() : nil,
        eventFormat: settings.declaration?.eventFormat, confirms: settings.value.outbox.confirms,
        captures: Self.shownCaptures(settings.value.conventions)))
    if let opened { restore(opened.restored, settings.kind, in: opened.journal) }
  }

  deinit { guarded.withLock { lateCalls?.count(0, &$0.lateMemory) } }

  package convenience init(
    _ settings: UpstreamSettings, sink: any UpstreamSink, logger: Logger, metrics: UpstreamMetrics,
    attemptLimiter: ConcurrentAttemptLimiter = ConcurrentAttemptLimiter()
  ) throws(TLSSettingsError) {
    self.init(
      try PreparedSettings(settings), sink: sink, logger: logger, metrics: metrics, attemptLimiter: attemptLimiter,
      owner: nil,
      lineLimiter: nil)
  }

  /// A session that registers its own metrics.
  package convenience init(
    _ settings: UpstreamSettings, named name: String = "default", sink: any UpstreamSink, logger: Logger,
    metrics: MetricsRegistry, attemptLimiter: ConcurrentAttemptLimiter = ConcurrentAttemptLimiter()
  ) throws(TLSSettingsError) {
    self.init(
      try PreparedSettings(settings), named: name, sink: sink, logger: logger, metrics: metrics,
      attemptLimiter: attemptLimiter)
  }

  /// - Parameters:
  ///   - name: the value of the metrics label `session`.
  ///   - opened: the journal of the session; nil if the session is not stored.
  package convenience init(
    _ settings: PreparedSettings, named name: String, sink: any UpstreamSink, logger: Logger, metrics: MetricsRegistry,
    attemptLimiter: ConcurrentAttemptLimiter, opened: OpenedJournal? = nil
  ) {
    let own = UpstreamMetrics(metrics, session: name)
    self.init(
      settings, sink: sink, logger: logger, metrics: own, attemptLimiter: attemptLimiter, owner: nil, lineLimiter: nil,
      opened: opened)
    own.registerMetrics(of: self, in: metrics)
  }

  /// A created session. The caller registers its metrics, which all created sessions use together.
  package convenience init(
    _ settings: PreparedSettings, ownedBy owner: String, sink: any UpstreamSink, logger: Logger,
    sharedMetrics: UpstreamMetrics, attemptLimiter: ConcurrentAttemptLimiter, lineLimiter: LogLineLimiter,
    lateCalls: LateCallTotal? = nil
  ) {
    self.init(
      settings, sink: sink, logger: logger, metrics: sharedMetrics, attemptLimiter: attemptLimiter, owner: owner,
      lineLimiter: lineLimiter, lateCalls: lateCalls)
  }

  /// One of several handles of a session, which replace each other. The owner of the handles registers the metrics,
  /// which all these handles use.
  ///
  /// - Parameters:
  ///   - opened: the journal; nil if the holder is another gateway, in which case the handle is never started and
  ///     accepts no messages.
  ///   - permission: the permission of this handle to write to the upstream. It ends with `abort()`.
  package convenience init(
    _ settings: PreparedSettings, sink: any UpstreamSink, logger: Logger, sharedMetrics: UpstreamMetrics,
    attemptLimiter: ConcurrentAttemptLimiter, ownedBy owner: String? = nil, lineLimiter: LogLineLimiter? = nil,
    opened: OpenedJournal?, permission: WritePermission? = nil, lateCalls: LateCallTotal? = nil
  ) {
    self.init(
      settings, sink: sink, logger: logger, metrics: sharedMetrics, attemptLimiter: attemptLimiter, owner: owner,
      lineLimiter: lineLimiter, opened: opened, permission: permission, lateCalls: lateCalls)
    guard opened == nil else { return }
    guarded.withLock { guarded in
      guarded.outbox.close()
      guarded.hasEnded = true
    }
  }

  /// Starts the session on its loop. The session connects, unless an operator has closed it. A session that connects on
  /// demand is idle until it is needed.
  ///
  /// - Parameter resolver: used by many sessions, since each resolver has threads of its own.
  package func start(on loop: EventLoop, resolver: Resolver) {
    start(on: loop) { [owner] in NetworkDialer(resolver: resolver, owner: owner ?? "", loop: $0) }
  }

  /// The key by which `attemptLimiter` limits the session's attempts to a server.
  func attemptKey(of server: String) -> String { owner.map { "\(server) \($0)" } ?? server }

  /// - Parameter makeDialer: creates the dialer of the session's transports, on `loop`.
  func start(on loop: EventLoop, makeDialer: @escaping @Sendable (LoopContext) -> any Dialer) {
    SessionDriver.start(self, on: loop, makeDialer: makeDialer)
    if opensAtStart { send(.start, .up) }
  }

  /// Changes the guarded state, and notifies the waiters of `deliveryNotifier` if deliveries have reached the states
  /// they wait for.
  ///
  /// - Parameter now: recorded as the time of these changes.
  @inline(__always)
  func update<Result>(
    at now: MonotonicTime = ProcessInformation.monotonicTime(), _ body: (inout Guarded) -> Result
  ) -> Result {
    let (result, hasNews, callers) = guarded.withLock { guarded in
      guarded.outbox.clock = now
      let before = guarded.deliveryNews
      let result = body(&guarded)
      if let journal { guarded.submitChanges(to: journal) }
      let callers = guarded.hasEndedCalls ? guarded.endCallsOfEndedMessages() : []
      return (result, guarded.deliveryNews != before, callers)
    }
    if hasNews { deliveryNotifier.notify() }
    for caller in callers { caller.notify() }
    return result
  }

  // MARK: Messages

  /// Whether the session connects only when there are messages to send, or readers.
  package var connectsOnDemand: Bool { isOnDemand.load(ordering: .relaxed) }

  /// A client waits for pushes, so an on-demand session connects and stays connected.
  package func noteReader() {
    guard isOnDemand.load(ordering: .relaxed) else { return }
    guarded.withLock { $0.requestConnection() }?.notify()
  }

  /// The state of a message; nil if the message never existed or is forgotten.
  package func deliveryState(_ sequence: UInt64) -> DeliveryState? {
    guarded.withLock { $0.outbox.ledger.state(of: sequence) }
  }

  /// The state of a message with its reason and time; nil if the message never existed or is forgotten.
  package func deliveryRecord(_ sequence: UInt64, now: MonotonicTime) -> DeliveryRecord? {
    guarded.withLock { $0.outbox.ledger.record(of: sequence, now: now) }
  }

  /// Like `deliveryRecord`, for `count` messages with consecutive numbers.
  package func deliveryRecords(from first: UInt64, count: Int, now: MonotonicTime) -> [DeliveryRecord?] {
    guarded.withLock { guarded in (0..<UInt64(count)).map { guarded.outbox.ledger.record(of: first + $0, now: now) } }
  }

  /// Whether the state of a message is final, or the message is forgotten.
  package func isSettled(_ sequence: UInt64) -> Bool { readDeliveries { $0.isSettled(sequence) } }

  /// Calls `body` with the states of all deliveries, under the lock. A reader of many messages takes the lock only
  /// once.
  package func readDeliveries<Result: Sendable>(_ body: (borrowing DeliveryLedger) -> Result) -> Result {
    guarded.withLock { body($0.outbox.ledger) }
  }

  /// From now on, `deliveryNotifier` also notifies when messages are written, until `endWaitingForWrites()` is called.
  package func beginWaitingForWrites() { guarded.withLock { $0.writeWaiters += 1 } }

  package func endWaitingForWrites() { guarded.withLock { $0.writeWaiters -= 1 } }

  /// From now on, every write is followed by a ping at once, until `endWaitingForConfirmations()` is called. So a
  /// client that waits for a confirmation gets it after one round trip.
  package func beginWaitingForConfirmations() {
    let signal = guarded.withLock { guarded in
      guarded.confirmationWaiters += 1
      return guarded.signal
    }
    // A ping must also follow the messages that were written before this call.
    signal?.notify()
  }

  package func endWaitingForConfirmations() { guarded.withLock { $0.confirmationWaiters -= 1 } }

  /// Number of latest messages for which `deliveryState` returns a state.
  package var rememberedDeliveries: Int { guarded.withLock { $0.outbox.ledger.limit } }

  /// Whether a connection sends messages, even if it accepts none at the moment.
  package var isReady: Bool { guarded.withLock { $0.outbox.hasSendingConnection } }

  /// Whether the gateway is ready for clients: the session is ready, or connects on demand and its last attempt did not
  /// fail.
  package var isAvailable: Bool {
    let isOnDemand = isOnDemand.load(ordering: .relaxed)
    return guarded.withLock { $0.isAvailable(isOnDemand: isOnDemand) }
  }

  /// Incremented after every transition and every change of the desired state. Both this counter and the flag of a
  /// waiter are sequentially consistent. So either the waiter sees the change, or the notification sees the waiter.
  package var stateRevision: UInt64 { stateChanges.load(ordering: .sequentiallyConsistent) }

  package func noteStateChange() {
    stateChanges.add(1, ordering: .sequentiallyConsistent)
    sink.stateChanged()
  }

  package func snapshot() -> SessionSnapshot {
    guarded.withLock { guarded in
      SessionSnapshot(
        status: guarded.status, queuedMessages: guarded.outbox.messages, queuedBytes: guarded.outbox.bytes,
        unconfirmedMessages: guarded.outbox.unconfirmed, redeliveries: guarded.outbox.ledger.redeliveries,
        ledger: DeliveryState.allCases.map { ($0, guarded.outbox.ledger.total($0)) })
    }
  }

  /// Only the numbers of the snapshot. They are cheap to read, even for many sessions.
  package func counts() -> SessionCounts {
    let isOnDemand = isOnDemand.load(ordering: .relaxed)
    return guarded.withLock { guarded in
      var counts = SessionCounts()
      counts.ready = guarded.outbox.hasSendingConnection ? 1 : 0
      counts.available = guarded.isAvailable(isOnDemand: isOnDemand) ? 1 : 0
      counts.desired = guarded.status.desired == .up ? 1 : 0
      counts.queuedMessages = guarded.outbox.messages
      counts.queuedBytes = guarded.outbox.bytes
      counts.unconfirmed = guarded.outbox.unconfirmed
      counts.calls = guarded.calls.count
      counts.redeliveries = guarded.outbox.ledger.redeliveries
      counts.roundTrip = counts.ready > 0 ? guarded.status.roundTrip : nil
      for (index, state) in DeliveryState.allCases.enumerated() {
        counts.messages[index] = guarded.outbox.ledger.total(state)
      }
      return counts
    }
  }

  /// Whether messages are queued or being sent, or clients wait for replies.
  package var hasWork: Bool {
    guarded.withLock { !$0.outbox.isEmpty || $0.outbox.unconfirmed > 0 || $0.calls.count > 0 }
  }

  /// Number of messages that have entered `state`.
  func total(_ state: DeliveryState) -> UInt64 { guarded.withLock { $0.outbox.ledger.total(state) } }

  // MARK: Commands

  /// Connects the session, even if it is idle because it connects on demand.
  ///
  /// Returns the ticket of the desired state; nil if the state need not be stored. A client may rely on the state only
  /// when it is stored.
  @discardableResult
  package func open() -> JournalTicket? {
    defer { send(.open, .up) }
    return storeDesired(isOpen: true)
  }

  /// Closes the session. Queued messages wait for the next `open()`, or expire.
  @discardableResult
  package func close(code: UInt16 = 1000) -> JournalTicket? {
    defer { send(.close(code: code), .down) }
    return storeDesired(isOpen: false)
  }

  /// Stores the desired state of a shared session for its next holder. Other sessions need no stored state: their
  /// gateway opens them when it starts.
  private func storeDesired(isOpen: Bool) -> JournalTicket? {
    permission == nil ? nil : journal?.submit(.desired(isOpen: isOpen))
  }

  /// Shuts the session down, since the process ends. Queued messages are sent for at most `flushWithin`. After that,
  /// the connection is closed with 1001, 'going away', or with the configured code (`SessionSettings.closeCode`).
  /// `hasEnded` becomes true when the shutdown is complete.
  ///
  /// - Parameter end: called at the end, on the session's loop.
  package func close(flushWithin: TimeSpan, whenEnded end: (@Sendable () -> Void)? = nil) {
    guarded.withLock { guarded in
      guarded.isShuttingDown = true
      guarded.whenEnded = end
    }
    send(.shutDown(flushWithin: flushWithin, code: nil))
  }

  /// Ends the session for good: refuses every post, gives queued messages their final states, and closes the connection
  /// with `code`.
  package func end(code: UInt16) {
    update { guarded in
      guarded.isShuttingDown = true
      guarded.outbox.close()
    }
    send(.shutDown(flushWithin: .zero, code: code), .down)
  }

  /// Ends the session at this gateway, since another gateway may connect to the upstream from now on. Refuses every
  /// post, and closes the connection at once, without a closing handshake. Stored messages keep their states, for the
  /// other gateway.
  ///
  /// - Parameter end: called on the session's loop when the connection is closed; nil keeps the function that was
  ///   passed to `close`.
  package func abort(whenEnded end: (@Sendable () -> Void)? = nil) {
    // The permission is revoked first, so that the loop of the session writes nothing more in its present turn.
    permission?.revoke()
    update { guarded in
      guarded.isShuttingDown = true
      guarded.whenEnded = end ?? guarded.whenEnded
      guarded.outbox.close()
    }
    send(.abort, .down)
  }

  /// Refuses every post from now on.
  package func refuseMessages() { update { $0.outbox.close() } }

  /// Called after the session's loop has ended. Gives a final state to all messages that have none.
  package func abandon() {
    update { guarded in
      guard !guarded.hasEnded else { return }
      guarded.isAbandoned = true
      guarded.outbox.stopSending()
      guarded.outbox.settle()
      guarded.outbox.close()
    }
    logLosses()
  }

  /// Logs how many messages were lost, or may have been lost, since the last call.
  func logLosses() {
    let (losses, status) = guarded.withLock { ($0.outbox.takeLosses(), $0.status) }
    guard !losses.isEmpty else { return }
    var fields: [LogField] = [
      .number("expired", Int(clamping: losses.expired)), .number("rejected", Int(clamping: losses.rejected)),
      .number("unknown", Int(clamping: losses.unknown)), .text("state", status.state.name),
    ]
    if let failure = status.lastFailure { fields.append(.text("last_failure", failure)) }
    logger.warning("messages were lost, or their delivery is unknown", fields)
  }

  /// Applies new settings: a new connection with these settings replaces the current connection. The connection is
  /// replaced even if the settings are equal, since they may refer to certificates and credentials that have changed.
  package func reconfigure(_ settings: PreparedSettings, because reason: ReplacementReason) {
    guarded.withLock { guarded in
      guarded.correlation = settings.value.conventions.correlation
      guarded.eventFormat = settings.declaration?.eventFormat
      guarded.confirms = settings.value.outbox.confirms
    }
    send(.reconfigure(settings, because: reason))
  }

  /// Applies new settings that differ from the current settings only in their topics. They take effect with the next
  /// push. The connection is not replaced.
  package func changeTopics(_ settings: PreparedSettings) { send(.changeTopics(settings)) }

  /// Whether the shutdown of the session is complete.
  package var hasEnded: Bool { guarded.withLock { $0.hasEnded } }

  /// Links, addresses or routes of this machine have changed.
  package func networkChanged(_ change: NetworkChange) { send(.networkChanged(change)) }

  private func send(_ command: Command, _ desired: DesiredState? = nil) {
    let (signal, isNews) = guarded.withLock { guarded in
      // The desired state is shown at once, before the session's loop has processed the command.
      let isNews = desired != nil && desired != guarded.status.figures.desired
      if let desired { guarded.status.figures.desired = desired }
      // After the end of the session, no loop processes its commands.
      if !guarded.hasEnded { guarded.commands.append(command) }
      return (guarded.signal, isNews)
    }
    signal?.notify()
    if isNews { noteStateChange() }
  }
}

extension SessionHandle.Guarded {
  fileprivate func isAvailable(isOnDemand: Bool) -> Bool {
    if outbox.hasSendingConnection { return true }
    return switch status.state {
    case .idle: true
    case .resolving, .connecting, .proxying, .securing, .upgrading, .settingUp, .closing:
      isOnDemand && status.desired == .up && status.failures == 0
    case .stopped, .offline, .backoff, .parked, .ready, .suspect, .replacing: false
    }
  }

  /// The time of the next connection attempt; nil while a connection sends.
  var nextAttempt: MonotonicTime? {
    guard let next = status.nextAttempt else { return nil }
    return outbox.hasSendingConnection ? nil : next
  }

  /// The signal that must be notified after a post with this result.
  mutating func signal(after result: EnqueueResult) -> Signal? {
    switch result {
    case .queued(sequence: _, wakes: true): signal
    case .notReady(.notConnected): requestConnection()
    case .queued, .notReady, .full, .closed, .notStored: nil
    }
  }

  /// Records that the upstream is needed. Returns the signal that wakes the driver; nil if the driver was already woken
  /// for this reason.
  fileprivate mutating func requestConnection() -> Signal? {
    guard !isConnectionRequested else { return nil }
    isConnectionRequested = true
    return signal
  }
}
