import Digests

/// The grants of verified tokens, by the SHA-256 of the token. A token with a known grant needs no signature check.
///
/// Only valid tokens are stored, since refused tokens could fill the cache. A token belongs to one set of four entries,
/// ordered by use. If its set is full, the table grows. If the table has reached its limit, the last entry of the set
/// is dropped.
struct GrantCache {
  private struct Entry {
    let digest: SecretDigest
    let grant: Grant
  }

  private static let ways = 4
  private static let smallestCount = 64

  private var entries: [Entry?] = []
  /// Maximum number of entries.
  private let limit: Int

  /// - Parameter limit: a power of two, at least 64.
  init(limit: Int) {
    precondition(limit >= Self.smallestCount && limit & (limit - 1) == 0, "the limit is not a power of two from 64 on")
    self.limit = limit
  }

  /// Number of entries.
  var count: Int { entries.count { $0 != nil } }

  mutating func grant(for digest: SecretDigest) -> Grant? {
    guard !entries.isEmpty else { return nil }
    let start = setStart(of: digest)
    for index in start..<start + Self.ways {
      guard let entry = entries[index], entry.digest.matches(digest) else { continue }
      if index > start { entries.swapAt(index, index - 1) }
      return entry.grant
    }
    return nil
  }

  /// Adds the grant of a token. An entry for the same token is replaced.
  mutating func insert(_ grant: Grant, for digest: SecretDigest, at now: Int64) {
    let entry = Entry(digest: digest, grant: grant)
    while true {
      if !entries.isEmpty, let place = freePlace(for: digest, at: now) {
        entries[place] = entry
        return
      }
      guard entries.count < limit else { break }
      grow()
    }
    entries[setStart(of: digest) + Self.ways - 1] = entry
  }

  mutating func removeAll() { entries = [] }

  /// The place of an entry for the same token, or else a place that is empty or whose grant has ended.
  private func freePlace(for digest: SecretDigest, at now: Int64) -> Int? {
    let start = setStart(of: digest)
    let places = start..<start + Self.ways
    if let same = places.first(where: { entries[$0]?.digest.matches(digest) == true }) { return same }
    return places.first { place in
      guard let grant = entries[place]?.grant else { return true }
      return grant.isRevoked || grant.isExpired(at: now)
    }
  }

  private func setStart(of digest: SecretDigest) -> Int {
    digest.placeNumber & (entries.count / Self.ways - 1) * Self.ways
  }

  /// Doubles the number of sets. The entries of each set are divided between two sets.
  private mutating func grow() {
    let old = entries
    entries = [Entry?](repeating: nil, count: max(Self.smallestCount, old.count * 2))
    for case let entry? in old {
      let start = setStart(of: entry.digest)
      if let place = (start..<start + Self.ways).first(where: { entries[$0] == nil }) { entries[place] = entry }
    }
  }
}
