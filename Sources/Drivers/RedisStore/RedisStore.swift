import ByteStreams
import Dialing
import Host
import Inbox
import Journal
import Logging
import Metrics
import Reactor
import Replication
import Submissions
import Synchronization
import Threading

/// Receives the reports of a store, on the loop of the store. The methods must not block. They may call methods of the
/// store.
package protocol RedisStoreDelegate: AnyObject, Sendable {
  /// This gateway is the holder of the session, until `lost`. The beginning of its term is stored.
  func store(_ store: RedisStore, acquired name: String, _ opened: OpenedJournal)

  /// This gateway is no longer the holder. The delegate must close the socket of the session at once. Entries that are
  /// submitted from now on are not stored. After `.deadline`, the store tries to acquire the session again by itself.
  func store(_ store: RedisStore, lost name: String, _ reason: SessionLoss)

  /// Reports a change of a session that is followed.
  func store(_ store: RedisStore, follows name: String, _ change: FollowedChange)

  /// Another gateway is the holder. `holder` is nil if the session has no holder at present. Not called while this
  /// gateway is the holder.
  func store(_ store: RedisStore, finds name: String, at holder: SessionHolder?)

  /// Reports the secret by which the gateways recognise each other: visible ASCII. May report the same secret again.
  func store(_ store: RedisStore, shares secret: String)

  /// Clients of another gateway read a session whose holder is this gateway. Reported every few seconds while they
  /// read.
  func store(_ store: RedisStore, servesReadersOf name: String)

  /// A client has created the session, at this gateway or another gateway. `definition.storedName` returns its name in
  /// the store.
  func store(_ store: RedisStore, defines name: String, _ definition: SessionDefinition)

  /// The session has ended: a client has deleted it, it was idle, or Redis has lost it. In these cases, `lost` is not
  /// called. Entries that are submitted from now on are not stored.
  ///
  /// - Parameter code: the close code for the upstream.
  func store(_ store: RedisStore, removes name: String, _ definition: SessionDefinition, code: UInt16)
}

extension RedisStoreDelegate {
  package func store(_ store: RedisStore, servesReadersOf name: String) {}

  package func store(_ store: RedisStore, defines name: String, _ definition: SessionDefinition) {}

  package func store(_ store: RedisStore, removes name: String, _ definition: SessionDefinition, code: UInt16) {}
}

/// The gateway that is the holder of a session.
package struct SessionHolder: Hashable, Sendable {
  package let gateway: GatewayID
  /// The address at which other gateways reach the holder, as published by the holder.
  package let address: String
  package let term: HolderTerm
}

/// Why a gateway is no longer the holder of a session.
package enum SessionLoss: Hashable, Sendable {
  /// The deadline until which this gateway may write to the upstream has passed.
  case deadline
  /// Another gateway has become the holder.
  case fenced
  /// This gateway has released the session.
  case released
  /// Redis names no holder.
  case noHolder
  /// Redis may have lost the last entries, and the deadline has passed.
  case mayLackWrites
  /// A change did not follow the changes before it, which is a bug.
  case fault
}

/// A change of this gateway's copy of a session with another holder.
package enum FollowedChange: Sendable {
  /// The copy begins again, without pushes. The next push may have any number.
  case restarted(epoch: UInt64, HolderTerms)
  /// The session has other terms. The pushes and gaps of the copy after the push with this number are void, because
  /// they were lost or replaced. nil if nothing is void.
  case continued(after: UInt64?, HolderTerms)
  /// The next pushes and gaps.
  case entries([LogChange])
  /// All stored entries have been reported, and new entries will be reported until `isOutdated`.
  case isCurrent
  /// All entries that were stored when `follow` was called with this number have been reported.
  case refreshed(UInt64)
  /// New entries may not be reported before the next `isCurrent`, because Redis cannot be reached or has another
  /// history.
  case isOutdated
  /// The session is no longer followed. A copy that is incomplete now stays incomplete, so it is useless.
  case ended
}

/// Creates the engine of a store (`SharedLog`).
package typealias LogMaker =
  @Sendable (_ owner: any SharedLogOwner, LoopContext, any Dialer, RedisStoreMetrics) -> any SharedLog

/// The journals of the sessions that several gateways share, in Redis. Thread-safe.
///
/// `RedisStoreDriver` does the work, on an event loop that serves nothing else.
package final class RedisStore: Sendable {
  enum Command: StoreCommand {
    case join(String, mayAcquire: Bool)
    case release(String)
    case follow(String, refresh: UInt64, hasReaders: Bool)
    case unfollow(String)
    case change(DefinitionChange)
    case lookUp(String, DefinitionRequest)
    case drain
    case close(@Sendable () -> Void)
  }

  /// The connections to Redis: for heartbeats, journals and notifications.
  package static var connections: Int { 3 }

  /// The id of this process among all gateways.
  package let gateway: GatewayID
  let submissions: SubmissionQueue
  private let condition: Locked<StoreState>
  private let settingsDigest: Locked<String>
  private let hosts: Locked<UpstreamHosts>
  /// The time until which this gateway may write to upstreams, in nanoseconds on the clock of
  /// `ProcessInformation.bootTime()`.
  private let deadline = Atomic<UInt64>(0)
  private let definitionsAreKnown = Atomic(false)
  private let definitionsWereKnown = Atomic(false)
  private let hasNoDescriptors = Atomic(false)

  private init(_ submissions: SubmissionQueue, _ settings: RedisStoreSettings) {
    var generator = SystemRandomNumberGenerator()
    gateway = GatewayID(using: &generator)
    self.submissions = submissions
    settingsDigest = Locked(settings.configuration)
    hosts = Locked(settings.hosts)
    var state = StoreState(failure: "not connected yet", since: ProcessInformation.wallClockMilliseconds())
    state.cause = .notTried
    condition = Locked(state)
  }

  /// Starts a store on a loop that serves nothing else.
  ///
  /// - Parameters:
  ///   - makeLog: creates the engine. Called on the loop.
  ///   - makeDialer: creates the dialer for the connections of the engine, and for the checks whether other gateways
  ///     can be reached. Called on the loop.
  package static func start(
    _ settings: RedisStoreSettings, on loop: EventLoop, delegate: any RedisStoreDelegate, logger: Logger,
    metrics registry: MetricsRegistry, makeLog: @escaping LogMaker,
    makeDialer: @escaping @Sendable (LoopContext) -> any Dialer
  ) -> RedisStore {
    let box = SignalBox()
    let limits = SubmissionQueue.Limits(pendingBytes: settings.pendingBytes, pauseBytes: settings.pauseBytes)
    let submissions = SubmissionQueue(limits) { box.notify() }
    let store = RedisStore(submissions, settings)
    _ = submissions.setFailed(true)
    let metrics = RedisStoreMetrics(registry, submissions)
    loop.submit { [weak delegate] loop in
      let driver = RedisStoreDriver(
        settings, store, delegate, dialer: makeDialer(loop), loop: loop, logger: logger, metrics: metrics,
        makeLog: makeLog)
      box.set(loop.makeSignal(for: driver))
      driver.start()
      return nil
    }
    return store
  }

  /// Starts a store in Redis.
  package static func start(
    _ settings: RedisStoreSettings, on loop: EventLoop, delegate: any RedisStoreDelegate, logger: Logger,
    metrics: MetricsRegistry, makeDialer: @escaping @Sendable (LoopContext) -> any Dialer
  ) -> RedisStore {
    start(
      settings, on: loop, delegate: delegate, logger: logger, metrics: metrics,
      makeLog: { RedisLog(settings, dialer: $2, metrics: $3, loop: $1, owner: $0) }, makeDialer: makeDialer)
  }

  // MARK: For the gateway

  /// From now on, this gateway acquires the session when it has no holder, and calls `finds` when another gateway is
  /// the holder.
  ///
  /// - Parameter mayAcquire: whether this gateway may become the holder. This has no effect if the gateway is the
  ///   holder already.
  package func join(_ name: String, mayAcquire: Bool = true) {
    _ = submissions.add(Command.join(name, mayAcquire: mayAcquire))
  }

  /// Gives the session up once all submitted entries are stored, and does not acquire it again. Close its socket before
  /// this call: the next holder may connect before `lost` is reported.
  package func release(_ name: String) { _ = submissions.add(Command.release(name)) }

  /// Reports the pushes of the session for a minute from now on.
  ///
  /// - Parameters:
  ///   - refresh: if it is greater than in all earlier calls, the session is read again. After that, `refreshed` is
  ///     reported with this number.
  ///   - hasReaders: whether to notify the holder that clients wait for pushes here.
  package func follow(_ name: String, refresh: UInt64 = 0, hasReaders: Bool = false) {
    _ = submissions.add(Command.follow(name, refresh: refresh, hasReaders: hasReaders))
  }

  /// Stops following at once, as after a minute without a call of `follow`. For tests.
  package func unfollow(_ name: String) { _ = submissions.add(Command.unfollow(name)) }

  /// Creates a session for a client, and notifies all gateways. The definition must have a random incarnation.
  package func define(
    _ name: String, _ definition: SessionDefinition, within limits: DefinitionLimits
  ) -> DefinitionRequest {
    let request = DefinitionRequest()
    _ = submissions.add(Command.change(DefinitionChange(.define(limits: limits), name, definition, request)))
    return request
  }

  /// Removes a created session with all of its data, and notifies all gateways.
  package func remove(_ name: String, _ definition: SessionDefinition, code: UInt16) -> DefinitionRequest {
    let request = DefinitionRequest()
    _ = submissions.add(Command.change(DefinitionChange(.remove(code: code), name, definition, request)))
    return request
  }

  /// Looks in Redis for a session that a client may have created since the last notification. If the session exists, it
  /// is reported to the delegate before the outcome.
  ///
  /// - Parameter client: the client whose limit the lookup counts towards; 0 if the client is not known.
  package func lookUp(_ name: String, by client: UInt64 = 0) -> DefinitionRequest {
    let request = DefinitionRequest(by: client)
    _ = submissions.add(Command.lookUp(name, request))
    return request
  }

  /// Removes a created session that nobody uses, if this gateway is its holder.
  package func removeIdle(_ name: String, _ definition: SessionDefinition) {
    _ = submissions.add(Command.change(DefinitionChange(.removeIdle, name, definition)))
  }

  /// Whether this gateway knows all created sessions of all gateways.
  package var knowsDefinitions: Bool { definitionsAreKnown.load(ordering: .acquiring) }

  /// Whether the list of created sessions was read since this gateway started.
  package var hasKnownDefinitions: Bool { definitionsWereKnown.load(ordering: .acquiring) }

  /// Whether this gateway has no descriptors left for the connection of another created session.
  package var isFull: Bool { hasNoDescriptors.load(ordering: .relaxed) }

  /// Called when the gateway is about to end. It keeps its sessions but acquires no further session, not even a session
  /// that it has just lost. Other gateways no longer name this gateway as a successor.
  package func drain() { _ = submissions.add(Command.drain) }

  /// Releases all sessions, and ends. The sockets of the sessions must be closed before this call. Calls `then` on the
  /// store's loop at the end. If Redis does not work, the store ends only once Redis works again. So a caller should
  /// wait for the end no longer than the shutdown of its sessions may take.
  package func close(then: @escaping @Sendable () -> Void) { _ = submissions.add(Command.close(then)) }

  /// Whether this gateway may write to the upstreams of its sessions now. Must be checked before each write.
  package var mayWrite: Bool {
    ProcessInformation.bootTime().nanoseconds < deadline.load(ordering: .acquiring)
  }

  /// Whether the store counts as failed, because Redis was unreachable or refused writes for too long.
  package var isFailed: Bool { submissions.isFailed }

  /// The state for the status output.
  package var state: StoreState { condition.withLock { $0 } }

  /// A digest of the settings that must be the same at all gateways. Each gateway compares it with the digests of the
  /// other gateways.
  package var configuration: String { settingsDigest.withLock { $0 } }

  /// Called after a reload of the settings.
  package func use(configuration: String, _ hosts: UpstreamHosts) {
    settingsDigest.withLock { $0 = configuration }
    self.hosts.withLock { $0 = hosts }
  }

  var upstreamHosts: UpstreamHosts { hosts.withLock { $0 } }

  // MARK: For the driver

  func setDeadline(_ time: MonotonicTime) { deadline.store(time.nanoseconds, ordering: .releasing) }

  func setFull(_ isFull: Bool) { hasNoDescriptors.store(isFull, ordering: .relaxed) }

  func setKnowsDefinitions(_ knows: Bool) {
    definitionsAreKnown.store(knows, ordering: .releasing)
    if knows { definitionsWereKnown.store(true, ordering: .releasing) }
  }

  func report(_ failure: String?, _ cause: StoreState.Cause = .unreachable) {
    condition.withLock { state in
      if (state.failure == nil) != (failure == nil) { state.since = ProcessInformation.wallClockMilliseconds() }
      (state.failure, state.cause) = (failure, cause)
    }
  }

  func report(isUnreachable: Bool) { condition.withLock { $0.isUnreachable = isUnreachable } }

  func report(otherUpstream: UpstreamHosts.Difference?) {
    condition.withLock { $0.otherUpstream = otherUpstream.map { ($0.session, $0.own, $0.other) } }
  }

  func report(damage: String?) { condition.withLock { $0.damage = damage } }
}

/// The signal of a driver. The signal is created on the loop of the driver. Commands that were submitted earlier wait
/// for the driver's first turn.
private final class SignalBox: Sendable {
  private let signal = Locked<Signal?>(nil)

  func set(_ signal: Signal) { self.signal.withLock { $0 = signal } }
  func notify() { signal.withLock { $0 }?.notify() }
}
