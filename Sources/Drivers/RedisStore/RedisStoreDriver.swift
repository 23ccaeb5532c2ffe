import ByteStreams
import Dialing
import Host
import Journal
import Logging
import Reactor
import Replication
import Submissions

/// Executes the decisions of the machines of `Replication`, for all sessions of a gateway, on one event loop.
///
/// All ready commands of the journals are sent in one flight. The next flight is sent when they are confirmed. So a
/// burst of entries needs one append per session, and one WAIT for all sessions.
final class RedisStoreDriver {
  /// How long Redis may fail before messages are refused. A failover takes 2 to 3 s. With the default `store.lease`,
  /// this gateway may act as a holder for at least 3.5 s after Redis has begun to fail.
  private static var patience: TimeSpan { .seconds(3) }
  /// Time between two log lines about refused commands. A full Redis refuses several each second.
  private static var refusalInterval: TimeSpan { .seconds(30) }

  let settings: RedisStoreSettings
  let store: RedisStore
  private(set) weak var delegate: (any RedisStoreDelegate)?
  let loop: LoopContext
  let logger: Logger
  let metrics: RedisStoreMetrics
  let dialer: any Dialer
  private let makeLog: LogMaker
  private(set) lazy var sharedLog = makeLog(self, loop, dialer, metrics)

  var heartbeat: Heartbeat
  var watch: HistoryWatch
  var conditions = StoreConditions()
  /// The reasons of failed connection attempts since the last connection. Each is logged as a warning only once.
  private var notedFailures: Set<String> = []

  var secret: PeerSecret
  /// The checks whether the other gateways can be reached at their addresses.
  var peers = PeerChecks()
  /// The hosts of this gateway's upstreams, as stored in Redis; nil if Redis may lack them.
  var storedHosts: UpstreamHosts?
  /// The hosts of gateways with other settings, and the digest of those settings when the hosts were read.
  var readHosts: [GatewayID: (configuration: String, hosts: UpstreamHosts)] = [:]
  /// The holders of the remote sessions as reported to the delegate, and the addresses of all gateways.
  var places = SessionPlaces()

  /// The role of this gateway for each session, by the session's name in the store.
  private(set) var sessions: [String: SessionRole] = [:]
  /// Sessions that are being acquired and read. The entries of a session are in memory until all of them are read.
  var loads: LimitedTurns
  /// Sessions whose whole state is being written. During that time, the encoded state is in memory.
  var replacements: LimitedTurns
  /// The number of sessions that the present flight acquires.
  var acquiring = 0
  /// The number of sessions that are being read.
  var loadingCount = 0
  /// The number of created sessions whose holder is this gateway.
  var createdLocal = 0
  /// The sessions whose holder is this gateway, by the numbers of their journals in the queue.
  var journals: [Int32: LocalSession] = [:]
  private var lastIndex: Int32 = 0
  /// How many times this gateway has begun to follow a session.
  var followings: UInt64 = 0
  /// The list of created sessions, and this gateway's changes of it.
  var definitions: DefinitionList
  var changes: [(change: DefinitionChange, isSent: Bool)] = []
  /// Lookups that were sent and have no outcome yet.
  var sentLookups: [Lookup] = []
  /// Lookups that were not sent yet.
  var lookups: [Lookup] = []
  /// Sessions that Redis has lost and whose holder is this gateway. They are defined again.
  var missing = PendingSessions()
  /// Removed sessions that a failover has restored. They are removed again.
  var returned = PendingSessions()
  /// Creations whose clients wait until this gateway is the holder, by the sessions' names in the store.
  var created: [String: (request: DefinitionRequest, end: MonotonicTime)] = [:]
  /// Sessions that may have work to do.
  private var pending = PendingSessions()

  private let batch = SubmissionBatch()
  /// Whether the pending notes are due to be written.
  var areNotesDue = false
  private var flight: LogFlight?
  private var refusals = StoreRefusals()
  private var departure = MonotonicTime.zero
  private var nextRefusalLine = MonotonicTime.zero
  private var closing: [@Sendable () -> Void] = []
  /// Whether this gateway acquires no further session (`isDraining`), and whether it releases all sessions
  /// (`isClosing`).
  private(set) var isDraining = false
  private(set) var isClosing = false
  private var timers: [Timer: LoopTimer] = [:]

  enum Timer: Int {
    case heartbeat
    case deadline
    case notes
    case patience
  }

  init(
    _ settings: RedisStoreSettings, _ store: RedisStore, _ delegate: (any RedisStoreDelegate)?, dialer: any Dialer,
    loop: LoopContext, logger: Logger, metrics: RedisStoreMetrics, makeLog: @escaping LogMaker
  ) {
    self.makeLog = makeLog
    self.settings = settings
    self.store = store
    self.delegate = delegate
    self.dialer = dialer
    self.loop = loop
    self.logger = logger
    self.metrics = metrics
    loads = LimitedTurns(limit: settings.concurrentLoads)
    replacements = LimitedTurns(limit: settings.concurrentReplacements)
    definitions = DefinitionList(patience: settings.times.lease + .seconds(1))
    heartbeat = Heartbeat(settings.times)
    watch = HistoryWatch(own: store.gateway, settings.times)
    secret = PeerSecret(using: &loop.entropy)
  }

  func start() {
    loop.userObject = self
    sharedLog.start()
    turn()
  }

  /// The time on a clock that runs while the machine is suspended.
  var now: MonotonicTime { ProcessInformation.bootTime() }

  func nextIndex() -> Int32 {
    lastIndex += 1
    return lastIndex
  }

  // MARK: Turn

  /// Notes that this session may have work to do.
  func note(_ name: String) { pending.insert(name) }

  func noteAll() { pending.insert(sessions.keys) }

  /// Sends all commands that are ready, unless the outcome of a flight is pending. In this case the next turn begins
  /// when the outcome is known.
  func turn() {
    checkDeadline()
    while flight == nil {
      let hasTaken = take()
      if sharedLog.isUp {
        let flight = LogFlight(replicas: settings.waitReplicas)
        decide(flight)
        if !flight.isEmpty {
          self.flight = flight
          departure = loop.now
          let isSent = flight.depart(over: sharedLog, on: .journals) { [unowned self] in landed($0) }
          if !isSent { return sharedLog.reset("not all commands could be sent") }
        }
      }
      guard hasTaken else { break }
    }
    finishClosing()
  }

  /// Takes submitted entries and commands. Returns false if there are none.
  private func take() -> Bool {
    let next = store.submissions.take(into: batch, isDue: areNotesDue, attentiveUntil: .zero, now: loop.now)
    areNotesDue = false
    guard !batch.isEmpty else {
      if next < .distantFuture, timers[.notes] == nil { setTimer(.notes, at: next) }
      return false
    }
    var ticket = batch.last - UInt64(batch.items.count)
    var dropped = 0
    for item in batch.items {
      ticket += 1
      if let session = journals[item.session], session.take(item, ticket) {
        note(session.name)
      } else {
        dropped += item.entry.cost
      }
    }
    for case let command as RedisStore.Command in batch.commands { perform(command) }
    batch.clear()
    release(dropped)
    return true
  }

  private func decide(_ flight: LogFlight) {
    acquiring = 0
    decideDefinitions(flight)
    pending.insert(loads.next())
    pending.insert(replacements.next())
    // Sessions that are noted during this loop are served by the next flight.
    for _ in 0..<pending.count {
      guard !flight.isFull, let name = pending.takeFirst() else { return }
      guard let entry = sessions[name] else { continue }
      if let session = entry.local {
        decide(session, flight)
      } else if let acquisition = entry.unwanted {
        release(acquisition, of: name, flight)
      } else {
        decideCandidate(name, entry, flight)
      }
      readFollowed(name, entry, flight)
    }
  }

  private func landed(_ flight: LogFlight) {
    guard self.flight === flight else { return }
    self.flight = nil
    metrics.noteWrite(loop.now - departure, isConfirmed: flight.isConfirmed)
    if let refusal = flight.firstRefusal, loop.now >= nextRefusalLine {
      nextRefusalLine = loop.now + Self.refusalInterval
      logger.warning("Redis has refused a command of the store", [.text("reason", refusal.reason)])
    }
    noteOutcome(of: flight)
    flight.report()
    turn()
  }

  /// Call this before the results of the flight are reported: a session is used as soon as it is reported, and would
  /// refuse messages if the store still counted as failed.
  func noteOutcome(of flight: LogFlight) {
    guard let refusal = flight.refusal else {
      refusals.succeeded(hasEntries: flight.hasEntries)
      // Redis works, so the time since the loss of the connection no longer counts.
      cancelTimer(.patience)
      if refusals.hasEnded(by: loop.now) { setFailure(nil) }
      return
    }
    if refusals.refused(refusal, at: loop.now) { setFailure(refusal.reason, refusal.cause) }
  }

  // MARK: Commands

  private func perform(_ command: RedisStore.Command) {
    switch command {
    // The session was removed while the command waited. If the command were performed, nothing would ever remove the
    // entry that it creates.
    case .join(let name, _) where isRemoved(name), .follow(let name, _, _) where isRemoved(name): break
    case .join(let name, let mayAcquire):
      sessions[name]?.local?.isLeaving = false
      guard !isClosing else { return }
      let entry = entry(of: name)
      switch entry.phase {
      case .local, .damaged: return
      case .none:
        entry.phase = .candidate(Candidate(session: name))
        subscribe(name)
      case .candidate, .loading: break
      }
      entry.candidate?.mayAcquire = mayAcquire
      note(name)
    case .release(let name):
      guard let entry = sessions[name] else { return }
      stopLoading(name, entry)
      if let session = entry.local {
        session.isLeaving = true
        releaseSoon(session)
      } else {
        endTenure(of: name, entry)
        forgetIfUnused(name)
      }
    case .follow(let name, let refresh, let hasReaders): follow(name, refresh: refresh, hasReaders: hasReaders)
    case .unfollow(let name): unfollow(name)
    case .change(let change): self.change(change)
    case .lookUp(let name, let request): lookUp(name, request)
    case .drain:
      isDraining = true
      for (name, entry) in sessions { stopAcquiring(name, entry) }
      for session in journals.values where !session.isReported { releaseSoon(session) }
      // The heartbeat is sent before any session is released, so that no gateway names this gateway as a successor.
      heartbeat.hasten()
      sendHeartbeat()
    case .close(let then):
      isDraining = true
      isClosing = true
      closing.append(then)
      for (name, entry) in sessions where entry.candidate != nil || entry.local != nil { perform(.release(name)) }
      for (change, isSent) in changes where !isSent { change.request?.finish(.failed) }
      changes.removeAll { !$0.isSent }
      endLookups()
    }
  }

  private func finishClosing() {
    guard isClosing, flight == nil, sessions.values.allSatisfy({ $0.local == nil && $0.unwanted == nil }) else {
      return
    }
    let closing = closing
    self.closing = []
    guard !closing.isEmpty else { return }
    for (change, _) in changes { change.request?.finish(.failed) }
    changes = []
    // The sessions are defined. Another gateway will be their holder.
    for name in Array(created.keys) { finishCreation(of: name) }
    sharedLog.close()
    for timer in timers.values { loop.cancel(timer) }
    timers = [:]
    for then in closing { then() }
  }

  // MARK: Sessions

  /// Returns the entry of a session. Creates it if there is none.
  func entry(of name: String) -> SessionRole {
    if let entry = sessions[name] { return entry }
    let entry = SessionRole()
    sessions[name] = entry
    return entry
  }

  /// Removes the entry of a session that no longer concerns this gateway.
  func forgetIfUnused(_ name: String) {
    guard let entry = sessions[name], !entry.isSubscribed else { return }
    if entry.isEmpty { sessions[name] = nil }
    places.forget(name)
    sharedLog.unsubscribe(from: [.session(name)])
  }

  func subscribe(_ name: String) { sharedLog.subscribe(to: [.session(name)]) }

  /// Subtracts bytes from the pending bytes, because they are stored or will never be stored.
  func release(_ bytes: Int) {
    guard bytes > 0, store.submissions.release(bytes: bytes) else { return }
    for session in journals.values { session.journal.notify() }
  }

  // MARK: Connections

  func connected(to history: String) {
    guard watch.connected(to: history, now: now) else { return }
    metrics.noteHistory()
    disconnectAll()
  }

  /// Called when Redis may have lost the data that this gateway stores besides its sessions. The data is stored again.
  func forgetStored() {
    secret.connected()
    storedHosts = nil
  }

  /// Called when the outcome of all sent commands is unknown.
  func disconnectAll() {
    flight = nil
    disconnectDefinitions()
    loadingCount = 0
    loads.endAll()
    replacements.endAll()
    for (name, entry) in sessions {
      _ = entry.endLoading()
      entry.candidate?.disconnected()
      if let session = entry.local {
        session.tenure.disconnected()
        session.replacement = nil
        session.plannedState = nil
      }
      guard entry.followed != nil else { continue }
      entry.followed?.disconnected()
      delegate?.store(store, follows: name, .isOutdated)
    }
    noteAll()
  }

  // MARK: State

  private func setFailure(_ failure: String?, _ cause: StoreState.Cause = .unreachable) {
    let hasChanged = store.submissions.setFailed(failure != nil)
    guard hasChanged || failure != reportedFailure else { return }
    reportedFailure = failure
    store.report(failure, cause)
    if let failure, isNews(failure) || hasChanged {
      logger.error("the store does not work: messages are refused", [.text("reason", failure)])
    }
    guard hasChanged else { return }
    metrics.setFailed(failure != nil)
    if failure != nil {
      metrics.noteFailure()
    } else {
      logger.info("the store works")
    }
    for session in journals.values { session.journal.notify() }
  }

  private var lastFailure = "not connected"
  private var lastCause = StoreState.Cause.notTried
  private var reportedFailure: String?

  // MARK: Timers

  func setTimer(_ kind: Timer, at time: MonotonicTime) {
    cancelTimer(kind)
    timers[kind] = loop.schedule(at: time, self, token: kind.rawValue)
  }

  private func cancelTimer(_ kind: Timer) {
    if let timer = timers.removeValue(forKey: kind) { loop.cancel(timer) }
  }
}

extension RedisStoreDriver: TimerTarget {
  func timerFired(_ token: Int) {
    guard let kind = Timer(rawValue: token), timers.removeValue(forKey: kind) != nil else { return }
    switch kind {
    case .heartbeat: sendHeartbeat()
    case .deadline:
      turn()
      setDeadlineTimer()
    case .notes:
      areNotesDue = true
      turn()
    case .patience:
      // While commands are refused, `StoreRefusals` decides when the store counts as failed, with its own time limit
      // and a more specific reason. The refusals may have ended with the connection, so this is checked again later.
      if refusals.hasEnded(by: loop.now) {
        setFailure(lastFailure, lastCause)
      } else {
        setTimer(.patience, at: loop.now + Self.patience)
      }
    }
  }
}

extension RedisStoreDriver: SignalTarget {
  func signalled() { turn() }
}

extension RedisStoreDriver: SharedLogOwner {
  func logIsUp(history: String, at address: String) {
    logger.info("connected to Redis", [.text("address", address), .text("history", history)])
    connected(to: history)
    forgetStored()
    sharedLog.subscribe(to: [.definitions] + sessions.filter(\.value.isSubscribed).map { .session($0.key) })
    notedFailures = []
    metrics.setUp(true)
    // Redis may have too few replicas, so the store works only once a heartbeat is confirmed.
    lastFailure = "Redis has not confirmed a heartbeat"
    lastCause = .unreachable
    sendHeartbeat()
    noteAll()
    turn()
  }

  func logIsDown(_ failure: LogFailure) {
    logger.warning("the connection to Redis has ended", [.text("reason", failure.reason)])
    lastFailure = failure.reason
    lastCause = .unreachable
    metrics.setUp(false)
    if timers[.patience] == nil { setTimer(.patience, at: loop.now + Self.patience) }
    heartbeat.disconnected()
    for entry in sessions.values { entry.followed?.isSubscribed = false }
    definitions.disconnected()
    report([])
    disconnectAll()
  }

  func logAttemptFailed(_ failure: LogFailure, at place: String?) {
    lastFailure = failure.reason
    var fields: [LogField] = []
    if let place { fields.append(.text("address", place)) }
    fields.append(.text("reason", lastFailure))
    // Several servers and Sentinels may fail in turn, so each failure is a warning only once.
    logger.log(isNews("\(place ?? "") \(failure.reason)") ? .warning : .debug, "no connection to Redis", fields)
    lastCause = failure.isAboutCredentials ? .credentials : .unreachable
    if store.submissions.isFailed { setFailure(lastFailure, lastCause) }
  }

  /// Whether no warning about this failure was logged since the last connection.
  private func isNews(_ failure: String) -> Bool {
    notedFailures.count < Self.failuresNoted && notedFailures.insert(failure).inserted
  }

  func logSubscribed(to subject: LogSubject) {
    switch subject {
    case .definitions:
      definitions.subscribed()
      report([])
    case .session(let name):
      let entry = sessions[name]
      entry?.followed?.isSubscribed = true
      entry?.followed?.needsRead = true
      entry?.candidate?.changed()
      note(name)
    }
    turn()
  }

  func logNotified(_ subject: LogSubject, _ message: [UInt8]) {
    switch subject {
    case .definitions: report(definitions.notified(message.span))
    case .session(let name):
      if message == Self.readersWait {
        if sessions[name]?.local?.isReported == true { delegate?.store(store, servesReadersOf: name) }
        return
      }
      let entry = sessions[name]
      entry?.followed?.needsRead = true
      if message == Self.holderChanged { entry?.candidate?.changed() }
      note(name)
    }
    turn()
  }

  private static var failuresNoted: Int { 64 }

  /// The message of a notification about changes other than added pushes.
  private static var holderChanged: [UInt8] { [UInt8(ascii: "2")] }
  /// The message of a notification that clients of a follower wait for pushes. Nothing has changed.
  static var readersWait: [UInt8] { [UInt8(ascii: "4")] }
}
