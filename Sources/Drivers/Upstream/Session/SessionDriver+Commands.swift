import ByteStreams
import Host
import Logging
import Outbox
import Reactor
import RouteNetlink
import Synchronization
import Threading
import UpstreamSession

/// Commands from other loops.
extension SessionDriver: SignalTarget {
  /// Handles the messages posted and commands queued since the last call.
  func signalled() {
    let (commandCount, hasWaiting, isConnectionRequested, isConfirmationAwaited, wasPaused) = handle.guarded.withLock {
      guarded in
      pump.mayHaveLosses = pump.mayHaveLosses || !guarded.outbox.ledger.losses.isEmpty
      defer { (guarded.isConnectionRequested, guarded.isReadingPaused) = (false, false) }
      return (
        guarded.commands.count, guarded.outbox.hasWaiting, guarded.isConnectionRequested,
        guarded.confirmationWaiters > 0,
        guarded.isReadingPaused
      )
    }
    // Reading resumes on each connection. A connection pauses again if it still must not read.
    if wasPaused { notePausedReading() }
    if wasPaused { for connection in connections { connection.resumeReading() } }
    // Each command leaves the queue only when it is performed. As long as commands are queued, the status shows the
    // desired state that the last of them requests (`StatusBoard`).
    for _ in 0..<commandCount { perform(handle.guarded.withLock { $0.commands.removeFirst() }) }
    sendStoredAcknowledgements()
    // The last call that a shutdown waits for may have ended.
    endIfFlushed()
    if hasWaiting || isConnectionRequested, settings.session.onDemand { apply(machine.demand(now: loop.now)) }
    pump.reportLosses()
    let sending = sending
    if isConfirmationAwaited, let sending { sendBarrierIfDue(on: sending) }
    guard hasWaiting else { return }
    sending?.scheduleFlush()
    if sending == nil || sending?.isBlocked == true { armOutboxTimer() }
  }

  private func perform(_ command: SessionHandle.Command) {
    status.expireDesired()
    switch command {
    case .start: apply(machine.start(now: loop.now, using: &loop.entropy))
    case .open: apply(machine.open(now: loop.now, using: &loop.entropy))
    case .close(let code): apply(machine.close(code: code, now: loop.now))
    case .shutDown(let limit, let code): apply(machine.shutDown(by: loop.now + limit, code: code, now: loop.now))
    case .abort: abort()
    case .reconfigure(let settings, let reason): reconfigure(settings, because: reason)
    case .changeTopics(let settings): (preparedSettings, merger.settings) = (settings, settings)
    case .networkChanged(let change): networkChanged(change)
    }
    endIfFlushed()
  }

  private func abort() {
    apply(machine.shutDown(by: loop.now, now: loop.now))
    endIfFlushed()
    for connection in connections { lost(connection, .ended, "another gateway may be the holder of the session") }
  }

  private func networkChanged(_ change: NetworkChange) {
    for connection in connections where !connection.isDiscarded {
      // When the host loses an address, a socket with this address stays open, and would send in vain until its
      // heartbeat fails.
      guard let local = connection.localAddress, let address = local.ip, change.vanished.contains(address) else {
        continue
      }
      lost(connection, .addressGone, "this machine no longer has the connection's local address \(local.host)")
    }
    apply(machine.networkChanged(hasGained: change.hasGained, now: loop.now, using: &loop.entropy))
  }

  /// Applies new settings. They take effect with the next connection.
  private func reconfigure(_ settings: PreparedSettings, because reason: ReplacementReason) {
    let isSameClient = self.settings.isSameClient(as: settings.value)
    preparedSettings = settings
    delayedURL = nil
    if !isSameClient { forgetClient() }
    handle.isOnDemand.store(self.settings.session.onDemand, ordering: .relaxed)
    pump.settings = self.settings.outbox
    merger.settings = settings
    runner.reconfigure(self.settings)
    showCaptures()
    apply(machine.reconfigure(self.settings.session, because: reason, now: loop.now))
    if machine.isReplacementPostponed(now: loop.now) {
      logger.info("a hand-over is in progress: the next hand-over starts when this one is complete", [])
    }
  }
}
