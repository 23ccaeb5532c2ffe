import ByteStreams
import RESPCodec

/// The first commands of a connection, and the verification of their replies.
///
/// Each command is sent after the reply to the previous command. If all commands were sent together, the reply to a
/// failing AUTH could be lost: a server that closes a connection with unread commands resets the connection.
///
///     while handshake.writeNext(into: &output) { … try handshake.receive(reply) }
package struct RedisHandshake: Sendable {
  /// The required role of the server.
  package enum Peer: Sendable {
    /// A primary that is not part of a cluster.
    case primary
    case sentinel
  }

  /// A command, and the verification of its reply.
  private struct Step: Sendable {
    let command: [RESPPart]
    let read: @Sendable (RESPReply, inout RedisHandshake) throws(RedisFailure) -> Void

    static func requireOK(_ name: StaticString, _ arguments: [RESPPart]) -> Step {
      Step(command: [.literal(name)] + arguments) { reply, _ throws(RedisFailure) in
        guard reply == .simple("OK") else { throw .violation("the reply to \(name) is not OK") }
      }
    }

    /// Redis before 7.0 accepts one section per command.
    static func info(
      _ section: StaticString,
      _ read: @escaping @Sendable (String, inout RedisHandshake) throws(RedisFailure) -> Void
    ) -> Step {
      Step(command: ["INFO", .literal(section)]) { reply, handshake throws(RedisFailure) in
        guard case .bulk(let bytes) = reply else { throw .violation("the reply to INFO is not a string") }
        try read(bytes.span.text(), &handshake)
      }
    }

    static func load(_ script: RedisScript) -> Step {
      Step(command: ["SCRIPT", "LOAD", .text(script.text)]) { reply, _ throws(RedisFailure) in
        guard reply.bytes == script.digest else { throw .unsuitable(.scriptDigest) }
      }
    }
  }

  /// The steps whose replies have not arrived yet.
  private var steps: ArraySlice<Step>
  private var server = ""
  /// nil before it is known, and for a Sentinel.
  package private(set) var information: RedisServerInformation?

  package init(
    with peer: Peer, _ credentials: RedisCredentials = RedisCredentials(), database: Int = 0,
    scripts: [RedisScript] = []
  ) {
    var steps: [Step] = []
    if let password = credentials.password {
      steps.append(.requireOK("AUTH", [credentials.user, password].compactMap { $0.map { .text($0) } }))
    }
    if database != 0 { steps.append(.requireOK("SELECT", [.decimal(UInt64(database))])) }
    switch peer {
    case .sentinel:
      steps.append(
        .info("server") { text, _ throws(RedisFailure) in
          try RedisServerInformation.checkedServer(text, mode: "sentinel")
        })
    case .primary:
      steps.append(.info("server") { text, handshake in handshake.server = text })
      steps.append(
        .info("replication") { text, handshake throws(RedisFailure) in
          let information = try RedisServerInformation(server: handshake.server, replication: text)
          guard information.isPrimary else { throw .unsuitable(.replica) }
          handshake.information = information
        })
      steps += scripts.map { .load($0) }
    }
    self.steps = steps[...]
  }

  package var isComplete: Bool { steps.isEmpty }

  /// Appends the next command. Returns false if the handshake is complete.
  package func writeNext(into output: inout ByteQueue) -> Bool {
    guard let step = steps.first else { return false }
    output.append(command: step.command)
    return true
  }

  /// Reads the reply to the last command.
  package mutating func receive(_ reply: RESPReply) throws(RedisFailure) {
    if case .error(let text) = reply { throw .refused(RedisError(text)) }
    guard let step = steps.popFirst() else { throw .violation("a reply without a command") }
    try step.read(reply, &self)
  }
}
