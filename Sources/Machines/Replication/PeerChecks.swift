import ByteStreams

/// Whether this gateway can reach the others at the addresses that they state, tried once for each address.
///
/// A wrong `listeners.peer_address` is noticed only when a request is forwarded, and then as a session without a holder. So each gateway tries each
/// other one when it appears, and states in its own entry which ones it has never reached. What was reached once is not tried again: a later fault of
/// the network is not a fault of the settings.
package struct PeerChecks: Sendable {
  private struct Check: Sendable {
    let address: String
    /// nil while an attempt is in progress.
    var nextAttempt: MonotonicTime?
    /// Why the last attempt failed; nil before an attempt has ended.
    var failure: String?
    var wasReached = false
  }

  /// Between the end of a failed attempt and the next one.
  package static let interval = TimeSpan.seconds(2)
  /// Maximum gateways that an entry names, so that it has room for its other fields.
  package static let maximumNamed = 16

  private var checks: [GatewayID: Check] = [:]

  package init() {}

  /// Returns the gateways to be tried now, each with its address. Report each outcome with `ended`.
  ///
  /// - Parameter others: the addresses of the other gateways whose heartbeats arrive.
  package mutating func due(_ others: [GatewayID: String], now: MonotonicTime) -> [(
    gateway: GatewayID, address: String
  )] {
    checks = checks.filter { others[$0.key] == $0.value.address }
    var due: [(gateway: GatewayID, address: String)] = []
    for (gateway, address) in others {
      var check = checks[gateway] ?? Check(address: address, nextAttempt: now)
      guard !check.wasReached, let next = check.nextAttempt, now >= next else { continue }
      check.nextAttempt = nil
      checks[gateway] = check
      due.append((gateway, address))
    }
    return due
  }

  /// - Parameter failure: why the gateway was not reached; nil if it was reached.
  package mutating func ended(_ gateway: GatewayID, at address: String, failure: String?, now: MonotonicTime) {
    guard var check = checks[gateway], check.address == address else { return }
    check.nextAttempt = now + Self.interval
    check.failure = failure
    check.wasReached = failure == nil
    checks[gateway] = check
  }

  /// The gateways that were tried and never reached.
  package var unreachable: [GatewayID: (address: String, reason: String)] {
    var result: [GatewayID: (address: String, reason: String)] = [:]
    for (gateway, check) in checks where !check.wasReached {
      if let failure = check.failure { result[gateway] = (check.address, failure) }
    }
    return result
  }

  /// For the entry of this gateway, in a fixed order.
  package var named: [GatewayID] { Array(unreachable.keys.sorted { $0.value < $1.value }.prefix(Self.maximumNamed)) }
}
