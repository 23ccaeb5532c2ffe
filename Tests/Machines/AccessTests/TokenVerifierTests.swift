import Digests
import Testing

@testable import Access

@Suite struct TokenVerifierTests {
  private let key = TestKey.hs256
  private let other = TestKey.secret([UInt8](repeating: 3, count: 32))
  private let policy = JWTPolicy(audiences: ["drawbridge"])
  private static let token = "0123456789abcdef"

  private func tokens(_ scopes: String = "send") throws -> TokenTable {
    let digest = Digest.sha256(Array(Self.token.utf8).span).map {
      String($0 >> 4, radix: 16) + String($0 & 15, radix: 16)
    }
    return try TokenTable(Array("name sha256:\(digest.joined()) scopes=\(scopes)".utf8))
  }

  private func jwt(_ keys: String...) throws -> Credentials.JWT {
    try Credentials.JWT(keys: try KeySet(keys), policy: policy)
  }

  private func verify(
    _ token: String, _ verifier: inout TokenVerifier, at seconds: Int64 = now
  ) throws(TokenRefusal) -> Grant {
    let bytes = Array(token.utf8)
    return try verifier.verify(bytes.span, at: seconds * 1_000)
  }

  private func refusal(_ token: String, _ verifier: inout TokenVerifier, at seconds: Int64 = now) -> TokenRefusal? {
    do throws(TokenRefusal) {
      _ = try verify(token, &verifier, at: seconds)
      return nil
    } catch {
      return error
    }
  }

  @Test func tokensAndJWTAreAcceptedSideBySide() throws {
    var verifier = TokenVerifier(Credentials(tokens: try tokens(), jwt: try jwt(key.jwk())))
    #expect(try verify(Self.token, &verifier).principal == "name")
    #expect(try verify(key.token("{\(soundClaims)}"), &verifier).principal == "https://login.example alice")
    #expect(refusal("0123456789abcdeF", &verifier) == .notThreeParts)
  }

  @Test func credentialsThatAreNotConfiguredAreUnknown() throws {
    var onlyTokens = TokenVerifier(Credentials(tokens: try tokens(), jwt: nil))
    #expect(refusal(key.token("{\(soundClaims)}"), &onlyTokens) == .unknown)
    var onlyJWT = TokenVerifier(Credentials(tokens: nil, jwt: try jwt(key.jwk())))
    #expect(refusal(Self.token, &onlyJWT) == .notThreeParts)
    var nothing = TokenVerifier(Credentials(tokens: nil, jwt: nil))
    #expect(refusal(Self.token, &nothing) == .unknown)
  }

  @Test func aTokenIsToken68OfLimitedLength() throws {
    var verifier = TokenVerifier(Credentials(tokens: try tokens(), jwt: nil))
    for token in ["", "0123456789abcde", String(repeating: "a", count: 8_193)] {
      #expect(refusal(token, &verifier) == .length)
    }
    for character in [" ", "\t", "\n", "\"", ",", ";", "%", "é", "=a", "\0"] {
      #expect(refusal("0123456789abcdef" + character + "a", &verifier) == .character, "\(character)")
    }
    #expect(refusal("================", &verifier) == .character)
    for token in ["aZ09-._~+/aaaaaaaaaa==", String(repeating: "a", count: 8_192)] {
      #expect(refusal(token, &verifier) == .unknown)
    }
  }

  @Test func aVerifiedTokenHasOneGrant() throws {
    var verifier = TokenVerifier(Credentials(tokens: nil, jwt: try jwt(key.jwk())))
    let token = key.token("{\(soundClaims)}")
    let first = try verify(token, &verifier)
    #expect(try verify(token, &verifier) === first)
    #expect(try verify(token, &verifier, at: now + 359) === first)
    #expect(refusal(token, &verifier, at: now + 360) == .expired)
    // Another token of the same client has its own grant.
    #expect(try verify(key.token("{\(soundClaims),\"jti\":\"2\"}"), &verifier) !== first)
  }

  @Test func aTokenThatIsNotValidYetIsVerifiedAgain() throws {
    var verifier = TokenVerifier(Credentials(tokens: nil, jwt: try jwt(key.jwk())))
    let token = key.token("{\(soundClaims),\"nbf\":1800000100}")
    #expect(refusal(token, &verifier) == .notYetValid)
    #expect(refusal(token, &verifier, at: now + 40) == nil)
  }

  // MARK: Reload

  @Test func aRemovedKeyEndsItsGrantsAndNoOthers() throws {
    let before = Credentials(tokens: nil, jwt: try jwt(key.jwk("a"), other.jwk("b")))
    var first = TokenVerifier(before)
    var second = TokenVerifier(before)
    let (kept, removed) = (key.token("{\(soundClaims)}", id: "a"), other.token("{\(soundClaims)}", id: "b"))
    let grants = [try verify(kept, &first), try verify(removed, &first), try verify(removed, &second)]

    let after = Credentials(tokens: nil, jwt: try jwt(key.jwk("a")), replacing: before)
    #expect(grants.allSatisfy { !$0.isRevoked })
    first.use(after)
    before.revokeGrants(notIn: after)
    #expect(grants.map(\.isRevoked) == [false, true, true])
    #expect(refusal(kept, &first) == nil && refusal(removed, &first) == .unknownKey)
    // A loop that still has the old credentials also refuses the removed key, although its cache contains the grant.
    #expect(refusal(kept, &second) == nil && refusal(removed, &second) == .unknownKey)
  }

  @Test func aKeyThatIsReplacedUnderItsNameEndsItsGrants() throws {
    let before = Credentials(tokens: nil, jwt: try jwt(key.jwk("a")))
    var verifier = TokenVerifier(before)
    let token = key.token("{\(soundClaims)}", id: "a")
    let grant = try verify(token, &verifier)
    let after = Credentials(tokens: nil, jwt: try jwt(other.jwk("a")), replacing: before)
    verifier.use(after)
    before.revokeGrants(notIn: after)
    #expect(grant.isRevoked)
    #expect(refusal(token, &verifier) == .signature)
    #expect(refusal(other.token("{\(soundClaims)}", id: "a"), &verifier) == nil)
  }

  @Test func anotherPolicyEndsAllGrantsOfJWT() throws {
    let before = Credentials(tokens: nil, jwt: try jwt(key.jwk()))
    var verifier = TokenVerifier(before)
    let token = key.token("{\(soundClaims)}")
    let grant = try verify(token, &verifier)
    let strict = JWTPolicy(audiences: ["other"])
    let after = Credentials(
      tokens: nil, jwt: try Credentials.JWT(keys: try KeySet([key.jwk()]), policy: strict), replacing: before)
    verifier.use(after)
    before.revokeGrants(notIn: after)
    #expect(grant.isRevoked)
    #expect(refusal(token, &verifier) == .otherAudience)
  }

  /// If a key now belongs to one issuer, its grants for other issuers must end.
  @Test func anotherIssuerOfAKeyEndsItsGrants() throws {
    let before = Credentials(tokens: nil, jwt: try jwt(key.jwk("a")))
    var verifier = TokenVerifier(before)
    let token = key.token("{\(soundClaims)}", id: "a")
    let grant = try verify(token, &verifier)
    let after = Credentials(
      tokens: nil, jwt: try jwt("{" + key.members + #","kid":"a","iss":"https://other.example"}"#), replacing: before)
    verifier.use(after)
    before.revokeGrants(notIn: after)
    #expect(grant.isRevoked)
    #expect(refusal(token, &verifier) == .issuerOfOtherKey)
  }

  @Test func withoutNewCredentialsEveryGrantEnds() throws {
    let before = Credentials(tokens: try tokens(), jwt: try jwt(key.jwk()))
    var verifier = TokenVerifier(before)
    let grants = [try verify(Self.token, &verifier), try verify(key.token("{\(soundClaims)}"), &verifier)]
    before.revokeGrants(notIn: nil)
    #expect(grants.map(\.isRevoked) == [true, true])
    #expect(refusal(Self.token, &verifier) == .unknown)
  }

  // MARK: The cache

  private func digest(_ number: Int) -> SecretDigest { SecretDigest(of: Array("\(number)".utf8).span) }

  private func grant(_ number: Int, expires: Int64? = nil, _ revocation: Revocation = Revocation()) -> Grant {
    Grant(principal: "\(number)", scopes: .send, expires: expires, revocation: revocation)
  }

  @Test func theCacheFindsExactlyItsEntries() {
    var cache = GrantCache(limit: 1_024)
    #expect(cache.grant(for: digest(0)) == nil)
    for number in 0..<10_000 {
      cache.insert(grant(number), for: digest(number), at: 0)
      #expect(cache.grant(for: digest(number))?.principal == "\(number)")
    }
    #expect((900...1_024).contains(cache.count))
    let found = (0..<10_000).filter { cache.grant(for: digest($0)) != nil }
    #expect(found.count == cache.count)
    #expect(found.allSatisfy { cache.grant(for: digest($0))?.principal == "\($0)" })
    cache.removeAll()
    #expect(cache.count == 0 && cache.grant(for: digest(9_999)) == nil)
  }

  @Test func theCacheGrowsBeforeItDropsAnything() {
    var cache = GrantCache(limit: 16_384)
    for number in 0..<500 { cache.insert(grant(number), for: digest(number), at: 0) }
    #expect(cache.count == 500)
  }

  @Test func aTokenHasOneEntry() {
    var cache = GrantCache(limit: 64)
    for number in 0..<100 { cache.insert(grant(number), for: digest(0), at: 0) }
    #expect(cache.count == 1 && cache.grant(for: digest(0))?.principal == "99")
  }

  @Test func endedGrantsAreDroppedFromTheCacheFirst() {
    var cache = GrantCache(limit: 64)
    let revocation = Revocation()
    for number in 0..<64 { cache.insert(grant(number, expires: 10), for: digest(number), at: 0) }
    for number in 64..<128 { cache.insert(grant(number, revocation), for: digest(number), at: 10) }
    let kept = (64..<128).filter { cache.grant(for: digest($0)) != nil }
    revocation.revoke()
    for number in 128..<192 { cache.insert(grant(number), for: digest(number), at: 10) }
    #expect(kept.count > 40)
    // A full set never drops an entry while it keeps an older entry whose grant has ended.
    #expect((128..<192).filter { cache.grant(for: digest($0)) != nil }.count > 40)
  }

  @Test func aTokenInUseStaysInAFullCache() {
    var cache = GrantCache(limit: 64)
    for number in 0..<1_000 { cache.insert(grant(number), for: digest(number), at: 0) }
    // This entry is in the last place of its set. The next insertion takes that place unless the entry is used.
    cache.insert(grant(-1), for: digest(-1), at: 0)
    for number in 1_000..<2_000 {
      #expect(cache.grant(for: digest(-1)) != nil)
      cache.insert(grant(number), for: digest(number), at: 0)
    }
  }
}
