/// Commands that are sent to a log together. Their results are reported together, once it is known whether a failover
/// can lose them.
///
/// If the connection ends first, nothing is reported.
final class LogFlight {
  typealias Completion = (_ reply: LogReply, _ isConfirmed: Bool) -> Void

  /// A flight with this many bytes accepts no further session. A larger flight would delay the sessions in it for too
  /// long, and could exceed the timeout of a command.
  private static var fullBytes: Int { 8 << 20 }
  /// Bytes that are added to the size of each command. They keep the number of commands in a flight far below the limit
  /// of a connection (`RedisPipeline.commandLimit`).
  private static var commandBytes: Int { 512 }

  private let replicas: Int
  private var commands: [LogCommand] = []
  private var completions: [Completion] = []
  /// The sum of `LogCommand.bytes` and `commandBytes` over all commands.
  private var bytes = 0
  private var landing = LogLanding(replies: [], isConfirmed: true)
  /// Whether a command stores entries.
  private(set) var hasEntries = false

  /// - Parameter replicas: the number of replicas that must confirm the flight.
  init(replicas: Int) { self.replicas = replicas }

  var isEmpty: Bool { completions.isEmpty }
  var isFull: Bool { bytes >= Self.fullBytes }
  var isConfirmed: Bool { landing.isConfirmed }
  var firstRefusal: LogRefusal? { landing.refusals.first }

  /// Why the engine refuses all writes of this gateway, or its replicas do not confirm them. nil if the writes are
  /// accepted, or if each error concerns one session only.
  var refusal: StoreRefusal? {
    if let refusal = landing.refusals.first(where: \.concernsAllWrites) { return .error(refusal.reason) }
    return isConfirmed ? nil : .shortage("fewer than \(replicas) replicas have confirmed the changes")
  }

  func send(_ command: LogCommand, then: @escaping Completion = { _, _ in }) {
    bytes += command.bytes + Self.commandBytes
    if command.hasEntries { hasEntries = true }
    commands.append(command)
    completions.append(then)
  }

  /// Call this after the last command. Returns false if not all commands could be sent.
  func depart(over log: any SharedLog, on lane: LogLane, landed: @escaping (LogFlight) -> Void) -> Bool {
    let commands = commands
    self.commands = []
    return log.send(commands, on: lane) { [self] landing in
      self.landing = landing
      landed(self)
    }
  }

  /// Reports the results, in the order of the commands.
  func report() {
    for (completion, reply) in zip(completions, landing.replies) { completion(reply, isConfirmed) }
  }
}
