import ByteStreams
import Journal
import Logging
import Reactor
import Replication
import Submissions

/// Acquires sessions, writes them as their holder, and gives them up.
extension RedisStoreDriver {
  // MARK: Acquiring

  func decideCandidate(_ name: String, _ entry: SessionRole, _ flight: LogFlight) {
    if let loading = entry.loading { return load(name, loading, flight) }
    guard
      let command = entry.candidate?.next(
        isDraining: isDraining || hasNoRoom(for: name), isBusy: !loads.hasRoom, watch, heartbeat, now: now,
        using: &loop.entropy)
    else { return }
    // This case is handled first, for speed: nearly all candidates have nothing to do, and each heartbeat checks all of
    // them.
    if case .none = command { return }
    switch command {
    case .none: break
    case .wait: loads.wait(name)
    case .read:
      flight.send(.read(name, .pushes, after: .none, bytes: 0)) { [unowned self] reply, _ in
        switch reply {
        case .part(let part):
          sessions[name]?.candidate?.observed(part.record)
          observed(part.record, of: name)
        case .malformed: if sessions[name]?.candidate != nil { noteDamage(name, "its record") }
        default: sessions[name]?.candidate?.failed(now: now)
        }
        note(name)
      }
    case .acquire(let acquisition):
      acquiring += 1
      _ = loads.begin(name)
      flight.send(.acquire(acquisition, name)) { [unowned self] reply, _ in
        acquired(acquisition, of: name, reply.isDone)
        note(name)
      }
    }
  }

  private func acquired(_ acquisition: Acquisition, of name: String, _ isOK: Bool) {
    guard isOK else {
      loads.end(name)
      sessions[name]?.candidate?.failed(now: now)
      return
    }
    let entry = entry(of: name)
    guard let candidate = entry.candidate else {
      loads.end(name)
      entry.unwanted = acquisition
      return
    }
    entry.phase = .loading(candidate, SessionLoading(acquisition))
    loadingCount += 1
    // A draining or full gateway acquires a session that Redis already assigns to it, but only to release it (see
    // `Candidate.next`).
    if isDraining || hasTooMany(with: name) { stopAcquiring(name, entry) }
  }

  /// Whether this is a created session and no descriptors are left for its connection. Each heartbeat checks this
  /// again.
  private func hasNoRoom(for name: String) -> Bool {
    createdLocal + loadingCount + acquiring >= settings.createdSessions && SessionDefinition.parts(of: name) != nil
  }

  private func hasTooMany(with name: String) -> Bool {
    createdLocal + loadingCount > settings.createdSessions && SessionDefinition.parts(of: name) != nil
  }

  /// Called when this gateway has acquired or lost a session.
  func noteLocal(_ session: LocalSession, _ change: Int) {
    if SessionDefinition.parts(of: session.name) != nil { createdLocal += change }
    metrics.setLocal(journals.count)
    store.setFull(createdLocal >= settings.createdSessions)
  }

  /// Releases an acquisition that is not used, so that other gateways need not wait until it expires.
  func release(_ acquisition: Acquisition, of name: String, _ flight: LogFlight) {
    let condition = LogCondition(
      acquisition.token, history: acquisition.history, after: acquisition.expected.sequence)
    flight.send(.release(name, condition, to: watch.successor(for: name, now: now))) { [unowned self] _, _ in
      sessions[name]?.unwanted = nil
      forgetIfUnused(name)
      note(name)
    }
  }

  /// Reads the next part of a session.
  private func load(_ name: String, _ loading: SessionLoading, _ flight: LogFlight) {
    let stream = loading.readsPushes ? LogStream.pushes : .changes
    flight.send(.read(name, stream, after: loading.last, bytes: loading.partBytes)) { [unowned self] reply, _ in
      guard let entry = sessions[name], entry.loading === loading else { return }
      note(name)
      switch reply {
      case .part(let part) where part.record.token == loading.acquisition.token:
        switch loading.add(part) {
        case .reads: break
        case .damaged(let what): noteDamage(name, what)
        case .loaded(let restored): begin(name, entry, loading, restored)
        }
      case .malformed: noteDamage(name, "an entry of a stream")
      default:
        endLoading(of: name, entry)
        entry.candidate?.failed(now: now)
      }
    }
  }

  private func begin(
    _ name: String, _ entry: SessionRole, _ loading: SessionLoading, _ restored: RestoredSession
  ) {
    endLoading(of: name, entry)
    guard let tenure = entry.candidate?.acquired() else { return }
    let session = LocalSession(
      name, tenure, JournaledSession(restored), lastPush: loading.readsPushes ? loading.last : .none,
      stateBytes: loading.stateBytes, changeBytes: loading.changeBytes, index: nextIndex(), store.submissions)
    guard session.begin(mayHaveLostEntries: loading.acquisition.mayHaveLostEntries) else {
      return noteDamage(name, "its terms")
    }
    becomeHolder(of: session)
  }

  /// Called when a record was read. The session may have been removed since.
  private func observed(_ record: SharedRecord, of name: String) {
    guard let entry = sessions[name], entry.local == nil, entry.candidate != nil || entry.followed != nil else {
      return
    }
    places.observed(record.token, of: name)
    reportPlace(of: name)
  }

  func reportPlace(of name: String) {
    guard sessions[name]?.local == nil, let change = places.change(of: name, own: watch.own) else { return }
    delegate?.store(store, finds: name, at: change.holder)
  }

  private func becomeHolder(of session: LocalSession) {
    places.forget(session.name)
    let entry = entry(of: session.name)
    let last = entry.local
    entry.phase = .local(session)
    if let last { journals[last.index] = nil }
    journals[session.index] = session
    noteLocal(session, last == nil ? 1 : 0)
    note(session.name)
  }

  // MARK: Tenure

  func decide(_ session: LocalSession, _ flight: LogFlight) {
    reportIfLocal(session)
    if session.needsCompaction { session.tenure.replaceSoon() }
    let command = session.tenure.next(
      hasEntries: session.hasEntries, watch, heartbeat, now: now, using: &loop.entropy)
    let token = session.tenure.token
    switch command {
    case .none: break
    case .read:
      flight.send(.read(session.name, .pushes, after: .none, bytes: 0)) { [unowned self] reply, isConfirmed in
        ifLocal(session) { session in
          switch reply {
          case .part(let part): session.tenure.observed(part.record, isConfirmed: isConfirmed)
          // An entry is damaged. The session becomes a candidate again: the next acquisition reads the whole session,
          // and reports the damage.
          case .malformed: remove(session, .fault)
          default: session.tenure.failed(now: now)
          }
        }
      }
    case .append(let number, let expected, let history):
      guard session.write?.isState != true else {
        // The write is a whole state, which cannot be appended, and its entries are no longer available separately. So
        // the state is written again.
        session.tenure.failed(now: now)
        session.tenure.replaceSoon()
        return
      }
      let write = session.prepareBatch(number: number)
      guard !stopIfFaulty(session) else { return }
      flight.send(
        .append(
          session.name, LogCondition(token, history: history, after: expected), number: number,
          firstKept: write.firstKept, changes: write.changes.first ?? [], pushes: write.pushes[...])
      ) { [unowned self] reply, isConfirmed in
        written(session, reply.isDone, isConfirmed)
      }
    case .replace(let number, let record):
      session.plannedState = (number, record)
      guard beginReplacement(of: session) else { return }
      advance(session, flight)
    case .acquire(let acquisition):
      flight.send(.acquire(acquisition, session.name)) { [unowned self] reply, _ in
        ifLocal(session) { session in
          guard reply.isDone else { return session.tenure.failed(now: now) }
          session.tenure.acquired()
          if acquisition.token != token { renew(session) }
        }
      }
    case .stamp(let from, let to, let counter):
      let condition = LogCondition(token, history: from, after: session.tenure.sequence)
      flight.send(.stamp(session.name, condition, history: to, counter: counter)) { [unowned self] reply, _ in
        ifLocal(session) { session in
          if reply.isDone { session.tenure.stamped() } else { session.tenure.failed(now: now) }
        }
      }
    case .release(let history, let expected, let successor):
      let condition = LogCondition(token, history: history, after: expected)
      flight.send(.release(session.name, condition, to: successor)) { [unowned self] reply, _ in
        ifLocal(session) { session in
          if reply.isDone { remove(session, .released) } else { session.tenure.failed(now: now) }
        }
      }
    case .giveUp(let reason): giveUp(session, reason)
    }
    if case .none = command, beginReplacement(of: session) { advance(session, flight) }
  }

  /// Calls `body`, which reports a result to the session. Does nothing if the session was lost after the command was
  /// sent.
  private func ifLocal(_ session: LocalSession, _ body: (LocalSession) -> Void) {
    guard isLocal(session) else { return }
    body(session)
    guard isLocal(session) else { return note(session.name) }
    let (cost, changed) = session.takeStored()
    reportIfLocal(session)
    release(cost)
    for journal in changed { journal.notify() }
    note(session.name)
  }

  private func isLocal(_ session: LocalSession) -> Bool { sessions[session.name]?.local === session }

  private func written(_ session: LocalSession, _ isOK: Bool, _ isConfirmed: Bool) {
    ifLocal(session) { session in
      guard isOK, let write = session.write else { return session.tenure.failed(now: now) }
      metrics.noteBytes(write.changeBytes + write.pushes.reduce(0) { $0 + $1.bytes.count })
      session.tenure.stored(isConfirmed: isConfirmed, last: session.lastPush)
    }
  }

  /// Reports the session to the delegate once its term is stored, and no other gateway may write to the upstream.
  private func reportIfLocal(_ session: LocalSession) {
    guard !session.isReported, session.isBegun, session.tenure.mayWrite(heartbeat, now: now) else { return }
    session.isReported = true
    // A holder does not follow its own session, even if a reader has just requested it.
    unfollow(session.name)
    metrics.noteTakeOver()
    logger.info(
      "this gateway is the holder of the session",
      [.text("session", session.name), .number("term", Int(session.tenure.token.term.counter))])
    delegate?.store(store, acquired: session.name, session.opened)
    finishCreation(of: session.name)
  }

  /// Continues the session in a new term, because the holder's deadline had passed.
  private func renew(_ session: LocalSession) {
    let next = LocalSession(continuing: session, index: nextIndex(), store.submissions)
    guard next.begin(mayHaveLostEntries: false) else {
      remove(session, .fault)
      return noteDamage(session.name, "its terms")
    }
    becomeHolder(of: next)
  }

  /// Gives a faulty session up. Entries that were reported as stored stay stored, and the next holder continues from
  /// them.
  private func stopIfFaulty(_ session: LocalSession) -> Bool {
    guard session.isFaulty else { return false }
    logger.error(
      "a session is no longer stored: one of its changes does not follow the previous change",
      [.text("session", session.name)])
    remove(session, .fault)
    return true
  }

  // MARK: Replacing the state

  /// Returns whether a replacement is in progress.
  private func beginReplacement(of session: LocalSession) -> Bool {
    guard let (number, record) = session.plannedState else { return session.replacement != nil }
    guard replacements.begin(session.name) else { return false }
    session.plannedState = nil
    let write = session.prepareState(number: number, after: record.last)
    guard !stopIfFaulty(session) else { return false }
    session.replacement = StateReplacement(write, record, session.tenure.token)
    return true
  }

  /// Sends the next commands of a replacement. Each group is sent after all earlier groups have succeeded, since a
  /// write must not refer to data that is not stored.
  private func advance(_ session: LocalSession, _ flight: LogFlight) {
    guard let replacement = session.replacement, !replacement.isWaiting else { return }
    replacement.isWaiting = true
    replacement.send(session.name, flight) { [unowned self] reply, isConfirmed in
      guard isLocal(session), session.replacement === replacement else { return }
      replacement.isWaiting = false
      if reply.isDone, !replacement.isComplete { return note(session.name) }
      session.replacement = nil
      replacements.end(session.name)
      written(session, reply.isDone, isConfirmed)
    }
  }

  // MARK: Following

  func follow(_ name: String, refresh: UInt64, hasReaders: Bool) {
    if sessions[name]?.local?.isReported == true { return }
    let entry = entry(of: name)
    if entry.followed == nil {
      followings += 1
      entry.followed = FollowedSession(number: followings)
      subscribe(name)
    }
    entry.followed?.ask(refresh: refresh, hasReaders: hasReaders, now: loop.now)
    note(name)
  }

  func readFollowed(_ name: String, _ entry: SessionRole, _ flight: LogFlight) {
    guard let session = entry.followed else { return }
    if session.hasReaders {
      entry.followed?.hasReaders = false
      flight.send(.notify(.session(name), Self.readersWait))
    }
    guard session.isSubscribed, session.needsRead, !session.isReading, loop.now >= session.nextRead else { return }
    entry.followed?.beginReading()
    flight.send(.read(name, .pushes, after: session.last, bytes: session.partBytes)) {
      [unowned self] reply, isConfirmed in
      // The session may have been unfollowed and followed again. In that case it is read from the beginning.
      guard entry.followed?.number == session.number else { return }
      entry.followed?.isReading = false
      guard case .part(let part) = reply else {
        entry.followed?.refused(now: loop.now)
        return
      }
      observed(part.record, of: name)
      // The holder shows entries only when the replicas have them. A follower must not show them earlier, since a
      // failover may lose them.
      guard isConfirmed else {
        entry.followed?.unconfirmed(now: loop.now)
        return
      }
      guard let changes = entry.followed?.add(part, history: watch.history, now: loop.now) else { return }
      for change in changes { delegate?.store(store, follows: name, change) }
      note(name)
    }
  }
}
