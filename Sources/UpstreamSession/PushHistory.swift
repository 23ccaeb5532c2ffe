/// Which pushes of a session have come more than once, as far as a fixed memory reaches.
///
/// Two tables, each indexed by a digest's last bits: a digest found in `recent` is stored in `repeated`, where only other
/// repeating ones evict it. So the response `ok` is remembered among any number of numbered pushes.
package struct RepeatedPushes: Sendable {
  /// Pushes between two equal ones, roughly, for the second to be recognised.
  package static let recentPushes = 1_024
  package static let repeatedPushes = 256

  /// Allocated with the first push that is noted: 10 KiB.
  private var recent: [UInt64] = []
  private var repeated: [UInt64] = []

  package init() {}

  package mutating func note(_ digest: UInt64) {
    if recent.isEmpty {
      recent = Array(repeating: 0, count: Self.recentPushes)
      repeated = Array(repeating: 0, count: Self.repeatedPushes)
    }
    let place = Int(truncatingIfNeeded: digest) & (Self.recentPushes - 1)
    if recent[place] == digest { repeated[place & (Self.repeatedPushes - 1)] = digest }
    recent[place] = digest
  }

  package func contains(_ digest: UInt64) -> Bool {
    guard !repeated.isEmpty else { return false }
    return repeated[Int(truncatingIfNeeded: digest) & (Self.repeatedPushes - 1)] == digest
  }
}
