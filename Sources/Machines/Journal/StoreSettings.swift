import ByteStreams

/// The settings of the store.
package struct StoreSettings: Hashable, Sendable {
  package enum Engine: String, CaseIterable, Sendable {
    /// Without a store: sessions end with the process.
    case memory
    /// In an SQLite database.
    case sqlite
    /// In Redis, through which several gateways share sessions.
    case redis
  }

  package enum Sync: String, CaseIterable, Sendable {
    /// The file is synchronised one second after a change. A power failure loses the last second.
    case interval
    /// The file is synchronised before a change is reported as stored.
    case always
  }

  package var engine: Engine = .memory
  /// The path of the file.
  package var path = "drawbridge.db"
  package var sync: Sync = .interval
  /// Maximum bytes of pending entries: more than half a second of pushes at 100 MB/s.
  package var pendingBytes = 64 << 20
  /// How long a session stays stored after it was removed from the configuration. That is long enough to notice a
  /// removal by mistake.
  package var keepUnused = TimeSpan.hours(24 * 30)

  package init() {}
}

/// Whether the store works, and if not, why.
package struct StoreState: Equatable, Sendable {
  /// The kind of failure of a store in Redis, for clients that may not read the reason in full.
  package enum Cause: Sendable {
    /// No connection attempt has ended since the start.
    case notTried
    case unreachable
    /// Redis, or a Sentinel, does not accept the user or the password.
    case credentials
    /// Redis is full, or cannot persist.
    case refused
    case tooFewReplicas
  }

  /// Why the store does not work; nil if it works.
  package var failure: String?
  package var cause = Cause.unreachable
  /// The time of the last change between working and not working, in milliseconds since 1970.
  package var since: Int64
  /// The session whose stored data was last found damaged; nil if there is none. This session cannot be used. All other
  /// sessions work.
  package var damage: String?
  /// Whether other gateways are alive, and none of them has ever reached this gateway.
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
