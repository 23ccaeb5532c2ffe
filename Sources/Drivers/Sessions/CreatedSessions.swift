import ByteStreams
import Host
import Inbox
import Logging
import Metrics
import Reactor
import RedisStore
import Replication
import RouteNetlink
import Synchronization
import Threading
import Upstream

/// Why a session is not created.
package enum CreationRefusal: Error, Sendable {
  /// A session of this name exists.
  case exists(Session)
  case tooMany(limit: Int)
  case tooManyOfOwner(limit: Int)
  /// The limit on open files leaves no descriptors for another connection.
  case noDescriptors(limit: Int)
  /// The process shuts down, or has not started.
  case notRunning
  /// The text of the definition is longer than `limit` bytes. Most of the text consists of the values of the variables.
  case tooLarge(limit: Int)
}

/// The sessions that clients create, by name. Thread-safe.
///
/// The sessions are divided among several shards by their names. A lookup takes the lock of one shard, for the time of
/// a dictionary lookup. All other functions take one common lock. A closed session cannot be found any more, but is
/// counted towards the limits until its connection has ended.
package final class CreatedSessions: Sendable {
  package struct Limits: Sendable {
    package var settings: CreatedSessionSettings
    /// The number of sessions for whose connections the limit on open files leaves enough descriptors.
    package var descriptors: Int

    package init(_ settings: CreatedSessionSettings = .init(), descriptors: Int = .max) {
      self.settings = settings
      self.descriptors = descriptors
    }
  }

  /// Why a session was closed.
  package enum ClosingReason: String, CaseIterable, Sendable { case request, idle }

  /// The dependencies that all created sessions use.
  struct Surroundings {
    let logger: Logger
    let attemptLimiter: ConcurrentAttemptLimiter
    let budget: RetentionBudget
  }

  struct State {
    /// The open sessions, sorted by name.
    var open: [SessionEntry] = []
    /// Closed sessions whose connections have not ended, by number.
    var closing: [UInt64: Session] = [:]
    /// Number of sessions created so far.
    var created: UInt64 = 0
    /// Number of open and closing sessions of each owner.
    var owners: [String: Int] = [:]
    /// Number of sessions on each loop, including configured sessions.
    var loads: [Int] = []
    var loops: [EventLoop] = []
    var resolver: Resolver?
    var hasStopped = false
    /// The loops of the slots, by the names of their sessions.
    var places: [String: Int] = [:]
    /// The figures of the sessions that have ended. Counters include them, since a counter must never decrease.
    var ended = SessionFigures()

    /// The position of the first session whose name is not before `name`.
    func position(of name: String) -> Int {
      var (low, high) = (0, open.count)
      while low < high {
        let middle = low + (high - low) / 2
        if open[middle].name < name { low = middle + 1 } else { high = middle }
      }
      return low
    }
  }

  final class Shard: Sendable {
    let sessions = Locked<[String: SessionEntry]>([:])
  }

  package let limits: Limits
  let surroundings: Surroundings
  /// Whether a session was ever created. Until then, a lookup takes no lock.
  private let isUsed = Atomic(false)
  /// The store for created sessions that several gateways share; nil if this gateway creates its sessions alone.
  let shared = Locked<RedisStore?>(nil)
  /// Lock order: this lock is taken before the lock of a shard.
  let state = Locked(State())
  private let shards = (0..<CreatedSessions.shardCount).map { _ in Shard() }
  private let metrics: Locked<UpstreamMetrics?>
  let registry: MetricsRegistry
  /// Limits log lines: clients may create and close sessions at any rate, and each session writes a few lines.
  let lineLimiter = LogLineLimiter()
  let createdCount: Counter
  let closedCounts: [ClosingReason: Counter]

  /// With this number of shards, two loops rarely need the same shard at the same time.
  private static var shardCount: Int { 16 }

  init(_ limits: Limits, _ surroundings: Surroundings, registry: MetricsRegistry) {
    self.limits = limits
    self.surroundings = surroundings
    self.registry = registry
    metrics = Locked(nil)
    createdCount = registry.counter("drawbridge_sessions_created_total", "Sessions that clients have created.")
    closedCounts = Dictionary(
      uniqueKeysWithValues: ClosingReason.allCases.map { reason in
        (
          reason,
          registry.counter(
            "drawbridge_sessions_closed_total", "Sessions that clients had created and that were closed, by reason.",
            [("reason", reason.rawValue)])
        )
      })
  }

  // MARK: Lookup

  func find(_ name: Span<UInt8>) -> Session? {
    guard isUsed.load(ordering: .acquiring) else { return nil }
    return shard(name).sessions.withLock { $0[name.text()] }?.session
  }

  /// Clients choose the names, so they can make many names fall into one shard. Even then, lookups are no slower than
  /// with a single lock.
  private func shard(_ name: Span<UInt8>) -> Shard {
    var hash: UInt32 = 0x811c_9dc5
    for index in name.indices { hash = (hash ^ UInt32(name[index])) &* 0x0100_0193 }
    return shards[Int((hash ^ hash >> 16) % UInt32(Self.shardCount))]
  }

  func shard(_ name: String) -> Shard { shard(Array(name.utf8).span) }

  /// Returns the first open sessions after `name` for which `isVisible` returns true, sorted by name and at most
  /// `limit`.
  package func list(after name: String?, limit: Int, where isVisible: (Session) -> Bool) -> [Session] {
    let entries = state.withLock { state in
      var start = 0
      if let name {
        start = state.position(of: name)
        if start < state.open.count, state.open[start].name == name { start += 1 }
      }
      return state.open[start...]
    }
    guard limit > 0 else { return [] }
    var result: [Session] = []
    for session in entries.lazy.map(\.session) where isVisible(session) {
      result.append(session)
      if result.count == limit { break }
    }
    return result
  }

  /// Number of open sessions.
  package var count: Int { state.withLock { $0.open.count } }

  // MARK: Creating

  /// Creates and starts a session. Throws `exists` if there is a session of this name.
  package func create(
    _ name: String, _ creation: SessionCreation, _ settings: PreparedSettings, retention: Retention
  ) throws(CreationRefusal) -> Session {
    let metrics = sharedMetrics()
    let result: Result<Session, CreationRefusal> = state.withLock { state in
      let position = state.position(of: name)
      if position < state.open.count, state.open[position].name == name {
        return .failure(.exists(state.open[position].session))
      }
      if let refusal = refusal(of: creation.owner, state) { return .failure(refusal) }
      guard let resolver = state.resolver, let load = state.loads.min(),
        let place = state.loads.firstIndex(of: load)
      else { return .failure(.notRunning) }
      state.created += 1
      let number = state.created
      let session = Session(
        name, number, on: place, creation, settings, retention: retention, logger: surroundings.logger,
        metrics: metrics, attemptLimiter: surroundings.attemptLimiter, lineLimiter: lineLimiter,
        budget: surroundings.budget, in: self
      ) { [weak self] in self?.ended(number, of: creation.owner, on: place) }
      insert(.fixed(session), at: position, &state)
      state.owners[creation.owner, default: 0] += 1
      state.loads[place] += 1
      session.start(on: state.loops[place], resolver: resolver)
      return .success(session)
    }
    let session = try result.get()
    createdCount.add()
    log(
      "a client has created a session",
      [.text("session", name), .text("profile", creation.profile), .text("owner", creation.owner)])
    return session
  }

  func insert(_ entry: SessionEntry, at position: Int, _ state: inout State) {
    state.open.insert(entry, at: position)
    shard(entry.name).sessions.withLock { $0[entry.name] = entry }
    isUsed.store(true, ordering: .releasing)
  }

  func log(_ message: StaticString, _ fields: [LogField]) {
    let suppressed = lineLimiter.admit(at: ProcessInformation.monotonicTime())
    let count: [LogField] = suppressed.map { $0 > 0 ? [.number("suppressed", $0)] : [] } ?? []
    surroundings.logger.log(suppressed == nil ? .debug : .info, message, fields + count)
  }

  private func refusal(of owner: String, _ state: State) -> CreationRefusal? {
    let count = state.open.count + state.closing.count
    let settings = limits.settings
    if state.owners[owner, default: 0] >= settings.perOwner { return .tooManyOfOwner(limit: settings.perOwner) }
    if count >= settings.total { return .tooMany(limit: settings.total) }
    return count >= limits.descriptors ? .noDescriptors(limit: limits.descriptors) : nil
  }

  /// The metrics are registered when the first session is created, so that a gateway without profiles does not have
  /// them.
  func sharedMetrics() -> UpstreamMetrics {
    metrics.withLock { metrics in
      if let metrics { return metrics }
      let new = SessionMetrics.register(self, in: registry)
      metrics = new
      return new
    }
  }

  package var idleLimit: TimeSpan { limits.settings.idleAfter }

  // MARK: Closing

  /// Closes a session and frees its name at once. Returns false if the session was closed before.
  @discardableResult
  package func close(_ session: Session, code: UInt16 = 1000, because reason: ClosingReason = .request) -> Bool {
    guard remove(session, unless: { false }) else { return false }
    closed(session, code: code, because: reason)
    return true
  }

  /// Closes a session unless a client has used it within its idle limit.
  func closeIfIdle(_ session: Session, at now: MonotonicTime) {
    if let store = shared.withLock({ $0 }) { return removeIfIdle(session, from: store, at: now) }
    guard let deadline = session.idleDeadline(at: now), now >= deadline,
      remove(session, unless: { session.idleDeadline(at: now).map { now < $0 } ?? true })
    else { return }
    closed(session, code: 1000, because: .idle)
  }

  private func remove(_ session: Session, unless isNeeded: () -> Bool) -> Bool {
    state.withLock { state in
      let position = state.position(of: session.name)
      guard position < state.open.count, case .fixed(let present) = state.open[position], present === session,
        !isNeeded()
      else { return false }
      state.open.remove(at: position)
      state.closing[session.number] = session
      _ = shard(session.name).sessions.withLock { $0.removeValue(forKey: session.name) }
      return true
    }
  }

  private func closed(_ session: Session, code: UInt16, because reason: ClosingReason) {
    closedCounts[reason]?.add()
    log(
      "a session that a client had created is closed",
      [.text("session", session.name), .text("reason", reason.rawValue)])
    session.close(code: code)
  }

  /// The connection of a session has ended.
  private func ended(_ number: UInt64, of owner: String, on place: Int) {
    state.withLock { state in
      // If the session has ended because of a shutdown, it is still in `open`.
      guard let session = state.closing.removeValue(forKey: number) else { return }
      state.ended += SessionFigures(session).totals
      state.loads[place] -= 1
      let count = state.owners[owner, default: 1] - 1
      state.owners[owner] = count > 0 ? count : nil
    }
  }

  // MARK: All sessions

  /// Sessions can be created from now on.
  func start(on loops: [EventLoop], resolver: Resolver, loads: [Int]) {
    state.withLock { state in
      state.loops = loops
      state.loads = loads
      state.resolver = resolver
      // Redis may have reported sessions before the start.
      for case .shared(let slot) in state.open { start(slot, &state) }
    }
  }

  /// No session is created from now on.
  func stop() {
    state.withLock { state in
      state.resolver = nil
      state.hasStopped = true
    }
  }

  /// The open sessions, and the closed sessions whose connections have not ended yet.
  var all: [Session] {
    let (open, closing) = state.withLock { ($0.open, Array($0.closing.values)) }
    return open.map(\.session) + closing
  }

  /// The sums for metrics.
  var figures: SessionFigures {
    let (open, closing, ended) = state.withLock { ($0.open, Array($0.closing.values), $0.ended) }
    var sum = ended
    for entry in open { sum += entry.figures }
    for session in closing { sum += SessionFigures(session).totals }
    return sum
  }
}
