/// Commands that are sent to a log together. Their results are reported when it is known of all whether a failover can lose them.
///
/// If the connection ends first, nothing is reported.
final class LogFlight {
  typealias Completion = (_ reply: LogReply, _ isConfirmed: Bool) -> Void

  /// No session begins a command in a flight that has this many bytes: the others would wait too long for theirs, and Redis for longer than the
  /// timeout of a command.
  private static var fullBytes: Int { 8 << 20 }
  /// What a command and its reply count at least. A flight has far fewer commands than a connection accepts (`RedisPipeline.commandLimit`).
  private static var commandBytes: Int { 512 }

  private let replicas: Int
  private var commands: [LogCommand] = []
  private var completions: [Completion] = []
  /// The size of the commands, or of their replies where these are larger.
  private var bytes = 0
  private var landing = LogLanding(replies: [], isConfirmed: true)
  /// Whether entries are to be stored.
  private(set) var hasEntries = false

  /// - Parameter replicas: how many must confirm it.
  init(replicas: Int) { self.replicas = replicas }

  var isEmpty: Bool { completions.isEmpty }
  var isFull: Bool { bytes >= Self.fullBytes }
  var isConfirmed: Bool { landing.isConfirmed }
  var firstRefusal: LogRefusal? { landing.refusals.first }

  /// Why the engine, or its replicas, refuse what this gateway stores; nil if they do not, also if an error concerns one session.
  var refusal: StoreRefusal? {
    if let refusal = landing.refusals.first(where: \.concernsAllWrites) { return .error(refusal.reason) }
    return isConfirmed ? nil : .shortage("fewer than \(replicas) replicas have confirmed what was written")
  }

  func send(_ command: LogCommand, then: @escaping Completion = { _, _ in }) {
    bytes += command.bytes + Self.commandBytes
    if command.hasEntries { hasEntries = true }
    commands.append(command)
    completions.append(then)
  }

  /// To be called after the last command. Returns false if not all could be sent.
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
