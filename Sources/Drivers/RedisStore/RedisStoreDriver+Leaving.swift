import Logging
import Redis
import Replication

/// Sessions that are lost, released, damaged or not followed any more.
extension RedisStoreDriver {
  /// A session is not held any more, and is taken again unless it was released.
  func remove(_ session: HeldSession, _ loss: SessionLoss) {
    let wasReported = session.isReported
    release(session.abandon())
    replacements.end(session.name)
    held[session.name] = nil
    journals[session.index] = nil
    noteHeld(session, -1)
    if leaving.remove(session.name) == nil, !isClosing {
      candidates[session.name] = Candidate(session: session.name, counter: session.holding.token.term.counter)
      note(session.name)
    }
    unsubscribe(session.name)
    if wasReported || loss == .released { delegate?.store(store, lost: session.name, loss) }
  }

  func releaseSoon(_ session: HeldSession) {
    session.holding.releaseSoon(to: watch.successor(for: session.name, now: now))
    note(session.name)
  }

  /// What was acquired is not to be used.
  func stopLoading(_ name: String) {
    guard let loading = loading.removeValue(forKey: name) else { return }
    loads.end(name)
    unwanted[name] = loading.acquisition
    note(name)
  }

  /// This gateway drains.
  func stopAcquiring(_ name: String) {
    stopLoading(name)
    candidates[name]?.failed(now: now)
  }

  func noteDamage(_ name: String, _ what: String) {
    damaged.insert(name)
    candidates[name] = nil
    loading[name] = nil
    loads.end(name)
    logger.error("a session in Redis is damaged, and is not used", [.text("session", name), .text("reason", what)])
    reportDamage("session '\(name)' is damaged: \(what)")
  }

  func reportDamage(_ text: String? = nil) {
    metrics.setDamaged(damaged.count)
    store.report(damage: text ?? damaged.first.map { "session '\($0)' is damaged" })
  }

  func unfollow(_ name: String) {
    guard followed.removeValue(forKey: name) != nil else { return }
    delegate?.store(store, follows: name, .ended)
    unsubscribe(name)
  }

  /// Keeps nothing of the session, unless it still concerns this gateway.
  func unsubscribe(_ name: String) {
    guard candidates[name] == nil, held[name] == nil, followed[name] == nil, unwanted[name] == nil else { return }
    places.forget(name)
    _ = link.notifications?.unsubscribe([keys(name).channel])
  }
}
