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

/// What a store reports. Called on the loop of the store, so nothing in here may block. Methods of the store may be called.
package protocol RedisStoreDelegate: AnyObject, Sendable {
  /// This gateway holds the session, until `lost`. Its term is stored.
  func store(_ store: RedisStore, holds name: String, _ opened: OpenedJournal)

  /// The session is not this gateway's any more. Its socket is to be closed at once, and what is submitted from now on is not stored. After
  /// `.deadline` the store acquires it again by itself.
  func store(_ store: RedisStore, lost name: String, _ reason: SessionLoss)

  /// More is known of a session that is followed.
  func store(_ store: RedisStore, follows name: String, _ change: FollowedChange)

  /// Another gateway holds the session; nil: none at present. Not while this one does.
  func store(_ store: RedisStore, finds name: String, at holder: SessionHolder?)

  /// The secret by which the gateways recognise each other: visible ASCII. It may be the same as before.
  func store(_ store: RedisStore, shares secret: String)

  /// Clients of another gateway read a session that this one holds. Reported every few seconds as long as they do.
  func store(_ store: RedisStore, servesReadersOf name: String)

  /// A client has created the session, at any gateway. Its name in the store is that of the definition.
  func store(_ store: RedisStore, defines name: String, _ definition: SessionDefinition)

  /// The session ends: a client has deleted it, or it was idle, or Redis has lost it. It is not reported as lost. What is submitted from now on is not stored.
  ///
  /// - Parameter code: with which the connection to the upstream is closed.
  func store(_ store: RedisStore, removes name: String, _ definition: SessionDefinition, code: UInt16)
}

extension RedisStoreDelegate {
  package func store(_ store: RedisStore, servesReadersOf name: String) {}

  package func store(_ store: RedisStore, defines name: String, _ definition: SessionDefinition) {}

  package func store(_ store: RedisStore, removes name: String, _ definition: SessionDefinition, code: UInt16) {}
}

/// The gateway that holds a session.
package struct SessionHolder: Hashable, Sendable {
  package let gateway: GatewayID
  /// Where other gateways reach it, as it says itself.
  package let address: String
  package let term: ShareTerm
}

/// Why a gateway does not hold a session any more.
package enum SessionLoss: Hashable, Sendable {
  /// The time has passed until which this gateway may write to the upstream.
  case deadline
  /// Another gateway has it.
  case fenced
  /// It was released, as the gateway asked.
  case released
  /// A fault of the program: a change of it did not follow those before.
  case fault
}

/// A change of the copy that a gateway has of another one's session.
package enum FollowedChange: Sendable {
  /// The copy begins anew, without a push. The next push that is reported may have any number.
  case restarted(epoch: UInt64, ShareTerms)
  /// The session has other terms. Of the copy, what is after the push with this number is void, also a gap: it was lost, or other entries take its place. nil:
  /// nothing is void.
  case continued(after: UInt64?, ShareTerms)
  /// The next pushes and gaps.
  case entries([LogChange])
  /// Everything that is stored has been reported, and what follows will be, until `isOutdated`.
  case isCurrent
  /// Everything has been reported that was stored when `follow` was called with this number.
  case refreshed(UInt64)
  /// What is stored from now on may not be reported before the next `isCurrent`: Redis cannot be reached, or has another history.
  case isOutdated
  /// The session is not followed any more. A copy that is not complete is of no use.
  case ended
}

/// Makes the engine of a store.
package typealias LogMaker =
  @Sendable (_ owner: any SharedLogOwner, LoopContext, any Dialer, RedisStoreMetrics) -> any SharedLog

/// The journals of the sessions of several gateways, in Redis. Safe for use from any thread.
///
/// `RedisStoreDriver` does the work, on an event loop that serves nothing else.
package final class RedisStore: Journal {
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

  /// With Redis: for heartbeats, journals and notifications.
  package static var connections: Int { 3 }

  /// This process among all gateways.
  package let gateway: GatewayID
  let submissions: SubmissionQueue
  private let condition: Locked<StoreState>
  private let settingsDigest: Locked<String>
  private let hosts: Locked<UpstreamHosts>
  /// In nanoseconds of `MonotonicTime` on the clock of `ProcessInformation.bootTime()`.
  private let deadline = Atomic<UInt64>(0)
  private let definitionsAreKnown = Atomic(false)
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
  ///   - makeLog: makes the engine. Called on the loop, as the following.
  ///   - makeDialer: opens the connections of the engine, and the connections that check whether other gateways can be reached.
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

  /// As above, in Redis.
  package static func start(
    _ settings: RedisStoreSettings, on loop: EventLoop, delegate: any RedisStoreDelegate, logger: Logger,
    metrics: MetricsRegistry, makeDialer: @escaping @Sendable (LoopContext) -> any Dialer
  ) -> RedisStore {
    start(
      settings, on: loop, delegate: delegate, logger: logger, metrics: metrics,
      makeLog: { RedisLog(settings, dialer: $2, metrics: $3, loop: $1, owner: $0) }, makeDialer: makeDialer)
  }

  // MARK: For the gateway

  /// From now on, this gateway takes the session when nobody holds it, and `finds` is called when another one does.
  ///
  /// - Parameter mayAcquire: whether it takes the session; false has no effect on one that it holds.
  package func join(_ name: String, mayAcquire: Bool = true) {
    _ = submissions.add(Command.join(name, mayAcquire: mayAcquire))
  }

  /// Gives the session up, once everything that was submitted is stored, and does not take it again. Its socket must be closed before: the next
  /// holder may be connected before `lost` is reported.
  package func release(_ name: String) { _ = submissions.add(Command.release(name)) }

  /// From now on, the pushes of the session are reported. It ends a minute after the last call.
  ///
  /// - Parameters:
  ///   - refresh: if it is larger than in all calls before, the session is read once more, and `refreshed` is reported with this number.
  ///   - hasReaders: whether its holder is notified that clients wait for pushes here.
  package func follow(_ name: String, refresh: UInt64 = 0, hasReaders: Bool = false) {
    _ = submissions.add(Command.follow(name, refresh: refresh, hasReaders: hasReaders))
  }

  /// What a minute without a call of `follow` does. For tests.
  package func unfollow(_ name: String) { _ = submissions.add(Command.unfollow(name)) }

  /// A client creates a session. Every gateway is told. Its incarnation must be drawn at random.
  package func define(
    _ name: String, _ definition: SessionDefinition, within limits: DefinitionLimits
  ) -> DefinitionRequest {
    let request = DefinitionRequest()
    _ = submissions.add(Command.change(DefinitionChange(.define(limits: limits), name, definition, request)))
    return request
  }

  /// Removes a session that a client has created, and everything of it. Every gateway is told.
  package func remove(_ name: String, _ definition: SessionDefinition, code: UInt16) -> DefinitionRequest {
    let request = DefinitionRequest()
    _ = submissions.add(Command.change(DefinitionChange(.remove(code: code), name, definition, request)))
    return request
  }

  /// Looks in Redis for a session that a client may have created since this gateway was last notified. When that is done, the delegate has it, if it exists.
  ///
  /// - Parameter client: whom it is counted for; 0 if that is not known.
  package func lookUp(_ name: String, by client: UInt64 = 0) -> DefinitionRequest {
    let request = DefinitionRequest(by: client)
    _ = submissions.add(Command.lookUp(name, request))
    return request
  }

  /// Removes a session that a client has created and that nobody uses, if this gateway holds it.
  package func removeIdle(_ name: String, _ definition: SessionDefinition) {
    _ = submissions.add(Command.change(DefinitionChange(.removeIdle, name, definition)))
  }

  /// Whether this gateway knows all sessions that clients have created at any gateway.
  package var knowsDefinitions: Bool { definitionsAreKnown.load(ordering: .acquiring) }

  /// Whether this gateway holds as many sessions of clients as it has descriptors for.
  package var isFull: Bool { hasNoDescriptors.load(ordering: .relaxed) }

  /// The gateway will end: other gateways name it as successor of no session, and it takes none, also not again those that it loses. What it holds
  /// continues.
  package func drain() { _ = submissions.add(Command.drain) }

  /// Releases all sessions, whose sockets must be closed before, and ends. `then` is called on the store's loop. If Redis does not work, it is not called before it does: a caller does not wait for
  /// longer than for the shutdown of its sessions.
  package func close(then: @escaping @Sendable () -> Void) { _ = submissions.add(Command.close(then)) }

  /// Whether a session that this gateway holds may be written to its upstream now. To be called before each write.
  package var mayWrite: Bool {
    ProcessInformation.bootTime().nanoseconds < deadline.load(ordering: .acquiring)
  }

  /// Whether Redis cannot be reached, for longer than a failover that is planned.
  package var isFailed: Bool { submissions.isFailed }

  /// For the status output.
  package var state: StoreState { condition.withLock { $0 } }

  /// A digest of the settings that must be the same at all gateways. The others are compared with it.
  package var configuration: String { settingsDigest.withLock { $0 } }

  /// Settings were read again.
  package func use(configuration: String, _ hosts: UpstreamHosts) {
    settingsDigest.withLock { $0 = configuration }
    self.hosts.withLock { $0 = hosts }
  }

  var upstreamHosts: UpstreamHosts { hosts.withLock { $0 } }

  // MARK: For the driver

  func setDeadline(_ time: MonotonicTime) { deadline.store(time.nanoseconds, ordering: .releasing) }

  func setFull(_ isFull: Bool) { hasNoDescriptors.store(isFull, ordering: .relaxed) }

  func setKnowsDefinitions(_ knows: Bool) { definitionsAreKnown.store(knows, ordering: .releasing) }

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

/// The signal of a driver that is made on its loop. What is submitted before waits for the driver's first turn.
private final class SignalBox: Sendable {
  private let signal = Locked<Signal?>(nil)

  func set(_ signal: Signal) { self.signal.withLock { $0 = signal } }
  func notify() { signal.withLock { $0 }?.notify() }
}
