import ByteStreams
import Host
import Inbox
import Logging
import Metrics
import Reactor
import RedisStore
import Replication
import Synchronization
import Threading
import Upstream

/// Created sessions that several gateways share. Redis has the list of these sessions, and every gateway has a slot for
/// each of them.
extension CreatedSessions {
  /// Creates sessions in this store from now on. Called before the first request is served.
  package func share(in store: RedisStore) { shared.withLock { $0 = store } }

  /// Whether several gateways share the sessions.
  package var areShared: Bool { shared.withLock { $0 } != nil }

  /// Whether sessions may be missing from this gateway's list, because the gateway has not read the list from Redis, or
  /// not since a connection to Redis was lost.
  package var mayBeIncomplete: Bool { shared.withLock { $0 }.map { !$0.knowsDefinitions } ?? false }

  /// Whether this gateway has just started, and has not read the list of sessions from Redis yet.
  package var isListAwaited: Bool { shared.withLock { $0 }.map { !$0.hasKnownDefinitions } ?? false }

  /// Looks up a session in Redis if it is not in this gateway's list, since a client may just have created it at
  /// another gateway. Returns nil if sessions are not shared.
  ///
  /// - Parameter client: the client whose limit counts the lookup.
  package func lookUp(_ name: String, by client: UInt64) -> DefinitionRequest? {
    shared.withLock { $0 }?.lookUp(name, by: client)
  }

  // MARK: For clients

  /// Creates a session at all gateways. The outcome is reported when this gateway has a slot for the session.
  package func define(_ name: String, _ creation: SessionCreation) throws(CreationRefusal) -> DefinitionRequest {
    guard let store = shared.withLock({ $0 }), state.withLock({ $0.resolver != nil }) else { throw .notRunning }
    let definition = SessionDefinition(
      incarnation: creation.incarnation, profile: creation.profile, variables: creation.variables,
      owner: creation.owner, time: ProcessInformation.wallClockMilliseconds(), idleLimit: creation.idleLimit)
    guard definition.text.count <= SessionDefinition.maximumTextLength else {
      throw .tooLarge(limit: SessionDefinition.maximumTextLength)
    }
    // Other gateways may have descriptors left, but probably have about as few as this gateway.
    guard !store.isFull else { throw .noDescriptors(limit: limits.descriptors) }
    let settings = limits.settings
    return store.define(name, definition, within: DefinitionLimits(total: settings.total, perOwner: settings.perOwner))
  }

  /// Called when a request to this gateway has created the session.
  package func noteCreation(of session: Session) {
    guard let creation = session.creation else { return }
    createdCount.add()
    log(
      "a client has created a session",
      [.text("session", session.name), .text("profile", creation.profile), .text("owner", creation.owner)])
  }

  /// Closes a session at all gateways. Returns nil if the session is already closed.
  package func remove(_ session: Session, code: UInt16) -> DefinitionRequest? {
    guard let store = shared.withLock({ $0 }), let slot = slot(of: session), let created = slot.plan.created else {
      return nil
    }
    slot.isIdle.store(false, ordering: .relaxed)
    return store.remove(session.name, created.definition, code: code)
  }

  /// Called when a request to this gateway has closed the session.
  package func noteRemoval(of session: Session) { noteClosing(of: session.name, because: .request) }

  func removeIfIdle(_ session: Session, from store: RedisStore, at now: MonotonicTime) {
    guard let slot = slot(of: session), let created = slot.plan.created else { return }
    // An earlier request to Redis to remove the idle session may have failed, and clients may have used the session
    // since then.
    let isIdle = session.idleDeadline(at: now).map { now >= $0 } ?? false
    slot.isIdle.store(isIdle, ordering: .relaxed)
    guard isIdle else { return }
    store.removeIdle(session.name, created.definition)
  }

  /// The slot of the session, unless it is closed.
  private func slot(of session: Session) -> SharedSlot? {
    guard case .shared(let slot) = shard(session.name).sessions.withLock({ $0[session.name] }),
      slot.placement === session.placement
    else { return nil }
    return slot
  }

  private func noteClosing(of name: String, because reason: ClosingReason) {
    closedCounts[reason]?.add()
    log(
      "a session that a client had created is closed",
      [.text("session", name), .text("reason", reason.rawValue)])
  }

  // MARK: For the store

  /// A client has created the session, at this or another gateway. Returns nil if this gateway is shutting down.
  ///
  /// - Parameters:
  ///   - settings: the settings of the session; nil if this gateway cannot be the holder of the session.
  ///   - standIn: the settings that the session gets if `settings` is nil, since its holder is then always another
  ///     gateway.
  func add(
    _ name: String, _ definition: SessionDefinition, _ settings: PreparedSettings?, orElse standIn: PreparedSettings,
    retention: Retention
  ) -> SharedSlot? {
    let metrics = sharedMetrics()
    let age = max(0, ProcessInformation.wallClockMilliseconds() - definition.time)
    let creation = SessionCreation(
      profile: definition.profile, variables: definition.variables, owner: definition.owner,
      time: ProcessInformation.monotonicTime() - .milliseconds(age), idleLimit: definition.idleLimit,
      incarnation: definition.incarnation)
    return state.withLock { state in
      let position = state.position(of: name)
      guard !state.hasStopped, position == state.open.count || state.open[position].name != name else { return nil }
      let plan = SharedSlot.Plan(
        name, settings ?? standIn, retention: retention, logger: surroundings.logger,
        attemptLimiter: surroundings.attemptLimiter, budget: surroundings.budget, isAlwaysFollowed: false,
        created: SharedSlot.Created(
          creation: creation, definition: definition, directory: self, lineLimiter: lineLimiter,
          mayBeLocal: settings != nil))
      let slot = SharedSlot(plan, sharing: metrics, registry)
      insert(.shared(slot), at: position, &state)
      start(slot, &state)
      return slot
    }
  }

  func start(_ slot: SharedSlot, _ state: inout State) {
    guard let resolver = state.resolver, state.places[slot.plan.name] == nil, let load = state.loads.min(),
      let place = state.loads.firstIndex(of: load)
    else { return }
    state.loads[place] += 1
    state.places[slot.plan.name] = place
    slot.start(on: state.loops[place], resolver: resolver)
  }

  /// The session was closed, at this or another gateway. Its name becomes free, and its clients get 410.
  func remove(_ slot: SharedSlot, code: UInt16) {
    let name = slot.plan.name
    let wasOpen = state.withLock { state in
      let position = state.position(of: name)
      guard position < state.open.count, case .shared(let present) = state.open[position], present === slot else {
        return false
      }
      state.open.remove(at: position)
      _ = shard(name).sessions.withLock { $0.removeValue(forKey: name) }
      if let place = state.places.removeValue(forKey: name) { state.loads[place] -= 1 }
      state.ended += slot.figuresSum.totals
      return true
    }
    guard wasOpen else { return }
    if slot.isIdle.load(ordering: .relaxed) { noteClosing(of: name, because: .idle) }
    slot.close(code: code)
  }
}
