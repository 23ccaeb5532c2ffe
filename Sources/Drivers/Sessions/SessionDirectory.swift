import ByteStreams
import Inbox
import Logging
import Metrics
import Profiles
import Reactor
import Replication
import RouteNetlink
import Upstream
import WebSocketCodec

/// The directory's entry for one name.
package enum SessionEntry: Sendable {
  /// The entry has the same session object for as long as the session exists.
  case fixed(Session)
  /// Several gateways share the session. Its object changes whenever this gateway becomes the holder or is no longer
  /// the holder.
  case shared(SharedSlot)

  package var session: Session {
    switch self {
    case .fixed(let session): session
    case .shared(let slot): slot.session
    }
  }

  /// The name of the session, as clients know it.
  var name: String {
    switch self {
    case .fixed(let session): session.name
    case .shared(let slot): slot.name
    }
  }
}

/// The sessions of the process, by name: the configured sessions, and the created sessions. Thread-safe.
package final class SessionDirectory: Sendable {
  private let configured: [SessionEntry]
  /// The configured sessions in the order of the configuration, the default session first.
  package var all: [Session] { configured.map(\.session) }
  package let created: CreatedSessions
  package let profiles = ProfileBook()
  /// The default session; nil if the configuration has named sessions only.
  package var `default`: Session? { defaultSession?.session }
  private let defaultSession: SessionEntry?
  private let budget: RetentionBudget
  /// The configured sessions, with the bytes of each name.
  private let named: [(name: [UInt8], session: SessionEntry)]
  /// A hash table whose slots contain the position in `named`, or -1 if the slot is empty. The size of the table is a
  /// power of two, at most half of the slots are used, and collisions are resolved by linear probing.
  private let slots: [Int32]

  /// - Parameters:
  ///   - sessions: the configured sessions.
  ///   - limits: the limits on created sessions.
  ///   - registry: the registry for the metrics of created sessions.
  ///   - attemptLimiter: limits the connection attempts of created sessions. The configured sessions have another
  ///     limiter, so that no client delays their attempts.
  ///   - budget: the budget of the configured sessions. Created sessions use it, too.
  package convenience init(
    _ sessions: [Session], creating limits: CreatedSessions.Limits = CreatedSessions.Limits(), logger: Logger,
    registry: MetricsRegistry, attemptLimiter: ConcurrentAttemptLimiter, budget: RetentionBudget = RetentionBudget()
  ) {
    self.init(
      configured: sessions.map { .fixed($0) }, creating: limits, logger: logger, registry: registry,
      attemptLimiter: attemptLimiter, budget: budget)
  }

  package init(
    configured sessions: [SessionEntry], creating limits: CreatedSessions.Limits = CreatedSessions.Limits(),
    logger: Logger,
    registry: MetricsRegistry, attemptLimiter: ConcurrentAttemptLimiter, budget: RetentionBudget = RetentionBudget()
  ) {
    configured = sessions
    self.budget = budget
    created = CreatedSessions(
      limits,
      CreatedSessions.Surroundings(logger: logger, attemptLimiter: attemptLimiter, budget: budget),
      registry: registry)
    named = sessions.map { (Array($0.session.name.utf8), $0) }
    defaultSession = sessions.first { $0.session.name == Session.defaultName }
    var size = 2
    while size < 2 * sessions.count { size *= 2 }
    let mask = size - 1
    var slots = [Int32](repeating: -1, count: size)
    for position in named.indices {
      let name = named[position].name
      var slot = Self.hash(of: name.span) & mask
      while slots[slot] >= 0 { slot = (slot + 1) & mask }
      slots[slot] = Int32(position)
    }
    self.slots = slots
  }

  /// The settings of a session that is never started.
  private static var standInSettings: PreparedSettings? {
    guard let url = try? WebSocketURL("ws://localhost/") else { return nil }
    return try? PreparedSettings(UpstreamSettings(urls: [url]))
  }

  /// Returns the session with this name, or nil. Every request to a named session calls this function, so it takes no
  /// lock for a configured session.
  package func find(_ name: Span<UInt8>) -> Session? {
    let mask = slots.count - 1
    var slot = Self.hash(of: name) & mask
    while true {
      let position = slots[slot]
      guard position >= 0 else { return created.find(name) }
      let entry = named[Int(position)]
      if name.equals(entry.name.span) { return entry.session.session }
      slot = (slot + 1) & mask
    }
  }

  package func find(_ name: String) -> Session? {
    let name = Array(name.utf8)
    return find(name.span)
  }

  /// A client has created the session at this or another gateway. Returns nil if this gateway cannot serve the session.
  func add(_ name: String, _ definition: SessionDefinition) -> SharedSlot? {
    guard !named.contains(where: { $0.name.elementsEqual(name.utf8) }), let standIn = Self.standInSettings else {
      created.log(
        "a session that a client has created at another gateway has the name of a configured session",
        [.text("session", name)])
      return nil
    }
    let plan = profiles.plan(of: definition)
    if plan == nil {
      created.log(
        "this gateway cannot be the holder of a session that a client has created, since its profile is missing or does not allow its variables",
        [.text("session", name), .text("profile", definition.profile)])
    }
    return created.add(
      name, definition, plan?.settings, orElse: standIn, retention: plan?.retention ?? Retention())
  }

  /// Whether the session is configured, and not created by a client.
  package func isConfigured(_ session: Session) -> Bool { session.creation == nil }

  /// FNV-1a, without a secret key. A client can choose the slot at which its lookup begins, but cannot make the
  /// lookup slow: the operator chooses the names in the table, and a lookup ends at the first empty slot.
  private static func hash(of name: Span<UInt8>) -> Int {
    Int(truncatingIfNeeded: name.fnv1aHash())
  }

  // MARK: Life cycle

  /// Starts the configured sessions, and distributes them over the loops in turn. A created session will be started on
  /// the loop with the fewest sessions.
  package func start(on loops: [EventLoop]) {
    let resolver = Resolver()
    // The webhooks have their own resolver, so that a slow name server of a receiver delays no session.
    let webhookResolver = Resolver()
    var loads = [Int](repeating: 0, count: loops.count)
    for (index, session) in configured.enumerated() {
      let loop = loops[index % loops.count]
      switch session {
      case .fixed(let session):
        session.start(on: loop, resolver: resolver)
        session.webhooks?.start(on: loop, resolver: webhookResolver)
      case .shared(let slot): slot.start(on: loop, resolver: resolver, webhookResolver: webhookResolver)
      }
      loads[index % loops.count] += 1
    }
    // Clients may choose hosts whose name servers hang. So created sessions have their own resolver, and configured
    // sessions never wait for these lookups. The lookups of one owner use at most half of the threads.
    created.start(on: loops, resolver: Resolver(threadsPerOwner: Resolver.threadCount / 2), loads: loads)
    loops[0].submit { [self] context in
      budget.setTrimmer(context.makeSignal(for: RetentionTrimmer(self)))
      return nil
    }
  }

  private var everySession: [Session] { all + created.all }

  /// Reports a change of links, addresses or routes of this machine.
  package func networkChanged(_ change: NetworkChange) {
    for session in everySession { session.upstream.networkChanged(change) }
  }

  /// Applies the reloaded settings of a configured session. Ignores a name that no configured session has.
  package func reload(_ name: String, _ change: SessionReload) {
    switch configured.first(where: { $0.name == name }) {
    case .fixed(let session): session.reload(change)
    case .shared(let slot): slot.reload(change)
    case nil: break
    }
  }

  /// Ends the webhooks. Requests in progress continue. `webhooksAreIdle` becomes true when all these requests have
  /// ended.
  ///
  /// - Parameter end: called each time that the webhooks of a session have ended, on the session's loop.
  package func stopWebhooks(whenEnded end: @escaping @Sendable () -> Void) {
    for session in configured {
      switch session {
      case .fixed(let session): session.webhooks?.stop(whenIdle: end)
      case .shared(let slot): slot.stopWebhooks(whenIdle: end)
      }
    }
  }

  /// Whether no webhook has a request in progress, and none will begin. Valid after `stopWebhooks`.
  package var webhooksAreIdle: Bool { all.allSatisfy { $0.webhooks?.isIdle ?? true } }

  /// Shuts every session down: sends queued messages for up to `limit`, then closes the connection with 1001.
  /// `haveEnded` becomes true when all sessions have ended.
  ///
  /// - Parameter end: called each time that a session has ended, on the session's loop.
  package func shutDown(flushWithin limit: TimeSpan, whenEnded end: @escaping @Sendable () -> Void) {
    created.stop()
    // `everySession` includes closed sessions whose connections have not ended yet.
    for session in everySession { session.shutDown(flushWithin: limit, whenEnded: end) }
  }

  package var haveEnded: Bool { everySession.allSatisfy { $0.upstream.hasEnded } }
  /// Number of sessions that have not ended.
  package var endingCount: Int { everySession.count { !$0.upstream.hasEnded } }

  /// Refuses every message from now on.
  package func refuseMessages() {
    for session in everySession { session.upstream.refuseMessages() }
  }

  /// Ends the sessions that have not ended yet. Their connections close without a closing handshake, and no more bytes
  /// are written to them.
  ///
  /// - Parameter end: called each time that a session has ended, on the session's loop.
  package func abort(whenEnded end: @escaping @Sendable () -> Void) {
    for session in everySession where !session.upstream.hasEnded { session.abort(whenEnded: end) }
  }

  /// Gives a final state to every message that has none. Called after all sessions or all loops have ended.
  package func abandon() {
    for session in everySession { session.upstream.abandon() }
  }

  /// The number of pending calls of all sessions.
  package var callCount: Int { everySession.reduce(0) { $0 + $1.upstream.callCount } }

  /// Sums over all sessions, for the status page.
  package var sums: SessionSums {
    var figures = created.figures
    for session in all { figures += SessionFigures(session) }
    return SessionSums(figures)
  }

  // MARK: Retention

  /// Drops the oldest pushes and dead letters of the largest sessions, until the pushes and dead letters of all
  /// sessions fit into `delivery.total_bytes`. A configured session keeps its newest push, since the operator decides
  /// how many configured sessions there are. A created session may lose all its pushes, since clients decide how many
  /// created sessions there are.
  fileprivate func trim() {
    budget.trimBegins()
    defer { budget.trimEnds() }
    guard budget.bytes > budget.limit else { return }
    let sessions = everySession
    let dead = sessions.map(\.consumers.deadBytes)
    let sizes = zip(sessions, dead).map { $0.inbox.summary.bytes + $1 }
    guard let level = RetentionBudget.level(of: sizes, limit: budget.limit) else { return }
    for (index, session) in sessions.enumerated() where sizes[index] > level {
      // Pushes are dropped before dead letters, since an operator may still have to look at the dead letters.
      let bytes = max(0, level - dead[index])
      if session.inbox.trim(toBytes: bytes, keepsNewest: session.creation == nil) { session.consumers.pushed() }
      session.consumers.trimDeadLetters(toBytes: level)
    }
  }
}

/// Trims the inboxes on one loop when an append on any loop exceeds the limit.
private final class RetentionTrimmer: SignalTarget {
  private unowned let directory: SessionDirectory

  init(_ directory: SessionDirectory) { self.directory = directory }

  func signalled() { directory.trim() }
}
