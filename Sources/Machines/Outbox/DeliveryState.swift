import ByteStreams

/// The state of a message that a client sent.
package enum DeliveryState: UInt8, CaseIterable, Sendable {
  /// In the queue, or in a buffer of the gateway. → written, expired, replaced, rejected. If the message was written
  /// before, also → unknown, confirmed (by a reply)
  case queued = 1
  /// The kernel has accepted the whole message. Final if confirmations are off. → confirmed, unknown, rejected, queued
  /// (redelivery)
  case written
  /// The upstream's WebSocket layer responded to a ping that was sent after the message. Final.
  case confirmed
  /// The message's time to live ended before the message was written, or the client of the call disconnected. Final.
  case expired
  /// A newer message with the same replacement key replaced it. Final.
  case replaced
  /// Dropped, for example by a full queue or because the upstream refused it (see `DeliveryReason`). Final.
  case rejected
  /// The connection was lost after the message was written and before it was confirmed. The message may have arrived.
  /// Final.
  case unknown

  package var name: String {
    switch self {
    case .queued: "queued"
    case .written: "written"
    case .confirmed: "confirmed"
    case .expired: "expired"
    case .replaced: "replaced"
    case .rejected: "rejected"
    case .unknown: "unknown"
    }
  }
}

/// Why a message did not arrive, or may not have arrived.
package enum DeliveryReason: UInt8, CaseIterable, Sendable {
  /// The message's time to live ended while the message was queued. The time to live of a call also ends when its
  /// client disconnects.
  case ttl = 1
  /// The message had time to live 0, and could not be sent at once.
  case notSentAtOnce
  /// A full queue dropped the message as its oldest message.
  case queueFull
  /// The session ended before the message was sent.
  case sessionClosed
  /// The connection was lost after the message was written, or too often while the message was being written.
  case connectionLost
  /// The upstream refused the message as too large (1009), or the message exceeds the limit that the upstream has
  /// announced.
  case tooLarge
  /// The message's Socket.IO namespace is not connected, or the connection that the message belongs to has ended.
  case notConnected
  /// The gateway was restarted after the message may have been written.
  case gatewayRestart
  /// The message could not be stored, and its sender got an error.
  case storeFailed

  package var name: StaticString {
    switch self {
    case .ttl: "ttl"
    case .notSentAtOnce: "not-sent-at-once"
    case .queueFull: "queue-full"
    case .sessionClosed: "session-closed"
    case .connectionLost: "connection-lost"
    case .tooLarge: "too-large"
    case .notConnected: "namespace-not-connected"
    case .gatewayRestart: "gateway-restart"
    case .storeFailed: "store-failed"
    }
  }
}

/// The state of a message, the reason if the message did not arrive, and when the message reached the state, with a
/// resolution of 10 ms.
package struct DeliveryRecord: Equatable, Sendable {
  package let state: DeliveryState
  package let reason: DeliveryReason?
  package let time: MonotonicTime
}
