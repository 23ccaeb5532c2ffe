import Threading
import Totals

/// Memory of the late calls of all sessions that clients create, in bytes, by the owners of the sessions. Enough for eight times the late replies that
/// one session keeps. Each call ends within a minute.
package final class LateCallTotal: Sendable {
  private let total: Locked<ReservedTotal>

  package init(limit: Int = 128 << 20) { total = Locked(ReservedTotal(limit: limit)) }

  /// What late calls have now.
  var bytes: Int { total.withLock { $0.used } }

  func admits(_ bytes: Int, by owner: UInt64) -> Bool { total.withLock { $0.admits(bytes, by: owner) } }

  func add(_ growth: Int, by owner: UInt64) {
    total.withLock { total in
      if growth > 0 { total.add(growth, by: owner) } else { total.remove(-growth, by: owner) }
    }
  }
}

/// The part of one session.
///
/// Two sessions on different threads may pass the limit together, by one reply each.
struct LateCallShare: Sendable {
  private let total: LateCallTotal
  private let owner: UInt64

  /// - Parameter owner: the client that has created the session.
  init(of total: LateCallTotal, for owner: String) {
    self.total = total
    self.owner = TotalUser(owner, at: 0).principal
  }

  func admits(_ bytes: Int) -> Bool { total.admits(bytes, by: owner) }

  /// Counts what the calls of the session have by now.
  ///
  /// - Parameter counted: what is counted of them already.
  func count(_ memory: Int, _ counted: inout Int) {
    guard memory != counted else { return }
    total.add(memory - counted, by: owner)
    counted = memory
  }
}
