import ByteStreams
import Digests

/// Finds the grant of a bearer token. Each event loop has its own verifier, so no lock is needed.
///
/// A static token, or a JWT that was verified before, costs one SHA-256 and a lookup.
package struct TokenVerifier {
  /// Maximum number of JWT whose grants are remembered. An entry has 40 bytes, and its grant usually 200 to 400. With
  /// the longest lists of sessions and topics a grant has 3 KiB, which makes 50 MiB at most.
  package static var cachedTokens: Int { 16_384 }

  package private(set) var credentials: Credentials
  private var cache: GrantCache

  package init(_ credentials: Credentials, cachedTokens: Int = Self.cachedTokens) {
    self.credentials = credentials
    cache = GrantCache(limit: cachedTokens)
  }

  /// Uses other credentials from now on.
  package mutating func use(_ credentials: Credentials) {
    guard credentials !== self.credentials else { return }
    self.credentials = credentials
    cache.removeAll()
  }

  /// Returns the grant of a token that needs no signature check: a static token, or a JWT that was verified before.
  /// Returns nil for any other token.
  package mutating func knownGrant(for token: Span<UInt8>, at now: Int64) -> Grant? {
    guard token.count >= TokenTable.tokenBytes.lowerBound, token.count <= JSONWebToken.maximumBytes else { return nil }
    let digest = SecretDigest(of: token)
    let isStatic = token.count <= TokenTable.tokenBytes.upperBound
    let grant = (isStatic ? credentials.tokens?.grant(for: digest) : nil) ?? cache.grant(for: digest)
    guard let grant, !grant.isRevoked, !grant.isExpired(at: now) else { return nil }
    return grant
  }

  /// - Parameter now: UNIX time in milliseconds.
  package mutating func verify(_ token: Span<UInt8>, at now: Int64) throws(TokenRefusal) -> Grant {
    guard token.count >= TokenTable.tokenBytes.lowerBound, token.count <= JSONWebToken.maximumBytes else {
      throw .length
    }
    guard Self.isToken68(token) else { throw .character }
    let digest = SecretDigest(of: token)
    if token.count <= TokenTable.tokenBytes.upperBound, let grant = credentials.tokens?.grant(for: digest) {
      // A reload has revoked the grant, but this loop still has the credentials from before the reload.
      guard !grant.isRevoked else { throw .unknown }
      return grant
    }
    guard let jwt = credentials.jwt else { throw .unknown }
    if let grant = cache.grant(for: digest), !grant.isRevoked {
      guard !grant.isExpired(at: now) else { throw .expired }
      return grant
    }
    let grant = try JSONWebToken.verify(token, with: jwt.keys, jwt.policy, at: now)
    guard !grant.isRevoked else { throw .unknownKey }
    cache.insert(grant, for: digest, at: now)
    return grant
  }

  /// The characters of credentials (RFC 9110 §11.2): letters, digits, `-._~+/`, and `=` at the end.
  private static func isToken68(_ token: Span<UInt8>) -> Bool {
    var end = token.count
    while end > 0, token[end &- 1] == UInt8(ascii: "=") { end &-= 1 }
    for index in 0..<end {
      let byte = token[index]
      guard ASCII.isUnreserved(byte) || byte == UInt8(ascii: "+") || byte == UInt8(ascii: "/") else { return false }
    }
    return end > 0
  }
}
