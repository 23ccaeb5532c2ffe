import ByteStreams
import Calls
import Journal
import Logging
import Metrics
import Outbox
import Reactor
import Threading
import UpstreamSession

/// Moves messages from a session's outbox into a connection, and tracks their deliveries: barriers after batches,
/// expiry, rate limiting, and log lines for messages that may be lost.
///
/// The outbox itself is protected by the handle's lock, since every loop posts to it. The session machine decides which
/// connection sends. The pump gets this connection as an argument.
final class OutboxPump: TimerTarget {
  enum Event {
    /// Sent messages have waited for `barrierDelay`: a barrier ping is due.
    case barrierDue
    /// A message has expired, or the rate limit allows the next message.
    case timePassed
  }

  private enum TimerToken: Int {
    case barrier, time, losses
  }

  private let handle: SessionHandle
  private let loop: LoopContext
  weak var owner: SessionDriver?
  var settings: OutboxSettings
  /// Messages appended to the output and not flushed yet.
  private var batch: [OutboxMessage] = []
  private var barrierTimer: LoopTimer?
  /// When the last ping was sent.
  private var lastBarrier: MonotonicTime?
  private var timer: (deadline: MonotonicTime, timer: LoopTimer)?
  private var lossTimer: LoopTimer?
  private var nextLossReport = MonotonicTime.zero
  /// Whether messages may have been lost since the last report, that is, have ended although they may not have arrived.
  /// `signalled` sets this flag for messages that ended outside of this pump.
  var mayHaveLosses = false

  /// Maximum messages per turn, so that one session does not delay the other connections of the loop.
  private static var messagesPerTurn: Int { 4_096 }
  /// Minimum bytes of messages that one stored intent to write covers. With this minimum, the intent to write the next
  /// messages is already stored when the connection has written the messages before them.
  private static var minimumIntent: Int { 64 << 10 }
  /// Minimum interval between log lines about lost messages, so that a long outage does not fill the log.
  private static var lossInterval: TimeSpan { .seconds(1) }

  init(_ handle: SessionHandle, _ settings: OutboxSettings, loop: LoopContext) {
    self.handle = handle
    self.settings = settings
    self.loop = loop
  }

  // MARK: Messages out

  /// Appends messages to the output of the sending connection, up to `room` bytes. Returns the number of messages, and
  /// the counter of the ping that must follow them.
  ///
  /// - Parameter ping: returns the counter of a ping that can be sent now; nil if none can.
  func fill(_ connection: UpstreamConnection, room: Int, ping: () -> UInt64?) -> (messages: Int, ping: UInt64?) {
    batch.removeAll(keepingCapacity: true)
    let largest = connection.largestCompressedAtOnce
    var next: OutboxMessage?
    let (leavesMore, barrier) = handle.update { guarded in
      if let journal = handle.journal { handle.permitStored(&guarded, journal) }
      guarded.outbox.takeBatch(
        maximumMessages: Self.messagesPerTurn, maximumBytes: room, largest: largest, except: connection.compressedAhead,
        now: loop.now, into: &batch)
      if guarded.calls.pending > 0 {
        for message in batch { guarded.calls.taken(message.sequence, by: connection.generation) }
      }
      if let journal = handle.journal, guarded.outbox.hasWaiting {
        handle.requestIntent(
          &guarded, journal, messages: Self.messagesPerTurn, bytes: max(room, Self.minimumIntent), now: loop.now)
      }
      if largest < .max { next = guarded.outbox.next(largerThan: largest) }
      mayHaveLosses = mayHaveLosses || !guarded.outbox.ledger.losses.isEmpty
      let barrier = batch.isEmpty ? Barrier.none : recordBarrier(in: &guarded, on: connection.generation, ping)
      return (guarded.outbox.hasWaiting, barrier)
    }
    let rejected = connection.append(batch)
    if !rejected.isEmpty {
      mayHaveLosses = true
      handle.update { guarded in
        for (sequence, reason) in rejected { guarded.outbox.reject(sequence, because: reason) }
      }
    }
    let isCompressing = largest < .max && connection.compressAhead(next)
    // `room` and the rate limit may leave messages for later turns, and the session's own messages may use all of
    // `room`. The messages that are left are sent later, or expire.
    connection.hasMoreToSend = leavesMore && (!batch.isEmpty || room <= 0 || isCompressing)
    if leavesMore { armTimer(includesPermits: true) }
    return (batch.count, counter(of: barrier))
  }

  /// A flush has written as much of the output as the kernel accepts. Messages that the flush returned go back to the
  /// queue. Each sent message of the batch is passed to `sent`, which returns the ticket of the change that the message
  /// has caused; nil if there is no change to store.
  func flushed(_ outcome: FlushOutcome, sent: ((OutboxMessage) -> JournalTicket?)?) {
    var isBlocked = false
    switch outcome {
    case .blocked(let returned):
      isBlocked = true
      mayHaveLosses = true
      handle.update { $0.outbox.block(returning: returned?.sequence) }
      armTimer(includesPermits: false)
    case .paused(let returned?):
      // The upstream reads, so messages that must be sent at once wait for the next turn, and do not expire.
      handle.update { $0.outbox.returnToQueue(from: returned.sequence) }
    case .done, .paused(nil), .failed: break
    }
    if let sent {
      let firstUnsent = outcome.firstUnsent ?? .max
      for message in batch where message.sequence < firstUnsent {
        if let ticket = sent(message) { handle.withholdConfirmation(of: message.sequence, until: ticket) }
      }
    }
    batch.removeAll(keepingCapacity: true)
    if isBlocked { reportLosses() }
  }

  /// The kernel has accepted every message through `sequence`. Returns whether the outbox is empty now, and whether
  /// there are messages of an earlier sending connection that are not settled yet.
  func written(through sequence: UInt64) -> (isEmpty: Bool, isRetiring: Bool) {
    handle.update { guarded in
      guarded.outbox.written(through: sequence)
      return (guarded.outbox.isEmpty, guarded.outbox.retiringConnection != nil)
    }
  }

  // MARK: Barriers

  /// The ping after the messages that were sent.
  private enum Barrier {
    case none
    /// The messages are few, and no client waits for their confirmation, so the ping is sent after a delay
    /// (`Event.barrierDue`).
    case later
    case now(UInt64)
  }

  /// Records the ping that must follow the messages just sent, if there is one.
  private func recordBarrier(
    in guarded: inout SessionHandle.Guarded, on generation: Generation, _ ping: () -> UInt64?
  ) -> Barrier {
    let messagesWithoutBarrier = guarded.outbox.messagesWithoutBarrier
    guard messagesWithoutBarrier > 0 else { return .none }
    guard guarded.confirmationWaiters > 0 || messagesWithoutBarrier >= UInt64(settings.barrierMessages) else {
      return .later
    }
    guard let counter = ping() else { return .none }
    guarded.outbox.barrierSent(counter, on: generation)
    return .now(counter)
  }

  /// Returns the counter of the ping to send now. Arms the timer for a ping that is sent later.
  private func counter(of barrier: Barrier) -> UInt64? {
    switch barrier {
    case .none: break
    case .later:
      if barrierTimer == nil {
        barrierTimer = schedule(.barrier, at: max(loop.now + settings.barrierDelay, earliestDelayedBarrier))
      }
    case .now(let counter):
      lastBarrier = loop.now
      return counter
    }
    return nil
  }

  /// The counter of the ping that must follow the messages that were sent on the connection of this generation; nil if
  /// no ping must follow now.
  func barrierIfDue(on generation: Generation, ping: () -> UInt64?) -> UInt64? {
    counter(of: handle.guarded.withLock { recordBarrier(in: &$0, on: generation, ping) })
  }

  /// The earliest time at which `barrierDelay` may cause another ping. With redelivery, messages count against the
  /// limits of the queue until they are confirmed, so their ping does not wait until `barrierInterval` has passed since
  /// the last ping.
  private var earliestDelayedBarrier: MonotonicTime {
    guard let lastBarrier, settings.redelivery == .never else { return .zero }
    return lastBarrier + settings.barrierInterval
  }

  /// Records that a ping with this counter is sent. Any ping is a barrier for the messages before it.
  func pingSent(_ counter: UInt64, on generation: Generation) {
    lastBarrier = loop.now
    handle.guarded.withLock { $0.outbox.barrierSent(counter, on: generation) }
  }

  /// A pong has arrived. It confirms the messages before its ping. It also makes room for another ping, and such a ping
  /// may be due.
  ///
  /// - Parameters:
  ///   - isOurs: whether the pong responds to a ping of the connection of `generation`. If not, the pong counts only if
  ///     that connection is an earlier sending connection.
  ///   - sending: the connection that sends now.
  ///   - publish: publishes the round-trip time.
  /// - Returns: the ping to send, and whether there were messages of an earlier sending connection that were not
  ///   settled; nil if the pong does not count.
  func pongReceived(
    _ counter: UInt64, on generation: Generation, isOurs: Bool, sending: Generation?, ping: () -> UInt64?,
    publish: (inout SessionHandle.Guarded) -> Void
  ) -> (ping: UInt64?, isRetiring: Bool)? {
    let result = handle.update { guarded -> (oldest: MonotonicTime?, barrier: Barrier, isRetiring: Bool)? in
      let retiring = guarded.outbox.retiringConnection
      guard isOurs || retiring == generation else { return nil }
      guarded.outbox.confirm(counter, on: generation)
      publish(&guarded)
      let barrier = sending.map { recordBarrier(in: &guarded, on: $0, ping) } ?? .none
      return (guarded.outbox.oldestConfirmed, barrier, retiring != nil)
    }
    guard let result else { return nil }
    if let oldest = result.oldest { handle.metrics.confirmations.observe(loop.now - oldest) }
    return (self.counter(of: result.barrier), result.isRetiring)
  }

  // MARK: Connections

  var retiringConnection: Generation? { handle.guarded.withLock { $0.outbox.retiringConnection } }

  /// `confirms`: whether pings confirm the messages of this connection.
  func startSending(on generation: Generation, confirms: Bool) {
    handle.update { $0.outbox.startSending(on: generation, confirms: confirms) }
  }

  func stopSending(closedAsTooBig: Bool, partiallyWritten: UInt64?) {
    mayHaveLosses = true
    handle.update { $0.outbox.stopSending(closedAsTooBig: closedAsTooBig, partiallyWritten: partiallyWritten) }
  }

  func pause() {
    mayHaveLosses = true
    handle.update { $0.outbox.pause(now: loop.now) }
    armTimer(includesPermits: false)
  }

  func resume() { handle.guarded.withLock { $0.outbox.resume() } }

  /// Settles the messages of an earlier sending connection. Returns false if it has no messages to settle.
  func settle(_ generation: Generation, partiallyWritten: UInt64?) -> Bool {
    handle.update { guarded in
      guard guarded.outbox.isRetiring(generation) else { return false }
      guarded.outbox.settle(partiallyWritten: partiallyWritten)
      mayHaveLosses = true
      return true
    }
  }

  /// Closes the outbox if it is empty and no call waits for its reply, or if `mayWait` is false. Returns whether the
  /// outbox is closed now. The check and the closing happen under one lock, so no message can be accepted in between.
  func closeIfFlushed(mayWait: Bool) -> Bool {
    handle.update { guarded in
      guard !mayWait || guarded.outbox.isEmpty && guarded.calls.pending == 0 else { return false }
      guarded.outbox.close()
      mayHaveLosses = true
      return true
    }
  }

  // MARK: Time

  /// Arms the timer for the next expiry and, if `includesPermits`, for the next message that the rate limit allows.
  /// `includesPermits` must be false unless a connection can accept messages. A blocked connection resumes by itself
  /// when it can accept messages. Until then, a permit in the past would wake the loop without need.
  func armTimer(includesPermits: Bool) {
    let next = handle.guarded.withLock { guarded in
      let expiry = guarded.outbox.nextExpiry() ?? .distantFuture
      return includesPermits ? min(expiry, guarded.outbox.nextPermit(now: loop.now) ?? expiry) : expiry
    }
    guard timer?.deadline != next else { return }
    if let timer { loop.cancel(timer.timer) }
    timer = nil
    guard next < .distantFuture else { return }
    timer = (next, schedule(.time, at: next))
  }

  func timerFired(_ token: Int) {
    switch TimerToken(rawValue: token) {
    case .barrier:
      barrierTimer = nil
      barrierDelayEnded()
    case .time:
      timer = nil
      mayHaveLosses = true
      handle.update { _ = $0.outbox.expire(now: loop.now) }
      owner?.pump(self, reports: .timePassed)
    case .losses:
      lossTimer = nil
      logLosses()
    case nil: preconditionFailure("no timer \(token)")
    }
  }

  private func barrierDelayEnded() {
    let (messagesWithoutBarrier, isAwaited) = handle.guarded.withLock {
      ($0.outbox.messagesWithoutBarrier, $0.confirmationWaiters > 0)
    }
    guard messagesWithoutBarrier > 0 else { return }
    // Another ping may have been sent since the timer was set, so the interval since the last ping is checked again.
    let earliest = earliestDelayedBarrier
    if isAwaited || earliest <= loop.now {
      owner?.pump(self, reports: .barrierDue)
    } else {
      barrierTimer = schedule(.barrier, at: earliest)
    }
  }

  private func schedule(_ token: TimerToken, at deadline: MonotonicTime) -> LoopTimer {
    loop.schedule(at: deadline, self, token: token.rawValue)
  }

  /// Cancels the timers.
  func stop() {
    for timer in [barrierTimer, timer?.timer, lossTimer] {
      if let timer { loop.cancel(timer) }
    }
  }

  // MARK: Losses

  /// Logs the messages that have ended although they may not have arrived, at most once per `lossInterval`.
  func reportLosses() {
    guard mayHaveLosses, lossTimer == nil else { return }
    mayHaveLosses = false
    guard handle.guarded.withLock({ !$0.outbox.ledger.losses.isEmpty }) else { return }
    if loop.now < nextLossReport {
      lossTimer = schedule(.losses, at: nextLossReport)
    } else {
      logLosses()
    }
  }

  private func logLosses() {
    nextLossReport = loop.now + Self.lossInterval
    handle.logLosses()
  }
}
