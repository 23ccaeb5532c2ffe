import ByteStreams
import RESPCodec
import RedisProtocol

/// The purpose of a connection, and its timeouts.
package struct RedisConnectionSettings: Sendable {
  package enum Purpose: Sendable {
    /// `send` is used.
    case commands
    /// `subscribe` and `unsubscribe` are used, after the connection has subscribed to these channels.
    case subscriptions([String])
  }

  package var purpose = Purpose.commands
  package var peer = RedisHandshake.Peer.primary
  /// Loaded before the connection becomes ready.
  package var scripts: [RedisScript] = []
  /// Maximum time from the start of name resolution to `ready`.
  package var startTimeout: TimeSpan = .seconds(3)
  /// Maximum time without a reply to the oldest command.
  package var commandTimeout = RedisPipeline.defaultTimeout
  package var limits = RESPLimits()

  package init() {}
}

/// Receives the events of connections, on their loop.
package protocol RedisConnectionOwner: AnyObject {
  func connection(_ connection: RedisConnection, reports event: RedisConnection.Event)
}
