import ByteStreams
import Logging
import Outbox
import Reactor
import Threading
import UpstreamSession

/// Moves messages from a session's outbox into a connection, and keeps the account of what becomes of them: barriers behind batches,
/// expiry and pace, and log lines for messages that may be lost.
///
/// The outbox itself is behind the handle's lock, since every loop posts to it. Which connection sends is the session machine's fact:
/// it comes in as an argument.
final class OutboxPump: TimerTarget {
  enum Event {
    /// Messages have waited long enough for a ping behind them.
    case barrierDue
    /// A message has expired, or the pace lets the next one go.
    case timePassed
  }

  private enum TimerToken: Int {
    case barrier, time, losses
  }

  private let handle: SessionHandle
  private let loop: LoopContext
  private let report: (Event) -> Void
  var settings: OutboxSettings
  /// What was appended to the output and not flushed yet.
  private var batch: [OutboxMessage] = []
  private var barrierTimer: LoopTimer?
  private var timer: (deadline: MonotonicTime, timer: LoopTimer)?
  private var lossTimer: LoopTimer?
  private var nextLossReport = MonotonicTime.zero

  /// Messages of one turn: what fits into the loop's time before others have theirs.
  private static var messagesPerTurn: Int { 4_096 }
  /// Between two log lines that report lost messages: an upstream that is away for long must not fill the log.
  private static var lossInterval: TimeSpan { .seconds(1) }

  init(_ handle: SessionHandle, _ settings: OutboxSettings, loop: LoopContext, report: @escaping (Event) -> Void) {
    self.handle = handle
    self.settings = settings
    self.loop = loop
    self.report = report
  }

  // MARK: Messages out

  /// Appends messages to the output of the connection that sends, which has room for so many bytes. Returns how many.
  func fill(_ connection: UpstreamConnection, room: Int) -> Int {
    batch.removeAll(keepingCapacity: true)
    let leavesMore = handle.update { shared in
      shared.outbox.takeBatch(
        maximumMessages: Self.messagesPerTurn, maximumBytes: room, now: loop.now, into: &batch)
      return shared.outbox.hasWaiting
    }
    for message in batch { connection.append(message) }
    // A batch is limited by high water, which the session's own messages may fill alone, and by the pace. What is left goes
    // with the next turn, or expires.
    connection.hasMoreToSend = leavesMore && (!batch.isEmpty || room <= 0)
    if leavesMore { armTimer(keepsPace: true) }
    return batch.count
  }

  /// The output was written as far as the kernel takes it. `returned`: what goes back to the queue. Gives the rest of the batch to `sent`.
  func flushed(isBlocked: Bool, returned: OutputMarks.Returned?, sent: ((OutboxMessage) -> Void)?) {
    if isBlocked {
      handle.update { $0.outbox.block(returning: returned?.sequence) }
      armTimer(keepsPace: false)
    }
    if let sent {
      for message in batch where message.sequence < returned?.sequence ?? .max { sent(message) }
    }
    batch.removeAll(keepingCapacity: true)
    if isBlocked { reportLosses() }
  }

  /// The kernel has every message up to `sequence`. Returns whether the outbox is empty now, and whether messages of a connection that
  /// sent before are still in its account.
  func written(through sequence: UInt64) -> (isEmpty: Bool, isRetiring: Bool) {
    handle.update { shared in
      shared.outbox.written(through: sequence)
      return (shared.outbox.isEmpty, shared.outbox.retiringConnection != nil)
    }
  }

  // MARK: Barriers

  /// Whether a ping must go out behind the messages just sent. If there are few, one follows soon (`Event.barrierDue`).
  func needsBarrier() -> Bool {
    let unguarded = handle.shared.withLock { $0.outbox.unguarded }
    guard unguarded > 0 else { return false }
    if unguarded >= UInt64(settings.barrierMessages) { return true }
    if barrierTimer == nil { barrierTimer = schedule(.barrier, at: loop.now + settings.barrierDelay) }
    return false
  }

  /// A ping with this counter goes out: any ping is a barrier for what was sent before it.
  func pinged(_ counter: UInt64, on generation: Generation) {
    handle.shared.withLock { $0.outbox.barrier(counter, on: generation) }
  }

  /// A pong has come on a connection: messages before its ping are confirmed.
  func ponged(_ counter: UInt64, on generation: Generation) {
    handle.update { _ = $0.outbox.confirm(counter, on: generation) }
  }

  // MARK: Connections

  var retiringConnection: Generation? { handle.shared.withLock { $0.outbox.retiringConnection } }

  func startSending(on generation: Generation) { handle.update { $0.outbox.startSending(on: generation) } }

  func stopSending(lastIsPoison: Bool, begun: UInt64?) {
    handle.update { $0.outbox.stopSending(lastIsPoison: lastIsPoison, begun: begun) }
  }

  func pause() {
    handle.update { $0.outbox.pause(now: loop.now) }
    armTimer(keepsPace: false)
  }

  func resume() { handle.shared.withLock { $0.outbox.resume() } }

  /// Closes the account of a connection that sent before; false where it has none.
  func settle(_ generation: Generation, begun: UInt64?) -> Bool {
    handle.update { shared in
      guard shared.outbox.isRetiring(generation) else { return false }
      shared.outbox.settle(begun: begun)
      return true
    }
  }

  /// Closes the outbox if it is empty, or need not be (`mayWait`). Every message that was accepted before has been written then, and every
  /// later one is refused: both are decided under the same lock.
  func closeIfFlushed(mayWait: Bool) -> Bool {
    handle.update { shared in
      guard !mayWait || shared.outbox.isEmpty else { return false }
      shared.outbox.close()
      return true
    }
  }

  // MARK: Time

  /// Sees to it that queued messages expire in time, and go as soon as the pace lets them. `keepsPace`: a connection would take them. One
  /// that is blocked goes on by itself, and a permit that lies in the past would only wake us for nothing.
  func armTimer(keepsPace: Bool) {
    let next = handle.shared.withLock { shared in
      let expiry = shared.outbox.nextExpiry() ?? .distantFuture
      return keepsPace ? min(expiry, shared.outbox.nextPermit(now: loop.now) ?? expiry) : expiry
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
      if handle.shared.withLock({ $0.outbox.unguarded }) > 0 { report(.barrierDue) }
    case .time:
      timer = nil
      handle.update { _ = $0.outbox.expire(now: loop.now) }
      report(.timePassed)
    case .losses:
      lossTimer = nil
      logLosses()
    case nil: preconditionFailure("no timer \(token)")
    }
  }

  private func schedule(_ token: TimerToken, at deadline: MonotonicTime) -> LoopTimer {
    loop.schedule(at: deadline, self, token: token.rawValue)
  }

  /// Ends the timers.
  func stop() {
    for timer in [barrierTimer, timer?.timer, lossTimer] {
      if let timer { loop.cancel(timer) }
    }
  }

  // MARK: Losses

  /// Sees to it that messages which ended without having arrived for certain leave a line in the log.
  func reportLosses() {
    guard lossTimer == nil, handle.shared.withLock({ !$0.outbox.ledger.losses.isEmpty }) else { return }
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
