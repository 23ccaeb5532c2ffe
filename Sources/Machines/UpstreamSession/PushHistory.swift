/// Statistics of a session's pushes. `OverlapFilter` uses them to decide whether two equal pushes may be the responses
/// to two messages, or are one push that both connections of a hand-over delivered.
///
/// Two tables of fixed size record which pushes repeat. Both are indexed by the low bits of a digest. If the digest of
/// a new push is in `recent`, it is also stored in `repeated`, where only other repeated digests evict it. So a
/// repeated response such as `ok` is remembered, however many unique pushes arrive.
package struct PushHistory: Sendable {
  /// If about this many other pushes arrive between two equal pushes, the repetition is missed.
  package static let recentPushes = 1_024
  package static let repeatedPushes = 256
  /// From this number of pushes on, the upstream is assumed to send also pushes that are not responses.
  package static let minimumPushes = 16

  /// The two tables take 10 KiB. They are allocated when the first push is recorded.
  private var recent: [UInt64] = []
  private var repeated: [UInt64] = []
  private var pushes = 0
  private var messages = 0

  package init() {}

  /// Called when messages are sent to the upstream, each of which may cause a response. `count` is negative for
  /// messages that were counted but could not be written.
  package mutating func sent(_ count: Int) { messages &+= count }

  /// Called when a push arrived on a connection that carries no client message. Such a push is not a response.
  package mutating func countBroadcast() { pushes &+= 1 }

  /// Whether the pushes so far may all be responses.
  package var mayAllBeResponses: Bool { pushes < Self.minimumPushes && pushes <= messages }

  /// Called when a push with this digest arrived, unless the push is a duplicate.
  package mutating func record(_ digest: UInt64) {
    pushes &+= 1
    if recent.isEmpty {
      recent = Array(repeating: 0, count: Self.recentPushes)
      repeated = Array(repeating: 0, count: Self.repeatedPushes)
    }
    let slot = Int(truncatingIfNeeded: digest) & (Self.recentPushes - 1)
    if recent[slot] == digest { repeated[slot & (Self.repeatedPushes - 1)] = digest }
    recent[slot] = digest
  }

  /// Whether a push with this digest has arrived more than once.
  package func isRepeated(_ digest: UInt64) -> Bool {
    guard !repeated.isEmpty else { return false }
    return repeated[Int(truncatingIfNeeded: digest) & (Self.repeatedPushes - 1)] == digest
  }
}
