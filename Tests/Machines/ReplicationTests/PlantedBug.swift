/// A mistake in a gateway, in a script or in Redis, which the simulation must find.
enum PlantedBug: String, CaseIterable {
  case tokenByCounter
  case serverNameAsHistory
  case noRepair
  case noGapAfterUnstamped
  case sameTerm
  case noDeadline
  case intentNotAwaited
  case noRegistration
  case stampedFirst
  case sequenceIgnored
  case noWait
  case loadBeforeSubscribe
  // Of this design alone.
  case stampedByAcquiring
  case gapsAtEndKept
  case repeatedWriteGrows

  /// Whether it shows only without WAIT: two terms with one counter are on different branches.
  var needsLoss: Bool { self == .tokenByCounter }

  /// Shortly before a seed with which it is found. A change of the simulation changes these: `make replication` prints others.
  var seed: UInt64 {
    switch self {
    case .tokenByCounter: 1280
    case .serverNameAsHistory: 9
    case .noGapAfterUnstamped: 59
    case .noRegistration: 1025
    case .stampedFirst: 51
    case .noWait: 6
    case .stampedByAcquiring: 221
    case .gapsAtEndKept: 840
    case .repeatedWriteGrows: 48
    default: 0
    }
  }
}

/// A rule of the protocol was broken.
struct Violation: Error, CustomStringConvertible {
  let description: String
}
