import ByteStreams

/// Checks whether this gateway can reach the other gateways at the addresses that they publish.
///
/// Without these checks, a wrong `listeners.peer_address` would be noticed only when a request is forwarded, and would
/// look like a session without a holder. So each gateway tries to connect to each other gateway that appears, and lists
/// in its own entry which gateways it has never reached. A gateway that was reached once is not tried again, since a
/// later fault of the network is not a fault of the settings.
package struct PeerChecks: Sendable {
  private struct Check: Sendable {
    let address: String
    /// nil while an attempt is in progress.
    var nextAttempt: MonotonicTime?
    /// Why the last attempt failed; nil before the end of the first attempt.
    var failure: String?
    var wasReached = false
  }

  /// Time between the end of a failed attempt and the next attempt.
  package static let interval = TimeSpan.seconds(2)
  /// Maximum number of gateways in an entry, which needs room for its other fields.
  package static let maximumNamed = 16

  private var checks: [GatewayID: Check] = [:]

  package init() {}

  /// Returns the gateways to try now, with their addresses. Each outcome must be reported with `ended`.
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

  /// The unreachable gateways for the entry of this gateway, sorted.
  package var named: [GatewayID] { Array(unreachable.keys.sorted { $0.value < $1.value }.prefix(Self.maximumNamed)) }
}
