import ByteStreams
import Logging
import Reactor
import Replication
import Submissions

/// The heartbeat of this gateway, and the deadline until which it may write to upstreams.
extension RedisStoreDriver {
  /// Ends all terms if the deadline until which this gateway may write has passed.
  func checkDeadline() {
    if heartbeat.check(now: now) { endTerms() }
  }

  /// Does nothing if the deadline has passed. The timer may fire before the deadline, since `loop.now` is the time at
  /// which the turn began.
  func setDeadlineTimer() {
    if heartbeat.isValid(now: now) { setTimer(.deadline, at: loop.now + (heartbeat.deadline - now)) }
  }

  private func endTerms() {
    let last = store.submissions.lastSubmitted
    // The submitted notes must be taken now, before the next term has a new journal.
    areNotesDue = true
    for session in journals.values {
      let wasReported = session.isReported
      session.endTerm(after: last)
      // While this gateway drains, the session gets no further term here: it would open a socket that must be closed
      // again soon.
      if isDraining { releaseSoon(session) }
      if wasReported { delegate?.store(store, lost: session.name, .deadline) }
    }
    logger.warning("the deadline of this gateway has passed: its sessions are closed until Redis works")
    noteAll()
  }

  func sendHeartbeat() {
    guard sharedLog.isUp, let next = heartbeat.nextTime else { return }
    guard now >= next else { return setTimer(.heartbeat, at: loop.now + (next - now)) }
    if journals.values.allSatisfy({ $0.tenure.isSettled(watch, heartbeat) }) { watch.allAreSettled() }
    let beat = heartbeat.send(now: now)
    let entry = GatewayEntry(
      beat: beat, history: watch.settledHistory, lease: settings.times.lease, isDraining: isDraining,
      address: settings.address,
      configuration: store.configuration, unreachable: peers.named)
    let old = watch.forgettable(now: now)
    let flight = LogFlight(replicas: settings.waitReplicas)
    flight.send(.heartbeat(watch.own, text { entry.write(into: &$0) }, forgetting: old)) {
      [unowned self] reply, isConfirmed in
      heartbeatReplied(reply, isConfirmed)
    }
    if secret.isDue() { shareSecret(flight) }
    exchangeHosts(flight)
    if !old.isEmpty { flight.send(.forgetHosts(old.map(\.gateway))) }
    flight.send(.readVersion) { [unowned self] reply, _ in definitions.compare(reply.value) }
    if conditions.isMemoryDue(now: now) {
      flight.send(.readMemory) { [unowned self] reply, _ in
        let text = reply.value.map { $0.span.text() }
        if let notice = text.flatMap({ conditions.observed(memory: $0, now: now) }) { log([notice]) }
      }
    }
    flight.send(.readReplication) { [unowned self] reply, _ in heartbeatEnded(reply) }
    let isSent = flight.depart(over: sharedLog, on: .heartbeats) { [unowned self] flight in
      noteOutcome(of: flight)
      flight.report()
    }
    if !isSent { sharedLog.reset("no heartbeat could be sent") }
  }

  /// Reads the secret of the gateways. Stores the secret of this gateway if there is none.
  private func shareSecret(_ flight: LogFlight) {
    flight.send(.shareSecret(secret.text)) { [unowned self] reply, _ in
      if secret.received(reply.value) { delegate?.store(store, shares: secret.text) }
    }
  }

  private func heartbeatReplied(_ reply: LogReply, _ isConfirmed: Bool) {
    let lapses = heartbeat.lapses
    let isConfirmed = isConfirmed && !reply.isRefused
    heartbeat.finished(isConfirmed: isConfirmed, now: now)
    if heartbeat.lapses != lapses { endTerms() }
    store.setDeadline(heartbeat.deadline)
    if isConfirmed { metrics.noteHeartbeat(at: now) }
    guard case .gateways(let entries) = reply else { return }
    if watch.received(entries, now: now) {
      logger.warning("Redis has lost its data: this gateway stores its sessions again")
      forgetStored()
      disconnectAll()
    }
    log(conditions.observed(store.configuration, watch.otherConfigurations(now: now), now: now))
    checkPeers()
    for name in places.found(watch.addresses(now: now)) { reportPlace(of: name) }
  }

  /// Called with the reply to the last command of a heartbeat.
  private func heartbeatEnded(_ reply: LogReply) {
    if case .replication(let history, let text) = reply {
      if let history { connected(to: history) }
      let required = settings.waitReplicas
      if let notice = conditions.observed(replication: text, required: required, now: now) { log([notice]) }
    }
    setDeadlineTimer()
    for (name, entry) in sessions {
      if let followed = entry.followed, loop.now >= followed.lastUse + FollowedSession.idleTime { unfollow(name) }
    }
    report(definitions.expire(now: now) { sessions[$1.storedName($0)]?.local != nil })
    noteMissing()
    finishCreations()
    noteAll()
    turn()
    sendHeartbeat()
  }
}
