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
  /// Dropped: by an overflow that drops the oldest, by the end of the session, or because the upstream refused it. Final.
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

/// The state of each of the last messages by its sequence number, a byte each.
///
/// It grows with use, so that a session that never sends costs nothing, up to `limit` messages; then it forgets the oldest.
package struct DeliveryLedger: Sendable {
  /// What `GET /v1/deliveries/{id}` can answer for: a minute of a busy session, in 64 KiB.
  package static let limit = 65_536

  private var states: [UInt8] = []
  /// The last sequence number that was given out; numbers begin at 1.
  package private(set) var last: UInt64 = 0
  /// How many messages came into each state, by its raw value.
  private var totals: [UInt64] = Array(repeating: 0, count: 8)

  package init() {}

  /// Gives out the next number, for a message that is queued now.
  @inline(__always)
  mutating func open() -> UInt64 {
    last &+= 1
    if last > states.count, states.count < Self.limit {
      states.append(contentsOf: repeatElement(0, count: max(64, states.count)))
    }
    states[index(of: last)] = DeliveryState.queued.rawValue
    totals[Int(DeliveryState.queued.rawValue)] &+= 1
    return last
  }

  /// nil for a number that was never given out, or is forgotten.
  package func state(of sequence: UInt64) -> DeliveryState? {
    guard remembers(sequence) else { return nil }
    return DeliveryState(rawValue: states[index(of: sequence)])
  }

  mutating func set(_ sequence: UInt64, to state: DeliveryState) {
    totals[Int(state.rawValue)] &+= 1
    if remembers(sequence) { states[index(of: sequence)] = state.rawValue }
  }

  /// Messages that ever came into `state`.
  package func total(_ state: DeliveryState) -> UInt64 { totals[Int(state.rawValue)] }

  private func remembers(_ sequence: UInt64) -> Bool {
    sequence > 0 && sequence <= last && last &- sequence < UInt64(states.count)
  }

  @inline(__always)
  private func index(of sequence: UInt64) -> Int { Int((sequence &- 1) & UInt64(states.count &- 1)) }
}
