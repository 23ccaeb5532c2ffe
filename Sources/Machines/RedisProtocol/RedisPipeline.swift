import ByteStreams
import RESPCodec

/// The outcome of a command.
package enum RedisOutcome: Sendable {
  /// Redis has executed the command. A reply that is an array may contain errors.
  case reply(RESPReply)
  /// Redis has refused the command, or a script has failed at some point.
  case refused(RedisError)
  /// The connection ended before the reply arrived. Redis may have executed the command, or may still execute it.
  case lost(RedisFailure)
}

/// The commands of one connection that have no reply yet, in their order.
package struct RedisPipeline {
  package typealias Completion = (RedisOutcome) -> Void

  /// Maximum number of pending commands. Redis executes some 100,000 short commands of a pipeline per second, and each
  /// must be executed within the timeout. The limit keeps the queue from growing without end while Redis is slow.
  package static var commandLimit: Int { 65_536 }

  /// Once pending commands have this many bytes, only short commands are accepted (`hasRoom`). The limit keeps the
  /// memory from growing without end while Redis does not read. A single command may have more: a text of 16 MiB has up
  /// to 96 MiB as JSON.
  package static var byteLimit: Int { 64 << 20 }

  /// The default timeout of the oldest command's reply. A slower Redis is useless, and a stopped Redis must be detected
  /// before clients time out.
  package static var defaultTimeout: TimeSpan { .seconds(2) }

  /// The rate that every usual connection reaches in each direction, in bytes per second. The timeout of a command is
  /// extended by the time that this rate needs for the command, the pending output before it, and the replies that
  /// arrive while the command is pending. On a slower connection, the timeout restarts whenever TCP acknowledges bytes
  /// of the oldest command, or bytes of a reply arrive. Without these restarts, one large message would end each new
  /// connection.
  package static var minimumRate: Int { 4 << 20 }

  private struct Pending {
    var bytes = 0
    /// The deadline without the time for replies that arrive after the command was sent.
    var deadline = MonotonicTime.distantFuture
    /// The value of `arrivals` when the command was sent.
    var start = TimeSpan.zero
    /// The end of the command in the output.
    var end: UInt64 = 0
    var completion: Completion?
  }

  private let timeout: TimeSpan
  private var pending = RingDeque(filler: Pending())
  /// Bytes of the pending commands.
  package private(set) var bytes = 0
  /// The transfer time of all received bytes at `minimumRate`.
  private var arrivals = TimeSpan.zero
  /// The position up to which TCP has acknowledged the output, and when the oldest command last made progress.
  private var acknowledged: UInt64 = 0
  private var progress = MonotonicTime.zero

  package init(timeout: TimeSpan = defaultTimeout) { self.timeout = timeout }

  package var count: Int { pending.count }

  /// Whether another command is accepted.
  ///
  /// - Parameter isShort: whether the command has a few KiB at most. The byte limit does not apply to short commands:
  ///   WAIT must always be possible.
  package func hasRoom(isShort: Bool) -> Bool {
    pending.count < Self.commandLimit && (isShort || bytes < Self.byteLimit)
  }

  /// When the oldest command times out.
  package var deadline: MonotonicTime {
    guard !pending.isEmpty else { return .distantFuture }
    let oldest = pending[pending.front]
    return max(oldest.deadline + (arrivals - oldest.start), progress + timeout)
  }

  /// Adds a command of `bytes` bytes that is sent now. It ends at the position `end` of the output.
  package mutating func append(
    bytes: Int, end: UInt64 = 0, now: MonotonicTime, _ completion: @escaping Completion
  ) {
    self.bytes += bytes
    let deadline = now + timeout + Self.transfer(of: self.bytes)
    pending.append(Pending(bytes: bytes, deadline: deadline, start: arrivals, end: end, completion: completion))
  }

  /// Records that `bytes` bytes of replies have arrived.
  package mutating func received(bytes: Int, now: MonotonicTime) {
    arrivals = arrivals + Self.transfer(of: bytes)
    progress = now
  }

  /// Records that TCP has acknowledged every byte of the output before `position`, by `time` at the latest. Called when
  /// the deadline has passed, and may move it.
  package mutating func outputAcknowledged(through position: UInt64, at time: MonotonicTime) {
    guard position > acknowledged else { return }
    if !pending.isEmpty, acknowledged < pending[pending.front].end { progress = max(progress, time) }
    acknowledged = position
  }

  private static func transfer(of bytes: Int) -> TimeSpan {
    .microseconds(Int64(bytes * 1_000_000 / minimumRate))
  }

  /// Removes the oldest command, whose reply has arrived; nil if there is none.
  package mutating func takeFirst() -> Completion? {
    guard !pending.isEmpty else { return nil }
    let first = pending[pending.front]
    pending.removeFirst()
    bytes -= first.bytes
    return first.completion
  }

  /// Removes all commands, oldest first, because no reply will arrive.
  package mutating func takeAll() -> [Completion] {
    var completions: [Completion] = []
    while let completion = takeFirst() { completions.append(completion) }
    pending = RingDeque(filler: Pending())
    return completions
  }
}
