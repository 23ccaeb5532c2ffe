import ByteStreams
import Digests

/// The static tokens of a file. The table has only their SHA-256.
package struct TokenTable: Sendable {
  /// A file that cannot be used. The whole file is refused: if only the faulty line were left out, a client would be
  /// refused later.
  package struct Invalid: Error, Equatable, Sendable, CustomStringConvertible {
    package let description: String
    init(_ description: String) { self.description = description }
  }

  private struct Entry: Sendable {
    let digest: SecretDigest
    let grant: Grant
  }

  /// Maximum size of the file in bytes: 10,000 lines of 400 bytes.
  package static var maximumBytes: Int { 4 << 20 }
  /// Maximum number of tokens. Each takes about 400 bytes. Use JWT for more.
  package static var maximumTokens: Int { 10_000 }
  /// The length of a token in bytes. A shorter token can be guessed. A longer text is not a static token.
  package static var tokenBytes: ClosedRange<Int> { 16...512 }

  private var entries: [Entry] = []
  /// A hash table with open addressing: the index of an entry, or -1. At most half of the places are in use.
  private var places: [Int32] = []

  package var count: Int { entries.count }

  /// - Parameter previous: the table before a reload. Tokens with unchanged rights keep their grants, so that held
  ///   requests and streams continue.
  package init(_ contents: [UInt8], sharingGrantsOf previous: TokenTable? = nil) throws(Invalid) {
    let lines = try TokenFile.read(contents)
    var size = 2
    while size < lines.count * 2 { size *= 2 }
    places = [Int32](repeating: -1, count: size)
    entries.reserveCapacity(lines.count)
    for (line, token) in lines {
      let place = place(of: token.digest)
      guard places[place] < 0 else {
        throw Invalid("line \(line): its token is also the token of '\(entries[Int(places[place])].grant.principal)'")
      }
      places[place] = Int32(entries.count)
      entries.append(Entry(digest: token.digest, grant: Self.grant(token, previous)))
    }
  }

  private static func grant(_ token: TokenFile.Entry, _ previous: TokenTable?) -> Grant {
    if let grant = previous?.grant(for: token.digest), !grant.isRevoked, grant.principal == token.name,
      grant.scopes == token.scopes, grant.sessions == token.sessions, grant.topics == token.topics
    {
      return grant
    }
    return Grant(principal: token.name, scopes: token.scopes, sessions: token.sessions, topics: token.topics)
  }

  package func grant(for digest: SecretDigest) -> Grant? {
    guard !entries.isEmpty else { return nil }
    let index = places[place(of: digest)]
    return index < 0 ? nil : entries[Int(index)].grant
  }

  /// Revokes the grants that `current` does not have.
  func revokeGrants(notIn current: TokenTable?) {
    for entry in entries where current?.grant(for: entry.digest) !== entry.grant { entry.grant.revoke() }
  }

  /// Returns the place with this digest, or else the free place for it.
  private func place(of digest: SecretDigest) -> Int {
    var place = digest.placeNumber & (places.count - 1)
    while places[place] >= 0, !entries[Int(places[place])].digest.matches(digest) {
      place = (place + 1) & (places.count - 1)
    }
    return place
  }
}
