/// Statistics of a session's pushes, from which `OverlapFilter` decides whether two equal pushes may be two responses.
///
/// Fixed memory records which pushes repeat: two tables, each indexed by a digest's low bits. A digest that is found in
/// `recent` is stored in `repeated`, where only other repeating digests evict it. So a repeated response such as `ok`
/// is remembered, however many unique pushes arrive.
package struct PushHistory: Sendable {
  /// About how many other pushes may arrive between two equal pushes before the repetition is missed.
  package static let recentPushes = 1_024
  package static let repeatedPushes = 256
  /// After this many pushes, the upstream is assumed to send more than responses.
  package static let minimumPushes = 16

  /// 10 KiB, allocated with the first push that is noted.
  private var recent: [UInt64] = []
  private var repeated: [UInt64] = []
  private var pushes = 0
  private var messages = 0

  package init() {}

  /// Called when messages are sent to the upstream, each of which may cause a response. `count` is negative for
  /// messages that were taken back.
  package mutating func sent(_ count: Int) { messages &+= count }

  /// Called when a push arrived on a connection that carries no client message: it is not a response.
  package mutating func countBroadcast() { pushes &+= 1 }

  /// Whether the pushes so far may all be responses.
  package var mayAllBeResponses: Bool { pushes < Self.minimumPushes && pushes <= messages }

  /// Called when a push with this digest arrived that is not a duplicate.
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
