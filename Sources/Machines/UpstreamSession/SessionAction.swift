import ByteStreams

/// What a session asks of its driver, in the order given.
package enum SessionAction: Equatable, Sendable {
  /// Open a connection. It reports under the generation given.
  case dial(Dial)
  /// Send the message of setup step `step`, and report the response that it expects.
  case sendSetup(step: Int, Generation)
  /// This connection is ready: the queue flows into it.
  case startSending(Generation)
  /// Nothing more of the queue goes to this connection. `lastIsPoison`: the upstream refused a message as too big
  /// (1009): the largest under way, or the last of them, must never go out again.
  case stopSending(Generation, lastIsPoison: Bool)
  /// The queue waits until `successor` may have it: nothing is taken, and nothing expires for it. The successor makes the
  /// subscriptions now.
  case pauseSending(Generation, successor: Generation)
  /// The queue flows on into this connection: its successor is gone.
  case resumeSending(Generation)
  /// What these two connections both bring is passed on once.
  case beginOverlap(older: Generation, newer: Generation)
  /// What two connections both bring is compared no longer.
  case endOverlap
  /// Send a ping whose payload is this counter, big-endian.
  case ping(UInt64, Generation)
  /// Send the heartbeat message with this counter, ahead of the queue.
  case sendHeartbeat(UInt64, Generation)
  /// Start, or answer, the closing handshake.
  case close(Generation, code: UInt16)
  /// Drop this dial or connection at once, whatever its state; nothing more is heard of it.
  case discard(Generation)
  /// Nobody in this process may dial this endpoint's host before then.
  case holdHost(endpoint: Int, until: MonotonicTime)
  /// Log, count and show this.
  case report(SessionTransition)
}

/// One order to open a connection.
package struct Dial: Equatable, Sendable {
  package let generation: Generation
  package let target: Target
  /// Read the credential anew even if a cached one looks good: the last was refused.
  package let refreshesCredential: Bool
  /// Whether to offer permessage-deflate, where it is configured.
  package let offersCompression: Bool
  /// Whether it does not wait for the end of a hold (`Retry-After`): an operator asked for it.
  package let overridesHold: Bool

  package enum Target: Equatable, Sendable {
    /// The configured URL with this index.
    case endpoint(Int)
    /// Where the answer to the last dial pointed; the driver has it.
    case redirection(from: Int)

    package var endpoint: Int {
      switch self {
      case .endpoint(let index), .redirection(from: let index): index
      }
    }
  }
}
