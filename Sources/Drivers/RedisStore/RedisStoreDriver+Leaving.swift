import Logging
import Replication

/// Sessions that are lost, released, damaged or no longer followed.
extension RedisStoreDriver {
  /// Ends the tenure of this gateway. The gateway is a candidate again, unless it has released the session.
  func remove(_ session: LocalSession, _ loss: SessionLoss) {
    let wasReported = session.isReported
    release(session.abandon())
    replacements.end(session.name)
    endHolding(session)
    if !session.isLeaving, !isClosing {
      let candidate = Candidate(session: session.name, counter: session.tenure.token.term.counter)
      sessions[session.name]?.phase = .candidate(candidate)
      note(session.name)
    }
    forgetIfUnused(session.name)
    if wasReported || loss == .released { delegate?.store(store, lost: session.name, loss) }
  }

  /// Ends a tenure without a release.
  func giveUp(_ session: LocalSession, _ reason: Tenure.GiveUpReason) {
    switch reason {
    case .anotherHolder:
      metrics.noteFenced()
      logger.warning("another gateway has taken a session", [.text("session", session.name)])
      remove(session, .fenced)
    case .noHolder where session.isLeaving || isClosing: remove(session, .released)
    case .noHolder:
      logger.warning("Redis no longer names this gateway as the holder of a session", [.text("session", session.name)])
      remove(session, .noHolder)
    case .mayLackWrites:
      logger.warning(
        "a session is given up: Redis may have lost its last entries, and the deadline of this gateway has passed",
        [.text("session", session.name)])
      remove(session, .mayLackWrites)
    }
  }

  private func endHolding(_ session: LocalSession) {
    sessions[session.name]?.phase = .none
    journals[session.index] = nil
    noteLocal(session, -1)
  }

  func releaseSoon(_ session: LocalSession) {
    session.tenure.releaseSoon(to: watch.successor(for: session.name, now: now))
    note(session.name)
  }

  /// Ends the loading of a session, and releases its acquisition.
  func stopLoading(_ name: String, _ entry: SessionRole) {
    guard let loading = endLoading(of: name, entry) else { return }
    entry.unwanted = loading.acquisition
    note(name)
  }

  /// Called for each session when this gateway drains.
  func stopAcquiring(_ name: String, _ entry: SessionRole) {
    guard entry.loading != nil else { return }
    stopLoading(name, entry)
    entry.candidate?.failed(now: now)
  }

  /// Ends the loading of a session. This gateway is a candidate again.
  @discardableResult
  func endLoading(of name: String, _ entry: SessionRole) -> SessionLoading? {
    guard let loading = entry.endLoading() else { return nil }
    loadingCount -= 1
    loads.end(name)
    return loading
  }

  /// Ends every role of this gateway except following, and no longer counts the session as damaged. Reports nothing to
  /// the delegate.
  func endTenure(of name: String, _ entry: SessionRole) {
    endLoading(of: name, entry)
    if let session = entry.local {
      release(session.abandon())
      endHolding(session)
    }
    let wasDamaged = entry.isDamaged
    entry.phase = .none
    if wasDamaged { reportDamage() }
  }

  func noteDamage(_ name: String, _ what: String) {
    let entry = entry(of: name)
    endLoading(of: name, entry)
    loads.end(name)
    entry.phase = .damaged
    logger.error("a session in Redis is damaged, and is not used", [.text("session", name), .text("reason", what)])
    reportDamage("session '\(name)' is damaged: \(what)")
  }

  func reportDamage(_ text: String? = nil) {
    metrics.setDamaged(sessions.values.count(where: \.isDamaged))
    store.report(damage: text ?? sessions.first(where: \.value.isDamaged).map { "session '\($0.key)' is damaged" })
  }

  func unfollow(_ name: String) {
    guard let entry = sessions[name], entry.followed != nil else { return }
    entry.followed = nil
    delegate?.store(store, follows: name, .ended)
    forgetIfUnused(name)
  }
}
