import ByteStreams

/// An instruction of the session machine to its driver. Actions are carried out in order.
package enum SessionAction: Equatable, Sendable {
  /// Open a connection. Its reports carry the generation of the `Dial`.
  case dial(Dial)
  /// Send the message of setup step `step`, and report the response that it expects.
  case sendSetup(step: Int, Generation)
  /// The response to an optional step is overdue. Report it as received, and continue without it.
  case skipSetup(step: Int, Generation)
  /// The connection is ready: it takes messages from the outbox.
  case startSending(Generation)
  /// The connection takes no more messages. `closedAsTooBig`: the upstream rejected a message as too big (1009). In
  /// this case the largest message in flight must never be sent again. If several are equally large, this applies to
  /// the last of them.
  case stopSending(Generation, closedAsTooBig: Bool)
  /// Pause the queue until `successor` may send: no message is taken. A message with time to live 0 waits briefly
  /// (`Outbox.immediateDelay`) instead of ending at once. The stored subscriptions are sent on the successor now.
  case pauseSending(Generation, successor: Generation)
  /// The connection sends again: its successor has ended.
  case resumeSending(Generation)
  /// Begin to pass on each push once, even if both connections deliver it.
  case beginOverlap(older: Generation, newer: Generation)
  /// Stop comparing the pushes of the two connections.
  case endOverlap
  /// Send a ping whose payload is this counter, big-endian.
  case ping(UInt64, Generation)
  /// Send the heartbeat message with this counter, ahead of the queue.
  case sendHeartbeat(UInt64, Generation)
  /// Start the closing handshake, or respond to it.
  case close(Generation, code: UInt16)
  /// Drop this attempt or connection at once, in any state. Its later reports are ignored.
  case discard(Generation)
  /// No session of this process may connect to the endpoint's host before `until`.
  case pauseHost(endpoint: Int, until: MonotonicTime)
  /// Log, count and publish this transition.
  case report(SessionTransition)
}

/// An instruction to open a connection.
package struct Dial: Equatable, Sendable {
  package let generation: Generation
  package let target: Target
  /// Read the credential again, even if a cached credential looks valid, since the upstream rejected the last
  /// credential.
  package let refreshesCredential: Bool
  /// Whether to offer permessage-deflate, if it is configured.
  package let offersCompression: Bool
  /// Whether to ignore a pause (`Retry-After`), since an operator requested the attempt.
  package let overridesPause: Bool

  package enum Target: Equatable, Sendable {
    /// The configured URL with this index.
    case endpoint(Int)
    /// The target of the last attempt's redirection, which the driver stores.
    case redirection(from: Int)

    package var endpoint: Int {
      switch self {
      case .endpoint(let index), .redirection(from: let index): index
      }
    }
  }
}

/// The kinds of output that the driver queues for these actions.
package enum SentControl: Sendable {
  case ping
  case heartbeat
  /// A setup message. Its position is the end of the message, since the message may be long.
  case setup(step: Int)
  case close
}
