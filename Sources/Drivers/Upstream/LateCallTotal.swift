import Threading
import Totals

/// Limits the memory, in bytes, of the late calls of all created sessions: the calls that timed out, for which a late
/// reply is kept. Each client that has created sessions has a share of the total. The default limit is eight times the
/// size of the late replies that one session keeps. Each late call is forgotten within a minute.
package final class LateCallTotal: Sendable {
  private let total: Locked<ReservedTotal>

  package init(limit: Int = 128 << 20) { total = Locked(ReservedTotal(limit: limit)) }

  /// The memory of late calls now.
  var bytes: Int { total.withLock { $0.used } }

  func admits(_ bytes: Int, by owner: UInt64) -> Bool { total.withLock { $0.admits(bytes, by: owner) } }

  func add(_ growth: Int, by owner: UInt64) {
    total.withLock { total in
      if growth > 0 { total.add(growth, by: owner) } else { total.remove(-growth, by: owner) }
    }
  }
}

/// Counts the late calls of one session in a `LateCallTotal`.
///
/// Sessions on different threads may add replies at the same time, so together they may exceed the limit by one reply
/// each.
struct LateCallShare: Sendable {
  private let total: LateCallTotal
  private let owner: UInt64

  /// - Parameter owner: the client that has created the session.
  init(of total: LateCallTotal, for owner: String) {
    self.total = total
    self.owner = TotalUser(owner, at: 0).principal
  }

  func admits(_ bytes: Int) -> Bool { total.admits(bytes, by: owner) }

  /// Replaces the counted memory of the session's late calls by their current memory.
  ///
  /// - Parameter counted: the memory that was counted before.
  func count(_ memory: Int, _ counted: inout Int) {
    guard memory != counted else { return }
    total.add(memory - counted, by: owner)
    counted = memory
  }
}
