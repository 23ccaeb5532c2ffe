import Metrics
import Threading
import Totals

/// The contents of the responses that HTTP clients of all loops are receiving, in bytes, by the clients of the gateway that wait for them.
package final class ReceivedContents: Sendable {
  package let limit: Int
  private let gauge: Gauge
  private let total: Locked<ReservedTotal>

  /// - Parameters:
  ///   - limit: of one client (`Reserve`).
  ///   - gauge: shows the sum.
  package init(limit: Int, shownBy gauge: Gauge) {
    self.limit = limit
    self.gauge = gauge
    total = Locked(ReservedTotal(limit: limit))
  }

  /// Counts that the responses of `client` have `growth` bytes more. Returns false, and counts nothing, if they may not.
  ///
  /// - Parameter isSmall: whether they may in any case.
  func add(_ growth: Int, by client: UInt64, isSmall: Bool) -> Bool {
    let isAdmitted = total.withLock { total in
      guard isSmall || growth <= 0 || total.admits(growth, by: client) else { return false }
      if growth > 0 { total.add(growth, by: client) } else { total.remove(-growth, by: client) }
      return true
    }
    if isAdmitted { gauge.add(growth) }
    return isAdmitted
  }
}
