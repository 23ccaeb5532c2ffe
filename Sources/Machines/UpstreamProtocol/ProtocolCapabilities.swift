/// The capabilities of an application protocol. Other code tests for a capability, and never for a protocol.
package struct ProtocolCapabilities: OptionSet, Sendable {
  package let rawValue: UInt16

  package init(rawValue: UInt16) { self.rawValue = rawValue }

  /// Each message of the upstream must be passed to `receive`. Without this capability, every message is a push.
  package static let examination = ProtocolCapabilities(rawValue: 1)
  /// A message of the upstream may have several meanings. `receive` returns the first, and `next` returns the others.
  package static let severalMeanings = ProtocolCapabilities(rawValue: 1 << 1)
  /// Any message of the upstream counts as its heartbeat.
  package static let anyMessageIsHeartbeat = ProtocolCapabilities(rawValue: 1 << 2)
  /// The upstream announces heartbeats when a connection opens. These heartbeats, and not pings, show whether the
  /// upstream is alive.
  package static let announcedHeartbeats = ProtocolCapabilities(rawValue: 1 << 3)
  /// A ping is a message of the protocol (`ping`). Without this capability, it is a WebSocket ping (RFC 6455 §5.5.2).
  package static let messagePings = ProtocolCapabilities(rawValue: 1 << 4)
  /// Outgoing messages must be passed to `encode`. Without this capability, they are sent unchanged.
  package static let encoding = ProtocolCapabilities(rawValue: 1 << 5)
  /// Pushes and outgoing messages are events, and a call is an event whose acknowledgement is the reply. Without this
  /// capability, replies are found by `upstream.correlation`.
  package static let events = ProtocolCapabilities(rawValue: 1 << 6)
  /// The upstream may restore the state of the last connection on a new connection (`continuations`).
  package static let continuations = ProtocolCapabilities(rawValue: 1 << 7)
  /// `encode` numbers the messages of a connection, and `receive` finds the replies to calls by these numbers.
  package static let numberedIDs = ProtocolCapabilities(rawValue: 1 << 8)
  /// Some pushes are acknowledged (`takeAcknowledgement`).
  package static let acknowledgements = ProtocolCapabilities(rawValue: 1 << 10)
  /// Values of the upstream's messages are captured (`takeCaptureNews`).
  package static let captures = ProtocolCapabilities(rawValue: 1 << 9)
}
