import Metrics
import Threading
import Totals

/// The total size, in bytes, of the response contents that the HTTP clients of all loops are receiving. A content is
/// counted for the client of the gateway that waits for the response.
package final class ReceivedContents: Sendable {
  package let limit: Int
  private let gauge: Gauge
  private let total: Locked<ReservedTotal>

  /// - Parameters:
  ///   - limit: the maximum of one client (`Reserve`).
  ///   - gauge: shows the sum.
  package init(limit: Int, shownBy gauge: Gauge) {
    self.limit = limit
    self.gauge = gauge
    total = Locked(ReservedTotal(limit: limit))
  }

  /// Counts `growth` more bytes in the responses to `client`. If there is no room, counts nothing and returns false.
  ///
  /// - Parameter isSmall: whether the bytes are counted even if there is no room.
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
