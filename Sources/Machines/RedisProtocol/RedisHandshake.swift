import ByteStreams
import RESPCodec

/// The first commands of a connection, and the verification of their replies.
///
/// Each command is sent after the reply to the previous one. In a batch, a server might not reply at all to an AUTH
/// that fails behind another command. A server that closes the connection while it has unread commands would reset it,
/// and the reply would be lost.
///
///     while handshake.writeNext(into: &output) { … try handshake.receive(reply) }
package struct RedisHandshake: Sendable {
  /// The required role of the server.
  package enum Peer: Sendable {
    /// A primary that is not part of a cluster.
    case primary
    case sentinel
  }

  private enum Step {
    case authenticate
    case select
    case server
    case replication
    case script(Int)
    case complete
  }

  private let peer: Peer
  private let credentials: RedisCredentials
  private let database: Int
  private let scripts: [RedisScript]
  private var step: Step
  private var server = ""
  /// nil before it is known, and for a Sentinel.
  package private(set) var information: RedisServerInformation?

  package init(
    with peer: Peer, _ credentials: RedisCredentials = RedisCredentials(), database: Int = 0,
    scripts: [RedisScript] = []
  ) {
    self.peer = peer
    self.credentials = credentials
    self.database = database
    self.scripts = scripts
    step = credentials.password != nil ? .authenticate : database != 0 ? .select : .server
  }

  package var isComplete: Bool { if case .complete = step { true } else { false } }

  /// Appends the next command. Returns false if the handshake is complete.
  package func writeNext(into output: inout ByteQueue) -> Bool {
    switch step {
    case .complete: return false
    case .authenticate:
      let user = credentials.user
      output.appendCommand(parts: user == nil ? 2 : 3) { parts in
        parts.append("AUTH")
        if let user { parts.append(user) }
        parts.append(credentials.password ?? "")
      }
    case .select:
      output.appendCommand(parts: 2) { parts in
        parts.append("SELECT")
        parts.append(decimal: UInt64(database))
      }
    case .server: Self.writeInfo("server", into: &output)
    case .replication: Self.writeInfo("replication", into: &output)
    case .script(let index):
      output.appendCommand(parts: 3) { parts in
        parts.append("SCRIPT")
        parts.append("LOAD")
        parts.append(scripts[index].text)
      }
    }
    return true
  }

  private static func writeInfo(_ section: StaticString, into output: inout ByteQueue) {
    // Redis before 7.0 accepts one section per command.
    output.appendCommand(parts: 2) { parts in
      parts.append("INFO")
      parts.append(section)
    }
  }

  /// Reads the reply to the last command.
  package mutating func receive(_ reply: RESPReply) throws(RedisFailure) {
    if case .error(let text) = reply { throw .refused(RedisError(text)) }
    switch step {
    case .authenticate:
      try Self.requireOK(reply, of: "AUTH")
      step = database != 0 ? .select : .server
    case .select:
      try Self.requireOK(reply, of: "SELECT")
      step = .server
    case .server:
      server = try Self.text(reply, of: "INFO")
      if case .sentinel = peer { try RedisServerInformation.checkedServer(server, mode: "sentinel") }
      switch peer {
      case .primary: step = .replication
      case .sentinel: step = .complete
      }
    case .replication:
      let information = try RedisServerInformation(server: server, replication: try Self.text(reply, of: "INFO"))
      guard information.isPrimary else { throw .unsuitable(.replica) }
      self.information = information
      server = ""
      step = scripts.isEmpty ? .complete : .script(0)
    case .script(let index):
      guard reply.bytes == scripts[index].digest else { throw .unsuitable(.scriptDigest) }
      step = index + 1 < scripts.count ? .script(index + 1) : .complete
    case .complete: throw .violation("a reply without a command")
    }
  }

  private static func requireOK(_ reply: RESPReply, of command: String) throws(RedisFailure) {
    guard reply == .simple("OK") else { throw .violation("the reply to \(command) is not OK") }
  }

  private static func text(_ reply: RESPReply, of command: String) throws(RedisFailure) -> String {
    guard case .bulk(let bytes) = reply else { throw .violation("the reply to \(command) is not a string") }
    return bytes.span.text()
  }
}
