import ByteStreams
import Host
import RESPCodec
import Redis
import RedisProtocol

/// Commands that are sent to Redis together and are followed by a WAIT, and their replies.
final class RedisFlight {
  /// How long WAIT may block. It is shorter than the timeout of a command, to leave time for the commands before WAIT.
  private static var waitMilliseconds: UInt64 { 500 }

  private let connection: RedisConnection
  private let metrics: RedisStoreMetrics
  private let then: (LogLanding) -> Void
  private var landing: LogLanding
  private var unanswered = 0
  private var isPublished = true
  /// Whether a command was lost with the connection, or could not be sent.
  private(set) var hasFailed = false

  init(
    of count: Int, over connection: RedisConnection, metrics: RedisStoreMetrics, then: @escaping (LogLanding) -> Void
  ) {
    self.connection = connection
    self.metrics = metrics
    self.then = then
    landing = LogLanding(replies: Array(repeating: .refused, count: count), isConfirmed: true)
  }

  func send(_ index: Int, _ command: LogCommand, _ script: StoreScript?, _ parts: [RESPPart]) {
    let start = ProcessInformation.monotonicTime()
    send(parts, isShort: command.bytes == 0) { [self] outcome in
      switch outcome {
      case .reply(let reply):
        landing.replies[index] = RedisLog.decode(reply, to: command)
        if let script { metrics.note(script.name, ProcessInformation.monotonicTime() - start) }
      case .refused(let error): note(error)
      case .lost: hasFailed = true
      }
    }
  }

  /// Sends an additional command, whose reply is not reported.
  func send(_ parts: [RESPPart]) {
    send(parts, isShort: true) { [self] outcome in
      switch outcome {
      case .reply: break
      case .refused(let error): note(error)
      case .lost: hasFailed = true
      }
    }
  }

  /// Sends a write that changes nothing. Since version 7.2, WAIT waits only for the last write of its own connection.
  /// With this write after the reads, WAIT also confirms the writes that the reads have seen. Redis accepts this write
  /// even if its memory is full.
  ///
  /// - Parameter channel: a channel without subscribers.
  func write(to channel: String) {
    send(["PUBLISH", .text(channel), ""], isShort: true) { [self] outcome in
      switch outcome {
      case .reply: break
      case .refused(let error):
        isPublished = false
        note(error)
      case .lost: hasFailed = true
      }
    }
  }

  func wait(for replicas: Int) {
    send(["WAIT", .decimal(UInt64(replicas)), .decimal(Self.waitMilliseconds)], isShort: true) { [self] outcome in
      switch outcome {
      case .reply(let reply): landing.isConfirmed = isPublished && reply.integer ?? 0 >= Int64(replicas)
      case .refused(let error):
        landing.isConfirmed = false
        note(error)
      case .lost: hasFailed = true
      }
    }
  }

  private func note(_ error: RedisError) {
    landing.refusals.append(LogRefusal(error.description, concernsAllWrites: error.concernsAllWrites))
  }

  private func send(_ parts: [RESPPart], isShort: Bool, _ record: @escaping (RedisOutcome) -> Void) {
    let result = connection.send(parts, isShort: isShort) { [self] outcome in
      record(outcome)
      unanswered -= 1
      if unanswered == 0, !hasFailed { then(landing) }
    }
    if result == .sent { unanswered += 1 } else { hasFailed = true }
  }
}
