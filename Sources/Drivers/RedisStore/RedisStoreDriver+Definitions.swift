import ByteStreams
import Logging
import Reactor
import Replication
import Totals

/// The list of created sessions: this gateway's copy, and its changes.
extension RedisStoreDriver {
  /// Maximum number of pending changes, and of pending lookups. Further changes and lookups are refused, so that
  /// memory does not grow while clients create sessions and Redis is slow. One owner's changes, and one client's
  /// lookups, are limited to a share.
  private static var waiting: Reserve { Reserve(limit: 1_024) }
  /// Maximum number of changes in a flight, so that clients that create sessions leave room for entries. If a WAIT
  /// takes 5 ms, this allows 12,800 changes per second.
  private static var changesPerFlight: Int { 64 }
  /// Maximum number of lost sessions that one flight defines again. The other gateways remove a lost session only after
  /// `store.lease` and a second.
  private static var missingPerFlight: Int { 256 }
  /// Maximum number of lost removals that one flight repeats. No client waits for them, and the other gateways repeat
  /// them, too.
  private static var returnedPerFlight: Int { 256 }

  // MARK: Changes

  func change(_ change: DefinitionChange) {
    if changes.count >= Self.waiting.limit {
      changes.removeAll { !$0.isSent && $0.change.request?.isAbandoned ?? false }
    }
    let owner = change.definition.owner
    guard !isClosing,
      Self.waiting.admits(
        1, used: changes.count, own: owner.isEmpty ? nil : changes.count { $0.change.definition.owner == owner })
    else {
      change.request?.finish(.failed)
      return
    }
    if case .removeIdle = change.kind {
      // The removal of an idle session is requested repeatedly, so it need not wait for Redis. A removal that has
      // waited could remove a session that clients have begun to use again.
      let isPending = changes.contains { $0.change.request == nil && $0.change.definition == change.definition }
      guard sharedLog.isUp, !isPending else { return }
    }
    changes.append((change, false))
  }

  /// Sends the commands that concern the list.
  func decideDefinitions(_ flight: LogFlight) {
    if let (cursor, isFirst) = definitions.takePage() {
      if isFirst { flight.send(.readVersion) { [unowned self] reply, _ in definitions.began(at: reply.value) } }
      flight.send(.readPage(from: cursor)) { [unowned self] reply, _ in
        if case .page(let page) = reply { add(page) } else { definitions.failed() }
      }
    }
    // Removals are sent first, so that later changes find these names free.
    var room = Self.returnedPerFlight
    while room > 0, !flight.isFull, let name = returned.takeFirst() {
      guard let (definition, code) = definitions.returned[name] else { continue }
      room -= 1
      send(DefinitionChange(.remove(code: code), name, definition), flight)
    }
    sendLookups(flight)
    room = Self.changesPerFlight
    for (change, isSent) in changes where !isSent {
      guard room > 0, !flight.isFull else { break }
      guard change.request?.isAbandoned != true else {
        end(change, .failed)
        continue
      }
      room -= 1
      if let index = changes.firstIndex(where: { $0.change === change }) { changes[index].isSent = true }
      send(change, flight)
    }
    room = Self.missingPerFlight
    while room > 0, !flight.isFull, let name = missing.takeFirst() {
      guard let definition = definitions.missingDefinition(of: name),
        sessions[definition.storedName(name)]?.local != nil
      else {
        continue
      }
      room -= 1
      send(DefinitionChange(.define(limits: nil), name, definition), flight)
    }
  }

  private func send(_ change: DefinitionChange, _ flight: LogFlight) {
    switch change.kind {
    case .define(let limits):
      // The client waits for the session, so the gateway that received its request should acquire the session.
      flight.send(
        .define(
          change.name, change.definition, limits, first: limits == nil ? nil : watch.own, newList: loop.entropy.next())
      ) { [unowned self] reply, isConfirmed in
        defined(change, reply.definition, isConfirmed)
      }
    case .remove(let code):
      remove(change, code: code, holder: nil, flight)
    case .removeIdle:
      let storedName = change.definition.storedName(change.name)
      guard let token = sessions[storedName]?.local?.tenure.token else { return end(change, .failed) }
      remove(change, code: 1000, holder: token, flight)
    }
  }

  private func remove(_ change: DefinitionChange, code: UInt16, holder: HolderToken?, _ flight: LogFlight) {
    flight.send(.remove(change.name, change.definition, code: code, holder: holder)) {
      [unowned self] reply, isConfirmed in
      removed(change, code: code, reply.definition, isConfirmed)
    }
  }

  private func end(_ change: DefinitionChange, _ outcome: DefinitionRequest.Outcome) {
    changes.removeAll { $0.change === change }
    change.request?.finish(outcome)
  }

  private func defined(_ change: DefinitionChange, _ reply: DefinitionReply, _ isConfirmed: Bool) {
    switch reply {
    case .done(let version):
      report(definitions.adopt(change.name, change.definition, at: version))
      defined(change, isConfirmed: isConfirmed)
    case .other(let text, let version):
      let other = SessionDefinition(text.span)
      // The notification about the other definition may not have arrived yet. The definition is adopted now, since the
      // client must find the session.
      if let other, let version { report(definitions.adopt(change.name, other, at: version)) }
      if let other, definitions.hasRemoved(other) { return sendAgain(change) }
      noteOther(change, .exists(other))
    case .removed: noteOther(change, .failed)
    case .tooMany: end(change, .tooMany)
    case .tooManyOfOwner: end(change, .tooManyOfOwner)
    case .fenced, .refused: end(change, .failed)
    }
  }

  /// Called when a failover has restored a removed session of this name. Removes that session, and then sends the
  /// change again.
  private func sendAgain(_ change: DefinitionChange) {
    returned.insert(change.name)
    // A change without a client needs no repetition: the next heartbeat finds the session missing.
    guard let index = changes.firstIndex(where: { $0.change === change }) else { return }
    changes[index].isSent = false
  }

  /// Reports the outcome to the client when this gateway is the holder, so that the client's next request finds the
  /// session working. If another gateway acquires the session first, the client waits for `acquisitionTime`.
  private func defined(_ change: DefinitionChange, isConfirmed: Bool) {
    changes.removeAll { $0.change === change }
    guard let request = change.request else { return }
    guard isConfirmed else { return request.finish(.failed) }
    created[change.definition.storedName(change.name)] = (request, now + Self.acquisitionTime)
  }

  /// How long a client waits until this gateway is the holder of its session.
  private static var acquisitionTime: TimeSpan { .seconds(1) }

  /// Called when this gateway has become the holder.
  func finishCreation(of name: String) { created.removeValue(forKey: name)?.request.finish(.done) }

  /// Called with each heartbeat.
  func finishCreations() {
    for (name, creation) in created where creation.end <= now || isClosing { finishCreation(of: name) }
  }

  /// Called when Redis does not accept the definition. If this gateway was restoring a session, that session counts as
  /// removed.
  private func noteOther(_ change: DefinitionChange, _ outcome: DefinitionRequest.Outcome) {
    if change.request == nil {
      report(definitions.adopt(removalOf: change.name, change.definition, code: 1000, at: nil))
    }
    end(change, outcome)
  }

  private func removed(_ change: DefinitionChange, code: UInt16, _ reply: DefinitionReply, _ isConfirmed: Bool) {
    switch reply {
    case .done(let version):
      report(definitions.adopt(removalOf: change.name, change.definition, code: code, at: version))
      end(change, isConfirmed ? .done : .failed)
    case .other(let text, _):
      // Another request has removed the session already, and a new session may have the name now. This gateway forgets
      // the removed session here, so that the next removal by name applies to the new session.
      report(definitions.adopt(removalOf: change.name, change.definition, code: code, at: nil))
      end(change, text.isEmpty ? .done : .failed)
    case .removed, .tooMany, .tooManyOfOwner, .fenced, .refused: end(change, .failed)
    }
  }

  // MARK: Lookups

  func lookUp(_ name: String, _ request: DefinitionRequest) {
    let client = request.client
    if lookups.count >= Self.waiting.limit { lookups.removeAll { $0.request.isAbandoned } }
    guard !isClosing,
      Self.waiting.admits(
        1, used: lookups.count, own: client == 0 ? nil : lookups.count { $0.request.client == client })
    else { return request.finish(.failed) }
    lookups.append(Lookup(name: name, request: request))
  }

  private func sendLookups(_ flight: LogFlight) {
    var count = 0
    while count < lookups.count, count < Self.changesPerFlight, !flight.isFull {
      let lookup = lookups[count]
      count += 1
      guard !lookup.request.isAbandoned else { continue }
      sentLookups.append(lookup)
      var version: [UInt8]?
      // The version is read before the definition, so that a removal between the two reads counts as a later change.
      flight.send(.readVersion) { reply, _ in version = reply.value }
      flight.send(.readDefinition(lookup.name)) { [unowned self] reply, _ in
        if let definition = reply.value.flatMap({ SessionDefinition($0.span) }) {
          report(definitions.adopt(lookup.name, definition, at: version))
        }
        sentLookups.removeAll { $0.request === lookup.request }
        lookup.request.finish(reply.isRefused ? .failed : .done)
      }
    }
    lookups.removeFirst(count)
  }

  /// Fails all lookups: a session that could not be looked up must not count as missing.
  func endLookups() {
    for lookup in sentLookups + lookups { lookup.request.finish(.failed) }
    (sentLookups, lookups) = ([], [])
  }

  // MARK: The list

  private func add(_ page: DefinitionPage) {
    let (changes, unreadable) = definitions.add(page.entries, next: page.cursor, now: now)
    for name in unreadable {
      logger.error(
        "the definition of a session in Redis cannot be read, and the session is not used", [.text("session", name)])
    }
    report(changes)
    guard definitions.isComplete else { return }
    if !definitions.returned.isEmpty {
      logger.warning(
        "Redis has lost removals of sessions, which are repeated", [.number("sessions", definitions.returned.count)])
    }
    noteMissing()
    if missing.count > 0 {
      logger.warning("Redis has lost sessions, which are defined again", [.number("sessions", missing.count)])
    }
  }

  /// Called when the list was read, and with each heartbeat, since Redis may have refused a change.
  func noteMissing() {
    guard missing.count == 0 else { return }
    for (name, definition) in definitions.missing where sessions[definition.storedName(name)]?.local != nil {
      missing.insert(name)
    }
  }

  func report(_ changes: [DefinitionList.Change]) {
    // The list `returned` includes sessions whose removal Redis has refused. Their removal is tried again, since each
    // heartbeat calls `report`, even without changes.
    if returned.count == 0 { returned.insert(definitions.returned.keys) }
    for change in changes {
      switch change {
      case .defined(let name, let definition): delegate?.store(store, defines: name, definition)
      case .removed(let name, let definition, let code):
        // The removal is reported before the session is lost. The loss ends waiting requests, and these must find the
        // session closed.
        delegate?.store(store, removes: name, definition, code: code)
        forget(definition.storedName(name))
      }
    }
    // The list is complete only when the delegate has all its sessions.
    store.setKnowsDefinitions(definitions.isComplete)
  }

  /// Whether this was a created session that no longer exists.
  func isRemoved(_ name: String) -> Bool {
    guard let parts = SessionDefinition.parts(of: name) else { return false }
    let clientName = String(parts.name)
    return definitions.definition(of: clientName)?.storedName(clientName) != name
  }

  /// Called when the session no longer exists.
  private func forget(_ name: String) {
    finishCreation(of: name)
    loads.end(name)
    replacements.end(name)
    guard let entry = sessions[name] else { return }
    endTenure(of: name, entry)
    entry.followed = nil
    forgetIfUnused(name)
  }

  /// Called when a connection has begun or ended. The outcome of the sent changes and lookups is unknown, so they are
  /// sent again, except removals of idle sessions.
  func disconnectDefinitions() {
    lookups.insert(contentsOf: sentLookups, at: 0)
    sentLookups = []
    changes.removeAll { if case .removeIdle = $0.change.kind { true } else { false } }
    for index in changes.indices { changes[index].isSent = false }
    // A page may have been lost with the connection, or Redis may have another list now.
    definitions.failed()
  }
}
