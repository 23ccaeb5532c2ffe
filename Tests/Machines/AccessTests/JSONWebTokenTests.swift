import Testing
import TestSupport

@testable import Access

/// The attacks of RFC 8725, and the rules for the form of a token.
@Suite struct JSONWebTokenTests {
  private let key = TestKey.hs256
  private var claims: String { "{\(soundClaims)}" }

  private func keys(_ keys: TestKey...) throws -> KeySet { try KeySet(keys.map { $0.jwk() }) }

  @Test(arguments: TestKey.all.indices)
  func aTokenOfEachAlgorithmIsAccepted(index: Int) throws {
    let key = TestKey.all[index]
    #expect(refusal(of: key.token(claims), try keys(key)) == nil)
    #expect(refusal(of: key.token(claims), try KeySet(TestKey.all.map { $0.jwk() })) == nil)
    if key.algorithm != "HS256" {
      #expect(refusal(of: key.token(claims), try KeySet(Array(key.pem.utf8))) == nil)
    }
  }

  @Test func theNewNameOfEdDSAIsAccepted() throws {
    let token = TestKey.edDSA.token(header: #"{"alg":"Ed25519"}"#, claims)
    #expect(refusal(of: token, try keys(.edDSA)) == nil)
  }

  // MARK: RFC 8725 §2.1, §3.1: algorithms

  @Test(arguments: ["none", "None", "NONE", "nOnE", "", "HS384", "RS512", "ES384", "PS256", "hs256", "HS256 "])
  func anUnsecuredTokenAndOtherAlgorithmsAreRefused(algorithm: String) throws {
    let parts = key.token(header: #"{"alg":"\#(algorithm)"}"#, claims).split(separator: ".")
    for signature in ["", String(parts[2])] {
      #expect(refusal(of: "\(parts[0]).\(parts[1]).\(signature)", try keys(key)) == .algorithm)
    }
  }

  @Test func anAlgorithmMustBeAString() throws {
    for header in ["{}", #"{"alg":null}"#, #"{"alg":["HS256"]}"#, #"{"alg":256}"#, #"{"alg":{"HS256":1}}"#] {
      #expect(refusal(of: key.token(header: header, claims), try keys(key)) == .algorithm)
    }
  }

  /// Attack: the public key, in the text forms that libraries use, is the secret of an HMAC.
  @Test func aPublicKeyIsNotASecret() throws {
    for pair in [TestKey.rs256, .es256, .edDSA] {
      let set = try KeySet([pair.jwk("a")])
      let publicTexts = [pair.pem, String(pair.pem.dropLast()), pair.jwk("a")].map { Array($0.utf8).prefix(512) }
      for text in publicTexts {
        let forger = TestKey.secret(Array(text))
        #expect(refusal(of: forger.token(claims, id: "a"), set) == .otherAlgorithm)
        #expect(refusal(of: forger.token(claims), set) == .unknownKey)
        // If the header names the key's own algorithm, the HMAC is a wrong signature.
        let confused = forger.token(header: #"{"alg":"\#(pair.algorithm)","kid":"a"}"#, claims)
        #expect(refusal(of: confused, set) == .signature)
      }
    }
  }

  @Test func aKeyVerifiesItsOwnAlgorithmOnly() throws {
    let set = try KeySet(TestKey.all.map { $0.jwk($0.algorithm) })
    for signer in TestKey.all {
      for named in TestKey.all where named !== signer {
        #expect(refusal(of: signer.token(claims, id: named.algorithm), set) == .otherAlgorithm)
      }
    }
  }

  // MARK: §3.2, §3.3: signatures

  @Test func aSignatureOfAnotherKeyIsRefused() throws {
    #expect(refusal(of: TestKey.p256().token(claims), try keys(.es256)) == .signature)
    #expect(refusal(of: TestKey.secret([UInt8](repeating: 7, count: 32)).token(claims), try keys(key)) == .signature)
  }

  @Test func aTokenWithoutItsSignatureIsRefused() throws {
    for key in TestKey.all {
      let token = key.token(claims)
      let unsigned = token.prefix(through: token.lastIndex(of: ".")!)
      #expect(refusal(of: String(unsigned), try keys(key)) == .signature)
    }
  }

  /// Parts of two valid tokens do not make a third valid token.
  @Test func partsOfDifferentTokensAreRefused() throws {
    let first = key.token(claims).split(separator: ".")
    let second = key.token("{\(soundClaims),\"jti\":\"2\"}").split(separator: ".")
    #expect(refusal(of: "\(first[0]).\(second[1]).\(first[2])", try keys(key)) == .signature)
  }

  // MARK: §3.10: keys that the token brings or names

  @Test(
    arguments: [
      #""jku":"https://evil.example/keys""#, #""x5u":"https://evil.example/cert""#, #""jwk":{"kty":"oct","k":"AAAA"}"#,
      #""x5c":["MIIB"]"#, #""crit":["exp"]"#, #""crit":[]"#, #""b64":false"#, #""zip":"DEF""#, #""jku":null"#,
      #""j\u006bu":"https://evil.example/keys""#,
    ])
  func aKeyInTheTokenIsNotUsed(parameter: String) throws {
    let token = key.token(header: #"{"alg":"HS256",\#(parameter)}"#, claims)
    guard case .parameter = refusal(of: token, try keys(key)) else {
      Issue.record("accepted, or refused for another reason")
      return
    }
  }

  /// A `kid` selects among the configured keys. It is not a path, a query or a URL.
  @Test(
    arguments: [
      "../../../../dev/null", "/dev/null", "/proc/sys/kernel/randomize_va_space", "' UNION SELECT 'secret' -- ",
      "https://evil.example/key", "a\\u0000", "|id", "${env:HOME}", "A", "a ", "",
    ])
  func aKeyIDSelectsConfiguredKeysOnly(id: String) throws {
    let set = try KeySet([key.jwk("a")])
    #expect(refusal(of: key.token(claims, id: "a"), set) == nil)
    for secret in [TestKey.hs256, .secret([UInt8](repeating: 0, count: 32))] {
      #expect(refusal(of: secret.token(claims, id: id), set) == .unknownKey)
    }
  }

  @Test func aTokenWithoutKeyIDIsTriedWithFewKeysOfItsAlgorithm() throws {
    func other(_ number: Int) -> TestKey { .secret([UInt8](repeating: UInt8(number), count: 32)) }
    let others = (1..<KeySet.maximumCandidates).map { other($0).jwk("k\($0)") }
    #expect(refusal(of: key.token(claims), try KeySet([key.jwk("a"), TestKey.es256.jwk("b")])) == nil)
    #expect(refusal(of: key.token(claims), try KeySet(others + [key.jwk("a"), TestKey.es256.jwk("b")])) == nil)
    #expect(refusal(of: other(99).token(claims), try KeySet(others + [key.jwk("a")])) == .signature)
    #expect(refusal(of: key.token(claims), try KeySet(others + [key.jwk("a"), other(98).jwk()])) == .ambiguousKey)
    #expect(refusal(of: key.token(claims), try keys(.es256)) == .unknownKey)
    for id in ["1", "null", #"["a"]"#, #"{"a":1}"#] {
      let token = key.token(header: #"{"alg":"HS256","kid":\#(id)}"#, claims)
      #expect(refusal(of: token, try keys(key)) == .keyID)
    }
  }

  @Test func aKeyWithoutIDVerifiesTokensWithAnyID() throws {
    let other = TestKey.secret([UInt8](repeating: 9, count: 32))
    let set = try KeySet([key.jwk(), other.jwk("b")])
    #expect(refusal(of: key.token(claims, id: "unknown"), set) == nil)
    // The same token under the name of another key is refused.
    #expect(refusal(of: key.token(claims, id: "b"), set) == .signature)
    #expect(refusal(of: other.token(claims, id: "unknown"), set) == .signature)
  }

  /// A PEM key has no `kid`. During a rotation, the file contains both keys.
  @Test func aKeyWithoutIDCanBeRotated() throws {
    let (old, new) = (TestKey.p256(), TestKey.p256())
    for text in [old.pem + new.pem, new.pem + old.pem] {
      let set = try KeySet(Array(text.utf8))
      for key in [old, new] {
        #expect(refusal(of: key.token(claims), set) == nil)
        #expect(refusal(of: key.token(claims, id: "any"), set) == nil)
      }
      #expect(refusal(of: TestKey.p256().token(claims), set) == .signature)
    }
  }

  // MARK: §3.8: issuers

  /// Both issuers are accepted, but neither issuer may sign tokens in the other issuer's name.
  @Test func aKeyVerifiesTokensOfItsIssuerOnly() throws {
    let (a, b) = (TestKey.p256(), TestKey.p256())
    func claims(_ issuer: String) -> String {
      "{" + soundClaims.replacing("https://login.example", with: issuer) + "}"
    }
    for policy in [
      JWTPolicy(audiences: ["drawbridge"], issuers: ["A", "B"]), JWTPolicy(audiences: ["drawbridge"]),
    ] {
      for ids in [("a", "b") as (String?, String?), (nil, nil)] {
        func jwk(_ key: TestKey, _ id: String?, _ issuer: String) -> String {
          "{" + key.members + #","iss":"\#(issuer)""# + (id.map { #","kid":"\#($0)""# } ?? "") + "}"
        }
        let set = try KeySet([jwk(a, ids.0, "A"), jwk(b, ids.1, "B")])
        #expect(refusal(of: a.token(claims("A"), id: ids.0), set, policy: policy) == nil)
        #expect(refusal(of: b.token(claims("B"), id: ids.1), set, policy: policy) == nil)
        #expect(refusal(of: b.token(claims("A"), id: ids.1), set, policy: policy) == .issuerOfOtherKey)
        #expect(refusal(of: a.token(claims("B"), id: ids.0), set, policy: policy) == .issuerOfOtherKey)
      }
    }
  }

  // MARK: §3.11, §3.12: other kinds of tokens

  @Test(arguments: ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", "application/jwt"])
  func typesOfAccessTokensAreAccepted(type: String) throws {
    #expect(refusal(of: key.token(header: #"{"alg":"HS256","typ":"\#(type)"}"#, claims), try keys(key)) == nil)
  }

  @Test(
    arguments: [
      #""logout+jwt""#, #""dpop+jwt""#, #""secevent+jwt""#, #""""#, "null", "1", #"["JWT"]"#, #""application/""#,
      #""application/application/jwt""#, #""JWT ""#,
    ])
  func tokensForOtherPurposesAreRefused(type: String) throws {
    #expect(refusal(of: key.token(header: #"{"alg":"HS256","typ":\#(type)}"#, claims), try keys(key)) == .type)
  }

  /// A nested token (RFC 7519 §5.2): the claims are another token, here an unsecured token.
  @Test func aNestedTokenIsRefused() throws {
    let inner = base64URL(Array(#"{"alg":"none"}"#.utf8)) + "." + base64URL(Array(claims.utf8)) + "."
    let token = key.token(header: #"{"alg":"HS256","cty":"JWT"}"#, inner)
    #expect(refusal(of: token, try keys(key)) == .notAnObject(.claims))
  }

  @Test func anEncryptedTokenIsRefused() throws {
    #expect(refusal(of: key.token(claims) + ".AAAA.AAAA", try keys(key)) == .notThreeParts)
  }

  // MARK: The form

  @Test(arguments: ["", ".", "a.b", "abc", "..", "...", "a.b.c.d", "....."])
  func aTokenHasThreeParts(token: String) throws {
    let expected: TokenRefusal = token == ".." ? .notAnObject(.header) : .notThreeParts
    #expect(refusal(of: token, try keys(key)) == expected)
  }

  @Test func aTokenHasAtMostEightKiB() throws {
    func token(_ filler: Int) -> String {
      key.token("{\(soundClaims),\"x\":\"\(String(repeating: "x", count: filler))\"}")
    }
    var filler = 5_000
    while token(filler).utf8.count <= JSONWebToken.maximumBytes { filler += 1 }
    #expect(refusal(of: token(filler - 1), try keys(key)) == nil)
    #expect(refusal(of: token(filler), try keys(key)) == .length)
  }

  @Test func base64IsCanonical() throws {
    let parts = key.token(claims).split(separator: ".").map(String.init)
    #expect(parts[2].count == 43)
    let last = parts[2].last!
    let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    // The same bytes with other unused bits: a decoder that ignores these bits would accept four texts for one token.
    let next = alphabet[alphabet.firstIndex(of: last)! ^ 1]
    for signature in [
      parts[2].dropLast() + String(next), parts[2] + "=", " " + parts[2], parts[2] + "\n",
    ] {
      #expect(refusal(of: "\(parts[0]).\(parts[1]).\(signature)", try keys(key)) == .notBase64URL(.signature))
    }
    for header in [parts[0] + "=", "+" + parts[0].dropFirst(), parts[0] + "A=="] {
      #expect(refusal(of: "\(header).\(parts[1]).\(parts[2])", try keys(key)) == .notBase64URL(.header))
    }
    // The tokens are signed in this form, so only the encoding of the claims is wrong.
    for claims in [parts[1] + "=", parts[1] + "+", parts[1] + " "] {
      let text = "\(parts[0]).\(claims)"
      let token = text + "." + base64URL(key.signature(of: Array(text.utf8)))
      #expect(refusal(of: token, try keys(key)) == .notBase64URL(.claims))
    }
  }

  @Test(arguments: [
    "", "[]", "null", "1", "\"a\"", "{", "{}{}", "{\"a\":1,}", "{'a':1}", "\u{FEFF}{}", "{\"a\":\"\\ud800\"}", "{a:1}",
    "//\n{}",
  ])
  func headerAndClaimsAreJSONObjects(text: String) throws {
    #expect(refusal(of: key.token(header: text, claims), try keys(key)) == .notAnObject(.header))
    #expect(refusal(of: key.token(text), try keys(key)) == .notAnObject(.claims))
  }

  @Test func jsonIsUTF8() throws {
    let header = base64URL(Array(#"{"alg":"HS256","x":""#.utf8) + [0xC3, 0x28] + Array("\"}".utf8))
    #expect(refusal(of: header + "." + base64URL(Array(claims.utf8)) + ".AAAA", try keys(key)) == .notAnObject(.header))
  }

  @Test func deepJSONIsRefusedAndExhaustsNoStack() throws {
    for depth in [129, 2_000] {
      let deep = #"{"x":"# + String(repeating: "[", count: depth) + String(repeating: "]", count: depth) + "}"
      #expect(refusal(of: key.token(header: deep, claims), try keys(key)) == .notAnObject(.header))
      #expect(refusal(of: key.token(deep), try keys(key)) == .notAnObject(.claims))
    }
  }

  @Test(
    arguments: [
      #"{"alg":"HS256","alg":"none"}"#, #"{"alg":"none","alg":"HS256"}"#, #"{"alg":"HS256","\u0061lg":"HS256"}"#,
      #"{"alg":"HS256","x":1,"x":1}"#,
    ])
  func aHeaderDoesNotRepeatMembers(header: String) throws {
    #expect(refusal(of: key.token(header: header, claims), try keys(key)) == .duplicateMember(.header))
  }

  @Test func claimsDoNotRepeatMembers() throws {
    for member in [#""sub":"root""#, #""s\u0075b":"root""#, #""aud":"drawbridge""#] {
      #expect(refusal(of: key.token("{\(soundClaims),\(member)}"), try keys(key)) == .duplicateMember(.claims))
    }
  }

  @Test func theNumberOfMembersIsLimited() throws {
    func members(_ count: Int) -> String { (0..<count).map { "\"x\($0)\":0" }.joined(separator: ",") }
    let limit = JSONWebToken.maximumHeaderMembers
    #expect(refusal(of: key.token(header: #"{"alg":"HS256",\#(members(limit - 1))}"#, claims), try keys(key)) == nil)
    #expect(
      refusal(of: key.token(header: #"{"alg":"HS256",\#(members(limit))}"#, claims), try keys(key))
        == .tooManyMembers(.header))
    #expect(
      refusal(of: key.token("{\(soundClaims),\(members(JSONWebToken.maximumClaims))}"), try keys(key))
        == .tooManyMembers(.claims))
  }

  /// The signature is checked first. If it is not valid, the claims are not read.
  @Test func claimsOfATokenThatIsNotSignedAreNotRead() throws {
    let forger = TestKey.secret([UInt8](repeating: 1, count: 32))
    for claims in ["{}", "not JSON", "{\"exp\":1}", "{\"exp\":1,\"exp\":2}", claims] {
      let refused = refusal(of: forger.token(claims), try keys(key))
      #expect(refused == .signature && refused?.clientDescription == "the token is not valid")
    }
  }

  /// The description is sent as `error_description`, in quotes (RFC 6750 §3).
  @Test func descriptionsForClientsNeedNoEscapes() {
    let claims: [TokenRefusal.Claim] = [.exp, .nbf, .iat, .aud, .iss, .sub, .scope, .drawbridge]
    let refusals =
      claims.flatMap { [TokenRefusal.missing($0), .malformed($0)] } + [
        .unknown, .parameter("jku"), .expired, .notYetValid, .otherAudience, .otherIssuer,
      ]
    for refusal in refusals {
      let text = refusal.clientDescription
      #expect(text.utf8.allSatisfy { (0x20...0x7E).contains($0) && $0 != 0x22 && $0 != 0x5C }, "\(text)")
    }
  }

  // MARK: Mutations

  @Test func noMutatedTokenIsAccepted() throws {
    var random = SeededGenerator(seed: 17)
    let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=".utf8)
    for key in TestKey.all {
      let set = try keys(key)
      let original = Array(key.token(claims).utf8)
      for round in 0..<(key.algorithm == "HS256" ? 2_000 : 300) {
        var token = original
        for _ in 0...Int.random(in: 0..<3, using: &random) {
          let place = Int.random(in: token.indices, using: &random)
          let byte = alphabet.randomElement(using: &random)!
          switch Int.random(in: 0..<4, using: &random) {
          case 0: token[place] = byte
          case 1: token.insert(byte, at: place)
          case 2: token.remove(at: place)
          default: token.swapAt(place, Int.random(in: token.indices, using: &random))
          }
        }
        guard token != original else { continue }
        let text = String(decoding: token, as: UTF8.self)
        #expect(refusal(of: text, set) != nil, "round \(round): \(text)")
      }
    }
  }
}
