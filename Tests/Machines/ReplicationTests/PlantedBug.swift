/// A bug in a gateway, in a script or in Redis, which the simulation must find.
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
  case queueSentAfterLoss
  case stateNotReplaced
  case laterTermWins
  // Bugs that only this protocol can have.
  case stampedByAcquiring
  case gapsAtEndKept
  case repeatedWriteGrows
  case leaseNotStored
  case unconfirmedFollowed
  case drainingAcquires
  case drainingRenews
  case drainingKeepsToken
  case ownWriteAwaited

  /// Whether the bug has an effect only without WAIT. Such a bug needs two terms with one counter, or a follower whose
  /// copy has entries that the log has lost.
  var needsLoss: Bool { self == .tokenByCounter || self == .gapsAtEndKept }

  /// A seed shortly before a seed that finds the bug. A change of the simulation changes the seeds; `make replication`
  /// prints the new seeds.
  var seed: UInt64 {
    switch self {
    case .tokenByCounter: 510
    case .serverNameAsHistory: 73
    case .noRepair: 6
    case .sameTerm: 8
    case .noDeadline: 7
    case .intentNotAwaited: 9
    case .noGapAfterUnstamped: 455
    case .stampedFirst: 60
    case .noRegistration: 191
    case .queueSentAfterLoss: 65
    case .stateNotReplaced: 15
    case .laterTermWins: 180
    case .stampedByAcquiring: 879
    case .gapsAtEndKept: 640
    case .repeatedWriteGrows: 6
    case .leaseNotStored: 34
    case .drainingAcquires: 10
    case .drainingRenews: 68
    case .drainingKeepsToken: 353
    case .ownWriteAwaited: 855
    case .noWait: 2
    case .unconfirmedFollowed: 2
    default: 0
    }
  }
}

/// A rule of the protocol was broken.
struct Violation: Error, CustomStringConvertible {
  let description: String
}
