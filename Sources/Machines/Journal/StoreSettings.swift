import ByteStreams

/// Where sessions are stored.
package struct StoreSettings: Hashable, Sendable {
  package enum Engine: String, CaseIterable, Sendable {
    /// Nowhere: they end with the process.
    case memory
    /// In an SQLite database.
    case sqlite
    /// In Redis, where several gateways share them.
    case redis
  }

  package enum Sync: String, CaseIterable, Sendable {
    /// The file is synchronised one second after a change. A power failure loses the last second.
    case interval
    /// The file is synchronised before anything is acknowledged.
    case always
  }

  package var engine: Engine = .memory
  /// The file.
  package var path = "drawbridge.db"
  package var sync: Sync = .interval
  /// Maximum bytes that wait to be stored: at 100 MB/s, more than half a second of pushes.
  package var pendingBytes = 64 << 20
  /// How long a session is kept that the configuration does not have: long enough to notice a session that was removed by mistake.
  package var keepUnused = TimeSpan.hours(24 * 30)

  package init() {}
}

/// Whether the store works.
package struct StoreState: Equatable, Sendable {
  /// Why a store in Redis does not work, for those who may not read the reason in full.
  package enum Cause: Sendable {
    /// No attempt to connect has ended since the start.
    case notTried
    case unreachable
    /// Redis, or a Sentinel, does not accept the user or the password.
    case credentials
    /// Redis is full, or cannot persist.
    case refused
    case tooFewReplicas
  }

  /// Why it does not; nil: it does.
  package var failure: String?
  package var cause = Cause.unreachable
  /// Since when, in milliseconds of UNIX time.
  package var since: Int64
  /// Which session cannot be used because what is stored of it is damaged, the last one that was found; nil: none. All others work.
  package var damage: String?
  /// Whether other gateways live, and none of them has ever reached this one.
  package var isUnreachable = false
  /// A session that another gateway with the same store connects to another host; nil if there is none.
  package var otherUpstream: (session: String, own: String, other: String)?

  package static func == (left: StoreState, right: StoreState) -> Bool {
    (left.failure, left.cause, left.since, left.damage) == (right.failure, right.cause, right.since, right.damage)
      && left.isUnreachable == right.isUnreachable && left.otherUpstream?.session == right.otherUpstream?.session
  }

  package init(failure: String? = nil, since: Int64) {
    self.failure = failure
    self.since = since
  }
}
