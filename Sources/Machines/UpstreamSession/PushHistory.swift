/// What the pushes of a session so far prove about the next two that are equal: whether they can be two responses.
///
/// Which pushes have come more than once is known as far as a fixed memory reaches. Two tables, each indexed by a digest's last
/// bits: a digest found in `recent` is stored in `repeated`, where only other repeating ones evict it. So the response `ok` is
/// remembered among any number of numbered pushes.
package struct PushHistory: Sendable {
  /// Pushes between two equal ones, roughly, for the second to be recognised.
  package static let recentPushes = 1_024
  package static let repeatedPushes = 256
  /// This many pushes are needed to say that an upstream does not only respond.
  package static let enoughPushes = 16

  /// Allocated with the first push that is noted: 10 KiB.
  private var recent: [UInt64] = []
  private var repeated: [UInt64] = []
  private var pushes = 0
  private var messages = 0

  package init() {}

  /// Messages went to the upstream, each of which may bring a response. Negative for those that were taken back.
  package mutating func sent(_ count: Int) { messages &+= count }

  /// A push has come on a connection that carries no client message: it is no response.
  package mutating func countBroadcast() { pushes &+= 1 }

  /// Whether the few pushes so far may all be responses.
  package var mayAllBeResponses: Bool { pushes < Self.enoughPushes && pushes <= messages }

  /// A push with this digest has come, and is no duplicate.
  package mutating func note(_ digest: UInt64) {
    pushes &+= 1
    if recent.isEmpty {
      recent = Array(repeating: 0, count: Self.recentPushes)
      repeated = Array(repeating: 0, count: Self.repeatedPushes)
    }
    let place = Int(truncatingIfNeeded: digest) & (Self.recentPushes - 1)
    if recent[place] == digest { repeated[place & (Self.repeatedPushes - 1)] = digest }
    recent[place] = digest
  }

  /// Whether a push with this digest has come more than once.
  package func repeats(_ digest: UInt64) -> Bool {
    guard !repeated.isEmpty else { return false }
    return repeated[Int(truncatingIfNeeded: digest) & (Self.repeatedPushes - 1)] == digest
  }
}
