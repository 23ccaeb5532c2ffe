import ByteStreams
import Dialing
import Host
import RESPCodec
import Reactor
import RedisProtocol

/// One connection to a Redis server or a Sentinel, from the connection attempt until its end. It does not reconnect.
///
/// It belongs to one event loop, where it calls its owner and all completions. Every completion is called exactly once,
/// in the order of the commands. After `.ended` or `close()`, it reports nothing more and cannot be used again.
package final class RedisConnection {
  package enum Event: Sendable {
    /// The handshake has succeeded, and the first channels are subscribed. The information is nil for a Sentinel.
    case ready(RedisServerInformation?)
    /// Also reported before `ready`, for the first channels.
    case subscription(RedisSubscriptions.Event)
    /// Reported after the completions of all commands without a reply.
    case ended(RedisFailure)
  }

  package enum SendResult: Equatable, Sendable {
    case sent
    /// Too many commands, or bytes, have no reply yet. Try again after a completion.
    case full
    /// The connection is not ready, or has ended.
    case notReady
  }

  private enum Phase {
    case created
    case connecting
    case starting
    case subscribing
    case ready
    case ended
  }

  /// Maximum bytes per read, and per turn: a long reply must not delay other work of the loop.
  private static var bytesPerRead: Int { 64 << 10 }
  private static var bytesPerTurn: Int { 512 << 10 }
  /// If the input buffer is larger than this, it is freed while the connection is idle.
  private static var retainedInputStorage: Int { 256 << 10 }
  /// The kernel ends a connection whose peer acknowledges nothing for this time. The gateway's own timeouts for this
  /// connection are shorter.
  private static var userTimeout: TimeSpan { .seconds(10) }

  package let endpoint: RedisEndpoint
  private let settings: RedisConnectionSettings
  private let dialer: any Dialer
  private let loop: LoopContext
  /// The reference is released when the connection has ended.
  private var owner: (any RedisConnectionOwner)?

  private var phase = Phase.created
  private let cancellation = Cancellation()
  private var transport: Transport?
  /// The present phase of the connection attempt.
  private var dialPhase = DialPhase.resolving
  /// Whether the server has sent a byte.
  private var hasInput = false
  private var handshake: RedisHandshake
  private var pipeline: RedisPipeline
  /// nil on a connection for commands, and before the handshake is complete.
  private var subscriptions: RedisSubscriptions?

  private var reader: RESPReader
  private var input = ByteQueue()
  /// Whether the reader lets other tasks run, although more bytes may have arrived.
  private var isYielding = false

  private var startDeadline = MonotonicTime.distantFuture
  private var timer: LoopTimer?
  private var timerDeadline = MonotonicTime.distantFuture

  private var isFlushScheduled = false
  /// Whether the kernel accepts no more output. `unblocked` is called when the kernel accepts output again.
  private var isBlocked = false

  package init(
    to endpoint: RedisEndpoint, _ settings: RedisConnectionSettings, dialer: any Dialer, loop: LoopContext,
    owner: any RedisConnectionOwner
  ) {
    self.endpoint = endpoint
    self.settings = settings
    self.dialer = dialer
    self.loop = loop
    self.owner = owner
    handshake = RedisHandshake(
      with: settings.peer, endpoint.credentials, database: endpoint.database, scripts: settings.scripts)
    pipeline = RedisPipeline(timeout: settings.commandTimeout)
    reader = RESPReader(limits: settings.limits)
  }

  package var isReady: Bool { phase == .ready }

  /// The information that the server has sent about itself; nil before `ready`, and for a Sentinel.
  package var information: RedisServerInformation? { handshake.information }

  /// Number of commands without a reply.
  package var unansweredCommands: Int { pipeline.count }

  /// From now on, events are reported to `owner`.
  package func handOver(to owner: any RedisConnectionOwner) {
    if phase != .ended { self.owner = owner }
  }

  /// Connects. Called once.
  package func start() {
    precondition(phase == .created, "a connection is started once")
    phase = .connecting
    startDeadline = loop.now + settings.startTimeout
    updateTimer()
    loop.spawn(RunTask(self))
  }

  /// Ends the connection, in any state. Commands without a reply are lost, and their completions are called. The owner
  /// gets no event.
  package func close() {
    owner = nil
    end(.closed)
  }

  private func end(_ failure: RedisFailure) {
    guard phase != .ended else { return }
    phase = .ended
    setTimer(.distantFuture)
    // The connection is reset, so that the kernel discards commands that it has not sent yet. Commands that have
    // arrived at Redis may still be executed.
    transport?.reset()
    cancellation.cancel()
    input.releaseStorage()
    let owner = self.owner
    self.owner = nil
    for completion in pipeline.takeAll() { completion(.lost(failure)) }
    owner?.connection(self, reports: .ended(failure))
  }

  // MARK: Start

  fileprivate func run() async {
    var received = ByteQueue()
    do throws(DialError) {
      let destination = DialDestination(
        host: endpoint.address.host, port: endpoint.address.port, authority: endpoint.address.description, proxy: nil,
        tls: try await endpoint.tls?.refreshed(until: startDeadline, cancellation, on: loop),
        userTimeout: Self.userTimeout)
      let transport = try await dialer.dial(destination, cancellation, &received) { dialPhase = $0 }
      guard phase == .connecting else { return transport.reset() }
      self.transport = transport
      phase = .starting
      advanceStart(over: transport)
      await read(from: transport)
    } catch {
      // If the attempt was cancelled, there is nothing to report: only `end` cancels it, and reports the failure
      // itself.
      if case .failed(let failure) = error { end(.unreachable("\(endpoint.address): \(failure.detail)")) }
    }
  }

  /// Sends the next command of the handshake, or subscribes after the last command.
  private func advanceStart(over transport: Transport) {
    scheduleFlush()
    guard !handshake.writeNext(into: &transport.output) else { return }
    switch settings.purpose {
    case .commands: becomeReady()
    case .subscriptions(let channels):
      subscriptions = RedisSubscriptions(to: channels, now: loop.now, into: &transport.output)
      phase = .subscribing
      updateTimer()
      if channels.isEmpty { becomeReady() }
    }
  }

  private func becomeReady() {
    phase = .ready
    startDeadline = .distantFuture
    owner?.connection(self, reports: .ready(information))
  }

  // MARK: Commands

  /// Sends a command at the end of this turn, together with the other commands of the turn. If the result is `.sent`,
  /// `completion` is called later, never before `send` has returned.
  ///
  /// - Parameter isShort: see `RedisPipeline.hasRoom`.
  package func send(
    _ command: [RESPPart], isShort: Bool = false, completion: @escaping RedisPipeline.Completion
  ) -> SendResult {
    guard phase == .ready, subscriptions == nil, let transport else { return .notReady }
    guard pipeline.hasRoom(isShort: isShort) else { return .full }
    let before = transport.output.count
    transport.output.append(command: command)
    pipeline.append(bytes: transport.output.count - before, end: transport.end, now: loop.now, completion)
    if pipeline.count == 1 { updateTimer() }
    scheduleFlush()
    return .sent
  }

  /// Subscribes to channels. `.subscribed` confirms each of them. Returns `.full` if too many changes have no
  /// confirmation yet.
  package func subscribe(_ channels: [String]) -> SendResult { change(channels, subscribing: true) }

  package func unsubscribe(_ channels: [String]) -> SendResult { change(channels, subscribing: false) }

  private func change(_ channels: [String], subscribing: Bool) -> SendResult {
    guard phase == .ready, let transport, subscriptions != nil else { return .notReady }
    let isAccepted = subscriptions?.change(
      channels, subscribing: subscribing, now: loop.now, into: &transport.output)
    guard isAccepted == true else { return .full }
    updateTimer()
    scheduleFlush()
    return .sent
  }

  // MARK: Input

  private func read(from transport: Transport) async {
    var budget = Self.bytesPerTurn
    while phase != .ended {
      switch transport.receive(into: &input, atMost: Self.bytesPerRead) {
      case .bytes(let count):
        hasInput = true
        pipeline.received(bytes: count, now: loop.now)
        processInput()
        guard phase != .ended else { return }
        // TLS may have produced output of its own.
        if transport.unsent > 0 { scheduleFlush() }
        budget -= count
        guard budget <= 0 else { continue }
        isYielding = true
        await loop.yieldTurn()
        isYielding = false
        budget = Self.bytesPerTurn
      case .wouldBlock:
        if input.isEmpty, input.allocatedBytes > Self.retainedInputStorage { input.releaseStorage() }
        guard await transport.channel.readable() == .ready else { return }
        budget = Self.bytesPerTurn
      case .endOfStream:
        let isCut = reader.isInsideReply || !input.isEmpty
        end(closed("the server closed the connection" + (isCut ? " inside a reply" : "")))
      case .failed(let code):
        end(closed(transport.failure.map { "TLS: \($0)" } ?? SystemError.reason(of: code)))
      }
    }
  }

  /// The failure for the end of a connection. A server that expects TLS ends a connection that begins with a command,
  /// usually without a reply.
  private func closed(_ reason: String) -> RedisFailure {
    guard !hasInput, endpoint.tls == nil else { return .disconnected(reason) }
    return .disconnected(
      "\(endpoint.address): \(reason), before its first reply: if it expects TLS, use rediss:// instead of redis://")
  }

  private func processInput() {
    do throws(RESPProtocolError) {
      while phase != .ended, let reply = try reader.next(from: &input) {
        do throws(RedisFailure) {
          try handle(reply)
        } catch {
          end(error)
        }
      }
    } catch {
      end(.violation(error.description))
    }
  }

  private func handle(_ reply: RESPReply) throws(RedisFailure) {
    switch phase {
    case .starting:
      try handshake.receive(reply)
      if let transport { advanceStart(over: transport) }
    case .subscribing, .ready:
      guard subscriptions != nil else { return try complete(with: reply) }
      if let event = try subscriptions?.receive(reply, now: loop.now) {
        owner?.connection(self, reports: .subscription(event))
      }
      if phase == .subscribing, subscriptions?.pendingChanges == 0 { becomeReady() }
    case .created, .connecting, .ended: break
    }
  }

  /// Passes a reply to the oldest command.
  private func complete(with reply: RESPReply) throws(RedisFailure) {
    let completion = pipeline.takeFirst()
    guard case .error(let text) = reply else {
      guard let completion else { throw .violation("a reply without a command") }
      return completion(.reply(reply))
    }
    let error = RedisError(text)
    completion?(.refused(error))
    // If no command is pending, the error is the reason for which the server closes the connection.
    if error.endsConnection || completion == nil { throw .refused(error) }
  }

  // MARK: Output

  private func scheduleFlush() {
    guard !isFlushScheduled, !isBlocked, phase != .ended else { return }
    isFlushScheduled = true
    loop.atEndOfTurn(self)
  }

  private func flush() {
    guard phase != .ended, !isBlocked, let transport else { return }
    switch transport.flush() {
    case .done: break
    case .paused: scheduleFlush()
    case .blocked:
      isBlocked = true
      transport.whenWritable(on: loop) { self.unblocked() }
    // This needs no action: the reader gets the error, too, after it has received the last bytes of the server.
    case .failed: break
    }
  }

  private func unblocked() {
    isBlocked = false
    scheduleFlush()
  }

  // MARK: Time

  private var deadline: MonotonicTime {
    min(startDeadline, pipeline.deadline, subscriptions?.deadline ?? .distantFuture)
  }

  /// Sets the timer if it would fire too late. A timer that fires too early is set again.
  private func updateTimer() {
    let next = deadline
    if next < timerDeadline { setTimer(next) }
  }

  private func setTimer(_ deadline: MonotonicTime) {
    if let timer { loop.cancel(timer) }
    timer = deadline == .distantFuture ? nil : loop.schedule(at: deadline, self)
    timerDeadline = deadline
  }

  private func expire() throws(RedisFailure) {
    let now = loop.now
    if let (position, time) = transport?.acknowledgedOutput { pipeline.outputAcknowledged(through: position, at: time) }
    guard startDeadline > now else {
      guard dialPhase == .securing, phase == .connecting else {
        throw .timeout("the connection to \(endpoint.address) was not ready")
      }
      // A server without TLS takes the TLS handshake for the beginning of a command, and waits for the rest of the
      // command.
      throw .timeout(
        "the TLS handshake with \(endpoint.address) was not complete (if it does not expect TLS, use redis:// instead of rediss://)"
      )
    }
    guard pipeline.deadline > now else { throw .timeout("Redis did not reply to a command") }
    guard let transport else { return }
    try subscriptions?.timeout(now: now, into: &transport.output)
    if transport.unsent > 0 { scheduleFlush() }
  }
}

extension RedisConnection: TimerTarget {
  package func timerFired(_ token: Int) {
    timer = nil
    timerDeadline = .distantFuture
    guard phase != .ended else { return }
    // The reply may be in the part of the input that has not been read yet.
    if isYielding { return setTimer(loop.now + .milliseconds(1)) }
    do throws(RedisFailure) {
      try expire()
      updateTimer()
    } catch {
      end(error)
    }
  }
}

extension RedisConnection: TurnEndTarget {
  package func turnEnded() {
    isFlushScheduled = false
    flush()
  }
}

/// Connects and reads, until the connection ends.
private final class RunTask: LoopTask {
  private let connection: RedisConnection

  init(_ connection: RedisConnection) { self.connection = connection }

  func run() async { await connection.run() }
}
