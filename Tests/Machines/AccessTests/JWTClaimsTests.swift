import ByteStreams
import Testing

@testable import Access

/// The claims of tokens with a valid signature.
@Suite struct JWTClaimsTests {
  private let key = TestKey.hs256

  private func verify(
    _ claims: String, policy: JWTPolicy = JWTPolicy(audiences: ["drawbridge"]), at seconds: Int64 = now
  ) throws -> Grant {
    let keys = try KeySet([key.jwk()])
    return try JSONWebToken.verify(Array(key.token(claims).utf8).span, with: keys, policy, at: seconds * 1_000)
  }

  /// The valid claims without `name`, with the member `text` instead.
  private func claims(without name: String, _ text: String = "") -> String {
    let members = [
      "iss": #""iss":"https://login.example""#, "sub": #""sub":"alice""#, "aud": #""aud":"drawbridge""#,
      "exp": #""exp":1800000300"#, "scope": #""scope":"send receive""#,
    ]
    return "{"
      + (members.filter { $0.key != name }.values.sorted() + (text.isEmpty ? [] : [text])).joined(separator: ",") + "}"
  }

  @Test func aGrantHasTheRightsOfTheClaims() throws {
    let grant = try verify(#"{\#(soundClaims),"drawbridge":{"sessions":["a","b*"],"topics":["orders.*"]}}"#)
    #expect(grant.principal == "https://login.example alice")
    #expect(grant.scopes == [.send, .receive])
    #expect(grant.sessions.description == "a,b*" && grant.topics.description == "orders.*")
    #expect(grant.expires == 1_800_000_360_000)
    #expect(!grant.isRevoked)
  }

  // MARK: Times

  @Test func aTokenIsAcceptedUntilItsLeewayEnds() throws {
    let claims = "{\(soundClaims)}"
    #expect(try verify(claims, at: 1_800_000_359).principal != "")
    #expect(throws: TokenRefusal.expired) { try verify(claims, at: 1_800_000_360) }
    #expect(throws: TokenRefusal.expired) { try verify(claims, at: 1_900_000_000) }
    let strict = JWTPolicy(audiences: ["drawbridge"], leeway: .zero)
    #expect(try verify(claims, policy: strict, at: 1_800_000_299).expires == 1_800_000_300_000)
    #expect(throws: TokenRefusal.expired) { try verify(claims, policy: strict, at: 1_800_000_300) }
  }

  @Test(arguments: ["nbf", "iat"])
  func aTokenThatIsNotValidYetIsRefused(claim: String) throws {
    #expect(try verify(#"{\#(soundClaims),"\#(claim)":1800000060}"#).principal != "")
    #expect(throws: TokenRefusal.notYetValid) { try verify(#"{\#(soundClaims),"\#(claim)":1800000061}"#) }
    #expect(throws: TokenRefusal.notYetValid) { try verify(#"{\#(soundClaims),"\#(claim)":1800000060.001}"#) }
  }

  @Test(
    arguments: [
      ("1800000300.5", 1_800_000_360_500), ("1800000300.0", 1_800_000_360_000), ("1800000300.98765", 1_800_000_360_987),
      ("253402300799", 253_402_300_859_000),
    ] as [(String, Int64)])
  func timesMayHaveFractions(text: String, expires: Int64) throws {
    #expect(try verify(claims(without: "exp", #""exp":\#(text)"#)).expires == expires)
  }

  @Test(
    arguments: [
      #""1800000300""#, "null", "true", "[1800000300]", "{}", "-1800000300", "-0", "1.8e9", "18e8", "1E400",
      "1e999999999",
      "253402300800", "9223372036854775807", "9223372036854775808", "99999999999999999999999999", "1800000300.5e1",
      "1e-5",
    ])
  func aTimeMustBeAPlainNumber(text: String) throws {
    for (claim, text) in [("exp", text), ("nbf", text), ("iat", text)] {
      let claims = claims(without: claim, #""\#(claim)":\#(text)"#)
      let expected = TokenRefusal.malformed(try #require(.init(rawValue: claim)))
      #expect(throws: expected) { try verify(claims) }
    }
  }

  @Test(arguments: ["NaN", "Infinity", "-Infinity", "0x7fffffff", "01800000300", "1800000300.", ".5", "+1800000300"])
  func aTimeThatIsNotAJSONNumberIsRefused(text: String) throws {
    #expect(throws: TokenRefusal.notAnObject(.claims)) { try verify(claims(without: "exp", #""exp":\#(text)"#)) }
  }

  // MARK: Issuer, subject and audience

  @Test(arguments: ["exp", "aud", "iss", "sub"])
  func aClaimIsRequired(claim: String) throws {
    let expected = TokenRefusal.missing(try #require(.init(rawValue: claim)))
    #expect(throws: expected) { try verify(claims(without: claim)) }
  }

  @Test(
    arguments: [
      (#""drawbridge""#, nil), (#"["drawbridge"]"#, nil), (#"["other","drawbridge"]"#, nil),
      (#""other""#, .otherAudience),
      (#""Drawbridge""#, .otherAudience), (#""drawbridge ""#, .otherAudience), (#""""#, .otherAudience),
      ("[]", .otherAudience), (#"[["drawbridge"]]"#, .malformed(.aud)), (#"["drawbridge",1]"#, .malformed(.aud)),
      ("null", .malformed(.aud)), (#"{"drawbridge":1}"#, .malformed(.aud)), ("1", .malformed(.aud)),
    ] as [(String, TokenRefusal?)])
  func aTokenForAnotherAudienceIsRefused(audience: String, expected: TokenRefusal?) throws {
    let token = key.token(claims(without: "aud", #""aud":\#(audience)"#))
    #expect(refusal(of: token, try KeySet([key.jwk()])) == expected)
  }

  @Test func withoutAConfiguredAudienceNoTokenIsAccepted() throws {
    #expect(throws: TokenRefusal.otherAudience) { try verify("{\(soundClaims)}", policy: JWTPolicy(audiences: [])) }
  }

  @Test func anIssuerMustBeConfiguredIfAnyIssuerIs() throws {
    let sound = JWTPolicy(audiences: ["drawbridge"], issuers: ["https://other.example", "https://login.example"])
    #expect(try verify("{\(soundClaims)}", policy: sound).principal != "")
    let other = JWTPolicy(audiences: ["drawbridge"], issuers: ["https://login.example/"])
    #expect(throws: TokenRefusal.otherIssuer) { try verify("{\(soundClaims)}", policy: other) }
  }

  /// Swift strings with canonically equivalent characters are equal, even if their bytes differ. Names in tokens are
  /// compared by bytes.
  @Test func namesAreComparedByBytes() throws {
    let policy = JWTPolicy(audiences: ["caf\u{E9}"])
    #expect(throws: TokenRefusal.otherAudience) {
      try verify(claims(without: "aud", "\"aud\":\"cafe\u{301}\""), policy: policy)
    }
    let first = try verify(claims(without: "sub", "\"sub\":\"caf\u{E9}\""))
    let second = try verify(claims(without: "sub", "\"sub\":\"cafe\u{301}\""))
    #expect(first.principal != second.principal)
  }

  @Test(
    arguments: [
      (#"a\nb"#, "https://login.example a%0Ab"), ("a b", "https://login.example a%20b"),
      ("50%", "https://login.example 50%25"),
      ("é", "https://login.example %C3%A9"), (#"\u0000"#, "https://login.example %00"),
      (#"\u001b[31m"#, "https://login.example %1B[31m"),
    ])
  func aPrincipalIsPrintableAndUnambiguous(subject: String, principal: String) throws {
    #expect(try verify(claims(without: "sub", #""sub":"\#(subject)""#)).principal == principal)
  }

  @Test(arguments: ["iss", "sub"])
  func aNameHasALimit(claim: String) throws {
    let expected = TokenRefusal.malformed(try #require(.init(rawValue: claim)))
    let longest = String(repeating: "x", count: JWTClaims.maximumNameBytes)
    #expect(try verify(claims(without: claim, #""\#(claim)":"\#(longest)""#)).principal.contains(longest))
    for text in [#""""#, "\"\(longest)x\"", "1", "null", #"["a"]"#] {
      #expect(throws: expected) { try verify(claims(without: claim, #""\#(claim)":\#(text)"#)) }
    }
  }

  // MARK: Rights

  @Test func withoutScopesTheClientMayDoNothing() throws {
    #expect(try verify(claims(without: "scope")).scopes == [])
    #expect(try verify(claims(without: "scope", #""scope":"openid profile admin""#)).scopes == .admin)
    for text in [#"["send"]"#, "null", "1", #"{"send":true}"#] {
      #expect(throws: TokenRefusal.malformed(.scope)) { try verify(claims(without: "scope", #""scope":\#(text)"#)) }
    }
  }

  @Test(
    arguments: [
      ("{}", "*", "*"), (#"{"sessions":[]}"#, "", "*"), (#"{"topics":[]}"#, "*", ""),
      (#"{"sessions":["*"],"topics":["a"]}"#, "*", "a"),
    ])
  func anAbsentListAllowsAllAndAnEmptyListNone(text: String, sessions: String, topics: String) throws {
    let grant = try verify(#"{\#(soundClaims),"drawbridge":\#(text)}"#)
    #expect(grant.sessions.description == sessions && grant.topics.description == topics)
  }

  @Test(
    arguments: [
      "null", "[]", #""*""#, "1", #"{"sessions":null}"#, #"{"sessions":"*"}"#, #"{"sessions":{"a":1}}"#,
      #"{"sessions":[1]}"#,
      #"{"sessions":[["a"]]}"#, #"{"sessions":[""]}"#, #"{"session":["a"]}"#, #"{"sessions":["a"],"extra":1}"#,
      #"{"sessions":["a"],"sessions":["*"]}"#, #"{"topics":["a"],"t\u006fpics":["*"]}"#, #"{"topics":[null]}"#,
    ])
  func aRestrictionWithAMistakeIsRefused(text: String) throws {
    #expect(throws: TokenRefusal.malformed(.drawbridge)) { try verify(#"{\#(soundClaims),"drawbridge":\#(text)}"#) }
  }

  @Test func restrictionsHaveLimits() throws {
    func list(_ names: [String]) -> String {
      #"{\#(soundClaims),"drawbridge":{"topics":[\#(names.map { "\"\($0)\"" }.joined(separator: ","))]}}"#
    }
    let names = (0..<NamePatterns.maximumCount).map { "n\($0)" }
    #expect(try verify(list(names)).topics.contains("n63"))
    #expect(throws: TokenRefusal.malformed(.drawbridge)) { try verify(list(names + ["x"])) }
    let long = String(repeating: "x", count: NamePatterns.maximumBytes)
    #expect(throws: TokenRefusal.malformed(.drawbridge)) { try verify(list([long, "y"])) }
  }
}
