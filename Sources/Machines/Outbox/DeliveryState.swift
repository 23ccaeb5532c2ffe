/// What has become of a message that was sent.
package enum DeliveryState: UInt8, CaseIterable, Sendable {
  /// Waits in the queue, or in a buffer of ours. → written, expired, replaced, rejected
  case queued = 1
  /// The kernel has all of it. Final where confirmations are off. → confirmed, unknown, rejected, queued (redelivery)
  case written
  /// The upstream's WebSocket layer answered a ping that was sent after it. Final.
  case confirmed
  /// Its time to live ended before it was written. Final.
  case expired
  /// A newer message with the same topic took its place. Final.
  case replaced
  /// Dropped: by an overflow that drops the oldest, by the end of the session, because the upstream refused it (1009), or
  /// because too many connections ended in the midst of it. Final.
  case rejected
  /// The connection was lost between write and confirmation: it may have arrived, or not. Final.
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
