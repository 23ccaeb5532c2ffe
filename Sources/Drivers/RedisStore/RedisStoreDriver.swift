import ByteStreams
import Dialing
import Host
import Journal
import Logging
import Reactor
import Replication
import Submissions

/// Carries out what the machines of `Replication` decide, for all sessions of a gateway, on one event loop.
///
/// Everything that is to be sent for the journals leaves in one flight, and the next one when all of it is confirmed. So the entries of a burst share
/// one append for each session, and one WAIT for all.
final class RedisStoreDriver {
  /// For so long Redis may not work before messages are refused. A failover takes 2 to 3 s, and the deadline of the default lease is
  /// after 3.5 s or more.
  private static var patience: TimeSpan { .seconds(3) }
  /// Between two log lines about commands that Redis has refused. While it is full, it refuses several each second.
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
  /// Why connections could not be opened since the last one. Each reason is logged once.
  private var notedFailures: Set<String> = []

  var secret: PeerSecret
  /// Whether the other gateways are reached at their addresses.
  var peers = PeerChecks()
  /// What Redis has of the hosts of this gateway's upstreams; nil if it may have nothing.
  var storedHosts: UpstreamHosts?
  /// What was read of gateways with other settings, and the digest of the settings at that time.
  var readHosts: [GatewayID: (configuration: String, hosts: UpstreamHosts)] = [:]
  /// What was reported of the sessions that others hold, and the addresses of all gateways by which it was found.
  var places = SessionPlaces()

  /// What each session is to this gateway, by its name in the store.
  private(set) var sessions: [String: SessionEntry] = [:]
  /// Sessions that are acquired and read. What is read of one is in memory until all of it is.
  var loads: LimitedTurns
  /// Sessions whose whole state is written. It is in memory meanwhile.
  var replacements: LimitedTurns
  /// Candidates that are acquired by the flight.
  var acquiring = 0
  /// How many sessions are being read.
  var loadingCount = 0
  /// How many of the held ones clients have created.
  var createdHeld = 0
  /// The held sessions, by the number in the queue.
  var journals: [Int32: HeldSession] = [:]
  private var lastIndex: Int32 = 0
  /// How often a session began to be followed.
  var followings: UInt64 = 0
  /// The sessions that clients have created, and how this gateway changes them.
  var definitions: DefinitionList
  var changes: [(change: DefinitionChange, isSent: Bool)] = []
  /// Look-ups on their way.
  var pendingLookups: [DefinitionRequest] = []
  /// Names that clients use and this gateway does not know, and that were not sent yet.
  var lookups: [(name: String, request: DefinitionRequest)] = []
  /// Those that this gateway holds and Redis has lost, to be defined again.
  var missing = PendingSessions()
  /// Removed sessions that Redis has again, to be removed again.
  var returned = PendingSessions()
  /// Clients that wait until the sessions are held that they have created, by their names in the store.
  var created: [String: (request: DefinitionRequest, end: MonotonicTime)] = [:]
  /// Sessions for which there may be something to do.
  private var pending = PendingSessions()

  private let batch = SubmissionBatch()
  /// Whether entries that nobody awaits have waited long enough.
  var areNotesDue = false
  private var flight: LogFlight?
  private var refusals = StoreRefusals()
  private var departure = MonotonicTime.zero
  private var nextRefusalLine = MonotonicTime.zero
  private var closing: [@Sendable () -> Void] = []
  /// Whether this gateway takes no session any more, and whether it releases all.
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

  /// On a clock that does not stop while the machine is suspended.
  var now: MonotonicTime { ProcessInformation.bootTime() }

  func nextIndex() -> Int32 {
    lastIndex += 1
    return lastIndex
  }

  // MARK: Turn

  /// There is something to do for this session.
  func note(_ name: String) { pending.insert(name) }

  func noteAll() { pending.insert(sessions.keys) }

  /// Sends what is to be sent, unless the last flight has not landed. Then its landing is the next turn.
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
          if !isSent { return sharedLog.reset("too much was sent") }
        }
      }
      guard hasTaken else { break }
    }
    finishClosing()
  }

  /// Takes what was submitted. Returns false if there was nothing.
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
    // Those that are noted meanwhile are served by the next flight.
    for _ in 0..<pending.count {
      guard !flight.isFull, let name = pending.takeFirst() else { return }
      guard let entry = sessions[name] else { continue }
      if let session = entry.held {
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

  /// Call this before what has landed is reported: a session that is held is used at once, and finds that the store works.
  func noteOutcome(of flight: LogFlight) {
    guard let refusal = flight.refusal else {
      refusals.succeeded(hasEntries: flight.hasEntries)
      // It counts from the loss of the connection.
      cancelTimer(.patience)
      if refusals.hasEnded(by: loop.now) { setFailure(nil) }
      return
    }
    if refusals.refused(refusal, at: loop.now) { setFailure(refusal.reason, refusal.cause) }
  }

  // MARK: Commands

  private func perform(_ command: RedisStore.Command) {
    switch command {
    // It was removed while the command waited, and nothing would end it any more.
    case .join(let name, _) where isRemoved(name), .follow(let name, _, _) where isRemoved(name): break
    case .join(let name, let mayAcquire):
      sessions[name]?.held?.isLeaving = false
      guard !isClosing else { return }
      let entry = entry(of: name)
      switch entry.tenure {
      case .held, .damaged: return
      case .none:
        entry.tenure = .candidate(Candidate(session: name))
        subscribe(name)
      case .candidate, .loading: break
      }
      entry.candidate?.mayAcquire = mayAcquire
      note(name)
    case .release(let name):
      guard let entry = sessions[name] else { return }
      stopLoading(name, entry)
      if let session = entry.held {
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
      // Before any session is released, so that nobody names this gateway as successor.
      heartbeat.hasten()
      sendHeartbeat()
    case .close(let then):
      isDraining = true
      isClosing = true
      closing.append(then)
      for (name, entry) in sessions where entry.candidate != nil || entry.held != nil { perform(.release(name)) }
      for (change, isSent) in changes where !isSent { change.request?.finish(.failed) }
      changes.removeAll { !$0.isSent }
      endLookups()
    }
  }

  private func finishClosing() {
    guard isClosing, flight == nil, sessions.values.allSatisfy({ $0.held == nil && $0.unwanted == nil }) else { return }
    let closing = closing
    self.closing = []
    guard !closing.isEmpty else { return }
    for (change, _) in changes { change.request?.finish(.failed) }
    changes = []
    // They are defined, and the next gateway holds them.
    for name in Array(created.keys) { finishCreation(of: name) }
    sharedLog.close()
    for timer in timers.values { loop.cancel(timer) }
    timers = [:]
    for then in closing { then() }
  }

  // MARK: Sessions

  /// The entry of a session, which is something to this gateway from now on.
  func entry(of name: String) -> SessionEntry {
    if let entry = sessions[name] { return entry }
    let entry = SessionEntry()
    sessions[name] = entry
    return entry
  }

  /// Keeps nothing of the session, unless it still concerns this gateway.
  func forgetIfUnused(_ name: String) {
    guard let entry = sessions[name], !entry.isSubscribed else { return }
    if entry.isEmpty { sessions[name] = nil }
    places.forget(name)
    sharedLog.unsubscribe(from: [.session(name)])
  }

  func subscribe(_ name: String) { sharedLog.subscribe(to: [.session(name)]) }

  /// These entries do not wait any more.
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

  /// Redis may have lost what this gateway has stored besides its sessions, which is stored again.
  func forgetStored() {
    secret.connected()
    storedHosts = nil
  }

  /// The outcome of what was sent is not known.
  func disconnectAll() {
    flight = nil
    disconnectDefinitions()
    loadingCount = 0
    loads.endAll()
    replacements.endAll()
    for (name, entry) in sessions {
      _ = entry.endLoading()
      entry.candidate?.disconnected()
      if let session = entry.held {
        session.holding.disconnected()
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
      // Refusals say more, and have a patience of their own. They may have ended with the connection.
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
    // The store works when its heartbeat is confirmed: Redis may have too few replicas.
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
    // Several servers and Sentinels may fail in turn.
    logger.log(isNews("\(place ?? "") \(failure.reason)") ? .warning : .debug, "no connection to Redis", fields)
    lastCause = failure.isAboutCredentials ? .credentials : .unreachable
    if store.submissions.isFailed { setFailure(lastFailure, lastCause) }
  }

  /// Whether the log does not have it yet, since the last connection.
  private func isNews(_ failure: String) -> Bool {
    notedFailures.count < Self.failuresNoted && notedFailures.insert(failure).inserted
  }

  func logSubscribed(to topic: LogTopic) {
    switch topic {
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

  func logNotified(_ topic: LogTopic, _ message: [UInt8]) {
    switch topic {
    case .definitions: report(definitions.notified(message.span))
    case .session(let name):
      if message == Self.readersWait {
        if sessions[name]?.held?.isReported == true { delegate?.store(store, servesReadersOf: name) }
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

  /// What a notification says if not only pushes were added.
  private static var holderChanged: [UInt8] { [UInt8(ascii: "2")] }
  /// What it says if clients of a follower wait for pushes, and nothing has changed.
  static var readersWait: [UInt8] { [UInt8(ascii: "4")] }
}
