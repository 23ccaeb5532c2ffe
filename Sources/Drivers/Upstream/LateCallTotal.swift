import Threading
import Totals

/// Limits the memory, in bytes, of the late calls of all created sessions: the calls that timed out, for which a late
/// reply is kept. Each owner of sessions has a share. The default is eight times the late replies that one session
/// keeps. Each late call ends within a minute.
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
/// Two sessions on different threads may exceed the limit together, by one reply each.
struct LateCallShare: Sendable {
  private let total: LateCallTotal
  private let owner: UInt64

  /// - Parameter owner: the client that has created the session.
  init(of total: LateCallTotal, for owner: String) {
    self.total = total
    self.owner = TotalUser(owner, at: 0).principal
  }

  func admits(_ bytes: Int) -> Bool { total.admits(bytes, by: owner) }

  /// Counts the current memory of the session's late calls.
  ///
  /// - Parameter counted: the memory that was counted before.
  func count(_ memory: Int, _ counted: inout Int) {
    guard memory != counted else { return }
    total.add(memory - counted, by: owner)
    counted = memory
  }
}
