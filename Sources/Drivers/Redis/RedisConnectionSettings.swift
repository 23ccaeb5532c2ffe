import ByteStreams
import RESPCodec
import RedisProtocol

/// What a connection is for, and its timeouts.
package struct RedisConnectionSettings: Sendable {
  package enum Purpose: Sendable {
    /// `send` is used.
    case commands
    /// `subscribe` and `unsubscribe` are used, after the connection has subscribed to these channels.
    case subscriptions([String])
  }

  package var purpose = Purpose.commands
  package var peer = RedisHandshake.Peer.primary
  /// Loaded before the connection is ready.
  package var scripts: [RedisScript] = []
  /// Maximum time from the look-up of the name to `ready`.
  package var startTimeout: TimeSpan = .seconds(3)
  /// How long the oldest command may have no reply.
  package var commandTimeout = RedisPipeline.defaultTimeout
  package var limits = RESPLimits()

  package init() {}
}

/// Receives the events of connections, on their loop.
package protocol RedisConnectionOwner: AnyObject {
  func connection(_ connection: RedisConnection, reports event: RedisConnection.Event)
}
