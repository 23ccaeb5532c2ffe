import ByteStreams
import Outbox
import Reactor
import Threading
import UpstreamSession

/// What other loops ask, and the queue's way into a connection.
extension UpstreamDriver: SignalTarget {
  /// Something was posted or asked since the last time.
  func signalled() {
    let (commands, hasWaiting, isWanted) = handle.shared.withLock { shared in
      let commands = shared.commands
      shared.commands = []
      defer { shared.isWanted = false }
      return (commands, shared.outbox.hasWaiting, shared.isWanted)
    }
    for command in commands { obey(command) }
    if hasWaiting || isWanted, settings.session.onDemand { apply(machine.demand(now: loop.now)) }
    reportLosses()
    if hasWaiting {
      sending?.scheduleFlush()
      if sending == nil || sending?.isBlocked == true { armOutboxTimer() }
    }
  }

  private func obey(_ command: SessionHandle.Command) {
    switch command {
    case .open:
      // The end is final once it has begun: a connection opened now could send nothing.
      guard flushDeadline == nil || machine.desired == .up else { break }
      apply(machine.open(now: loop.now, using: &entropy))
    case .close(let code):
      apply(machine.close(code: code, now: loop.now))
      closeIfFlushed()
    case .shutDown(let limit):
      flushDeadline = loop.now + limit
      apply([])
      closeIfFlushed()
      armOutboxTimer()
    case .reconfigure(let settings, let reason):
      reconfigure(settings, because: reason)
    case .networkChanged(let change):
      networkChanged(change)
    }
    handle.shared.withLock { $0.status.desired = machine.desired }
  }

  /// Ends the session once a shutdown has begun and the queue is empty, its time is over, or nothing can leave it because an
  /// operator closed the session.
  ///
  /// The outbox closes under the same lock that finds it empty: every message that was accepted before has been written, and
  /// every later post is refused.
  func closeIfFlushed() {
    guard let until = flushDeadline else { return }
    let canSend = machine.desired == .up && loop.now < until
    let isOver = handle.update { shared in
      guard !canSend || shared.outbox.isEmpty else { return false }
      shared.outbox.close()
      return true
    }
    // A session that an operator has just closed is still closing, and ends by itself.
    guard isOver, machine.desired == .up || machine.observed == .stopped else { return }
    apply(machine.close(code: 1001, now: loop.now))
  }

  // MARK: Losses

  /// Between two log lines that report lost messages: an upstream that is away for long must not fill the log.
  private static var lossInterval: TimeSpan { .seconds(1) }

  /// Sees to it that messages which ended without having arrived for certain leave a line in the log.
  func reportLosses() {
    guard lossTimer == nil, handle.shared.withLock({ !$0.outbox.ledger.losses.isEmpty }) else { return }
    if loop.now < nextLossReport {
      lossTimer = loop.schedule(at: nextLossReport, self, token: TimerToken.losses.rawValue)
    } else {
      lossTimerFired()
    }
  }

  func lossTimerFired() {
    lossTimer = nil
    nextLossReport = loop.now + Self.lossInterval
    handle.logLosses()
  }

  // MARK: Taking

  func isSending(_ link: UpstreamLink) -> Bool { sending === link }

  /// Moves messages from the queue into the link's output; answers whether there were any, and whether some are left.
  func take(for link: UpstreamLink, atMost bytes: Int) -> (took: Bool, leavesMore: Bool) {
    let leavesMore = handle.update { shared in
      shared.outbox.takeBatch(
        maximumMessages: Self.messagesPerTurn, maximumBytes: bytes, now: loop.now, into: &batch)
      return shared.outbox.hasWaiting
    }
    if !batch.isEmpty {
      link.carriesMessages = true
      pushHistory.sent(batch.count)
      overlap?.filter.wrote(link.generation)
    }
    for message in batch { link.append(message) }
    return (!batch.isEmpty, leavesMore)
  }

  /// The link has written what the kernel takes of its output. `returning`: the first message that goes back to the queue,
  /// with all behind it.
  func flushed(_ link: UpstreamLink, isBlocked: Bool, returning sequence: UInt64?) {
    guard isSending(link) else { return }
    if isBlocked {
      handle.update { $0.outbox.block(returning: sequence) }
      armOutboxTimer()
    }
    for message in batch where message.sequence < sequence ?? .max { noteSubscription(message) }
    batch.removeAll(keepingCapacity: true)
    if isBlocked { reportLosses() }
  }

  /// Messages of one turn: what fits into the loop's time before others have theirs.
  private static var messagesPerTurn: Int { 4_096 }

  func written(through sequence: UInt64) {
    let isEmpty = handle.update { shared in
      shared.outbox.written(through: sequence)
      return shared.outbox.isEmpty
    }
    // Not amid the actions of a decision: those that follow would no longer fit the state.
    if isEmpty, flushDeadline != nil {
      if isApplying { isCloseDue = true } else { closeIfFlushed() }
    }
    successorMaySend()
  }

  /// While messages of a retiring connection are in the queue's front, its successor takes none. Called when some of them
  /// were written or confirmed: nobody else wakes the successor.
  func successorMaySend() {
    if retiring != nil { sending?.scheduleFlush() }
  }

  // MARK: Barriers

  /// Puts a ping behind the batch just taken if it is large enough, else sees to it that one follows soon.
  func guardBatch(_ link: UpstreamLink) {
    let unguarded = handle.shared.withLock { $0.outbox.unguarded }
    guard unguarded > 0 else { return }
    if unguarded >= UInt64(settings.outbox.barrierMessages) {
      sendBarrier(on: link)
    } else if barrierTimer == nil {
      barrierTimer = loop.schedule(
        at: loop.now + settings.outbox.barrierDelay, self, token: TimerToken.barrier.rawValue)
    }
  }

  private func sendBarrier(on link: UpstreamLink) {
    let generation = link.generation
    guard let counter = machine.barrierPing(generation, now: loop.now, using: &entropy) else { return }
    apply([.ping(counter, generation)])
  }

  /// Any ping is a barrier for what was taken before it.
  func sendBarrier(_ counter: UInt64, _ generation: Generation) {
    guard let link = link(generation) else { return }
    handle.shared.withLock { $0.outbox.barrier(counter, retired: retiring === link) }
    overlap?.filter.pinged(generation, counter)
    link.sendPing(counter)
  }

  func barrierTimerFired() {
    barrierTimer = nil
    guard let sending, handle.shared.withLock({ $0.outbox.unguarded }) > 0 else { return }
    sendBarrier(on: sending)
  }

  // MARK: Waiting

  /// Sees to it that messages that wait for whatever reason expire in time, and go as soon as the pace lets them.
  func armOutboxTimer() {
    // A connection whose output is blocked goes on by itself; a permit that lies in the past would only wake us for nothing.
    let keepsPace = sending?.isBlocked == false
    var next = handle.shared.withLock { shared in
      let expiry = shared.outbox.nextExpiry() ?? .distantFuture
      return keepsPace ? min(expiry, shared.outbox.nextPermit(now: loop.now) ?? expiry) : expiry
    }
    if let flushDeadline, machine.desired == .up { next = min(next, flushDeadline) }
    guard outboxTimer?.deadline != next else { return }
    if let outboxTimer { loop.cancel(outboxTimer.timer) }
    outboxTimer = nil
    guard next < .distantFuture else { return }
    let timer = loop.schedule(at: next, self, token: TimerToken.outbox.rawValue)
    outboxTimer = Armed(deadline: next, timer: timer)
  }

  func outboxTimerFired() {
    outboxTimer = nil
    handle.update { _ = $0.outbox.expire(now: loop.now) }
    sending?.scheduleFlush()
    closeIfFlushed()
    armOutboxTimer()
    reportLosses()
  }
}
