import ByteStreams
import Host
import RESPCodec
import Redis
import RedisProtocol

/// Commands that are sent to Redis together, and a WAIT behind them. Their results are reported when all of them, and the WAIT, have a reply: then
/// it is known of each whether a failover can lose it.
///
/// If the connection ends first, nothing is reported.
final class RedisFlight {
  /// - reply: nil if Redis has refused the command.
  typealias Completion = (_ reply: RESPReply?, _ isConfirmed: Bool) -> Void

  /// How long Redis may wait for its replicas. Shorter than the timeout of a command, with room for those before it.
  private static var waitMilliseconds: UInt64 { 500 }
  /// No session begins a command in a flight that has this many bytes: the others would wait too long for theirs, and Redis for longer than the
  /// timeout of a command.
  private static var fullBytes: Int { 8 << 20 }
  /// What a command and its reply count at least. A flight has far fewer commands than a connection accepts (`RedisPipeline.commandLimit`).
  private static var commandBytes: Int { 512 }

  private let connection: RedisConnection
  private let replicas: Int
  /// Of a channel to which nobody subscribes.
  private let nobody: String
  private let metrics: RedisStoreMetrics?
  private let landed: (RedisFlight) -> Void
  private var completions: [Completion] = []
  private var replies: [RESPReply?] = []
  /// Whether enough replicas have everything.
  private(set) var isConfirmed = true
  private var unanswered = 0
  /// Those of the commands, or of their replies.
  private var bytes = 0
  /// The errors with which Redis has refused commands.
  private(set) var errors: [RedisError] = []
  /// Whether entries are to be stored.
  private(set) var hasEntries = false
  private var reads = false
  private var isPublished = true
  /// Whether a command was lost, or could not be sent.
  private(set) var hasFailed = false

  init(
    _ connection: RedisConnection, replicas: Int, nobody: String, metrics: RedisStoreMetrics? = nil,
    landed: @escaping (RedisFlight) -> Void
  ) {
    self.connection = connection
    self.metrics = metrics
    self.replicas = replicas
    self.nobody = nobody
    self.landed = landed
  }

  var isEmpty: Bool { completions.isEmpty }
  /// Why Redis, or its replicas, refuse what this gateway stores; nil: they do not. An error that concerns one session is none.
  var refusal: StoreRefusal? {
    if let error = errors.first(where: \.concernsAllWrites) { return .error(error.description) }
    return isConfirmed ? nil : .shortage("fewer than \(replicas) replicas have confirmed what was written")
  }

  /// A command with entries was sent.
  func noteEntries() { hasEntries = true }

  /// A command was sent that reads what other connections may have written.
  func noteReading() { reads = true }

  var isFull: Bool { bytes >= Self.fullBytes }

  /// - Parameters:
  ///   - script: nil: another command.
  ///   - bytes: about as many as the command has, or its reply; 0: a few KiB at most.
  func send(
    _ script: StoreScript? = nil, parts: Int, bytes: Int = 0, _ write: (inout RESPCommandParts) -> Void,
    then: @escaping Completion
  ) {
    let start = ProcessInformation.monotonicTime()
    let index = completions.count
    completions.append(then)
    replies.append(nil)
    self.bytes += bytes + Self.commandBytes
    send(parts: parts, isShort: bytes == 0, write) { [self] outcome in
      switch outcome {
      case .reply(let reply):
        replies[index] = reply
        if let script { metrics?.note(script.name, ProcessInformation.monotonicTime() - start) }
      case .refused(let error): errors.append(error)
      case .lost: hasFailed = true
      }
    }
  }

  private func send(
    parts: Int, isShort: Bool, _ write: (inout RESPCommandParts) -> Void, _ record: @escaping (RedisOutcome) -> Void
  ) {
    let result = connection.send(parts: parts, isShort: isShort, write) { [self] outcome in
      record(outcome)
      unanswered -= 1
      if unanswered == 0, !hasFailed { landed(self) }
    }
    if result == .sent { unanswered += 1 } else { hasFailed = true }
  }

  /// To be called after the last command. Then `hasFailed` says whether all could be sent.
  func depart() {
    guard replicas > 0 else { return }
    if reads {
      // Since version 7.2, WAIT waits for the last write of its own connection only. This is one, after all that was read. It changes nothing, and Redis
      // accepts it also while it is full.
      send(parts: 3, isShort: true) { parts in
        parts.append("PUBLISH")
        parts.append(nobody)
        parts.append("")
      } _: { [self] outcome in
        switch outcome {
        case .reply: break
        case .refused(let error):
          isPublished = false
          errors.append(error)
        case .lost: hasFailed = true
        }
      }
    }
    send(parts: 3, isShort: true) { parts in
      parts.append("WAIT")
      parts.append(decimal: UInt64(replicas))
      parts.append(decimal: Self.waitMilliseconds)
    } _: { [self] outcome in
      switch outcome {
      case .reply(let reply): isConfirmed = isPublished && reply.integer ?? 0 >= Int64(replicas)
      case .refused(let error):
        isConfirmed = false
        errors.append(error)
      case .lost: hasFailed = true
      }
    }
  }

  /// Reports the results, in the order of the commands.
  func report() {
    for (completion, reply) in zip(completions, replies) { completion(reply, isConfirmed) }
  }
}
