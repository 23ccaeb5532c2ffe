/// The state of a message that a client sent.
package enum DeliveryState: UInt8, CaseIterable, Sendable {
  /// In the queue, or in one of our buffers. → written, expired, replaced, rejected; unknown if it was written once before
  case queued = 1
  /// The kernel has accepted all of it. Final if confirmations are off. → confirmed, unknown, rejected, queued (redelivery)
  case written
  /// The upstream's WebSocket layer responded to a ping that was sent after the message. Final.
  case confirmed
  /// Its time to live ended before it was written. Final.
  case expired
  /// A newer message with the same topic replaced it. Final.
  case replaced
  /// Dropped: because a full queue drops the oldest, because the session ended, because the upstream refused it (1009), or
  /// because too many connections were lost while it was partially written. Final.
  case rejected
  /// The connection was lost after the message was written and before it was confirmed. It may have arrived. Final.
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
