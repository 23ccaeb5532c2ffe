import ByteStreams
import Logging
import RESPCodec
import Reactor
import Redis
import RedisProtocol
import Replication
import Submissions

/// The heartbeat of this gateway, and the deadline until which it may write to upstreams.
extension RedisStoreDriver {
  /// Ends all terms when the time has passed until which this gateway may write.
  func checkDeadline() {
    if heartbeat.check(now: now) { endTerms() }
  }

  /// Unless the deadline has passed. The timer may fire before it, since the time of the loop is that of the beginning of its turn.
  func setDeadlineTimer() {
    if heartbeat.isValid(now: now) { setTimer(.deadline, at: loop.now + (heartbeat.deadline - now)) }
  }

  private func endTerms() {
    let last = store.submissions.lastSubmitted
    // What nobody awaits is taken now, before the next term has another journal.
    areNotesDue = true
    for session in journals.values {
      let wasReported = session.isReported
      session.endTerm(after: last)
      // Its next term would open another socket, to be closed soon.
      if isDraining { releaseSoon(session) }
      if wasReported { delegate?.store(store, lost: session.name, .deadline) }
    }
    logger.warning("the deadline of this gateway has passed: its sessions are closed until Redis works")
    noteAll()
  }

  func sendHeartbeat() {
    guard let connection = link.heartbeats, let next = heartbeat.nextTime else { return }
    guard now >= next else { return setTimer(.heartbeat, at: loop.now + (next - now)) }
    if journals.values.allSatisfy({ $0.holding.isSettled(watch, heartbeat) }) { watch.allAreSettled() }
    let beat = heartbeat.send(now: now)
    let entry = GatewayEntry(
      beat: beat, history: watch.settledHistory, lease: settings.times.lease, isDraining: isDraining,
      address: settings.address,
      configuration: store.configuration, unreachable: peers.named)
    let old = watch.forgettable(now: now)
    let flight = RedisFlight(
      connection, replicas: settings.waitReplicas, nobody: nobody, metrics: metrics
    ) { [unowned self] flight in
      noteOutcome(of: flight)
      flight.report()
    }
    flight.send(.heartbeat, parts: StoreScript.leadingParts + 3 + 2 * old.count) { parts in
      StoreScript.heartbeat.begin(&parts)
      parts.append(gateways)
      parts.append(text { watch.own.write(into: &$0) })
      parts.append(text { entry.write(into: &$0) })
      for (gateway, entry) in old {
        parts.append(text { gateway.write(into: &$0) })
        parts.append(entry)
      }
    } then: { [unowned self] reply, isConfirmed in
      heartbeatReplied(reply, isConfirmed)
    }
    if secret.isDue() { shareSecret(flight) }
    exchangeHosts(flight)
    if !old.isEmpty {
      flight.send(parts: 2 + old.count) { parts in
        parts.append("HDEL")
        parts.append(hostsKey)
        for (gateway, _) in old { parts.append(text { gateway.write(into: &$0) }) }
      } then: { _, _ in
      }
    }
    flight.readVersion(listKeys) { [unowned self] in definitions.compare($0) }
    if conditions.isMemoryDue(now: now) {
      flight.send(parts: 2) { parts in
        parts.append("INFO")
        parts.append("memory")
      } then: { [unowned self] reply, _ in
        if let notice = reply?.text.flatMap({ conditions.observed(memory: $0, now: now) }) { log([notice]) }
      }
    }
    flight.send(parts: 2) { parts in
      parts.append("INFO")
      parts.append("replication")
    } then: { [unowned self] reply, _ in
      heartbeatEnded(reply)
    }
    flight.depart()
    if flight.hasFailed { link.reset(.disconnected("no heartbeat could be sent")) }
  }

  /// Asks for the secret of the gateways, and stores that of this one if there is none.
  private func shareSecret(_ flight: RedisFlight) {
    let key = SessionKeys.peers(prefix: settings.prefix)
    flight.send(parts: 3) { parts in
      parts.append("SETNX")
      parts.append(key)
      parts.append(secret.text)
    } then: { _, _ in
    }
    flight.send(parts: 2) { parts in
      parts.append("GET")
      parts.append(key)
    } then: { [unowned self] reply, _ in
      if secret.received(reply?.bytes) { delegate?.store(store, shares: secret.text) }
    }
  }

  private func heartbeatReplied(_ reply: RESPReply?, _ isConfirmed: Bool) {
    let lapses = heartbeat.lapses
    heartbeat.finished(isConfirmed: isConfirmed && reply != nil, now: now)
    if heartbeat.lapses != lapses { endTerms() }
    store.setDeadline(heartbeat.deadline)
    if isConfirmed, reply != nil { metrics.noteHeartbeat(at: now) }
    guard let elements = reply?.elements else { return }
    var entries: [(gateway: GatewayID, text: [UInt8])] = []
    for index in stride(from: 0, to: elements.count - 1, by: 2) {
      guard let gateway = elements[index].bytes.flatMap({ GatewayID($0.span) }), let text = elements[index + 1].bytes
      else { continue }
      entries.append((gateway, text))
    }
    if watch.received(entries, now: now) {
      logger.warning("Redis has lost its data: this gateway stores again what it holds")
      forgetStored()
      disconnectAll()
    }
    log(conditions.observed(store.configuration, watch.otherConfigurations(now: now), now: now))
    checkPeers()
    for name in places.found(watch.addresses(now: now)) { reportPlace(of: name) }
  }

  /// The last part of a heartbeat.
  private func heartbeatEnded(_ reply: RESPReply?) {
    if let text = reply?.text {
      if let history = Self.history(in: text) { connected(to: history) }
      let required = settings.waitReplicas
      if let notice = conditions.observed(replication: text, required: required, now: now) { log([notice]) }
    }
    setDeadlineTimer()
    for (name, entry) in sessions {
      if let followed = entry.followed, loop.now >= followed.lastUse + FollowedSession.idleTime { unfollow(name) }
    }
    report(definitions.expire(now: now) { sessions[$1.storedName($0)]?.held != nil })
    noteMissing()
    finishCreations()
    noteAll()
    turn()
    sendHeartbeat()
  }

  /// `master_replid` in the reply to `INFO replication`.
  private static func history(in information: String) -> String? {
    for line in information.split(whereSeparator: \.isNewline) where line.hasPrefix("master_replid:") {
      return String(line.dropFirst("master_replid:".count))
    }
    return nil
  }
}
