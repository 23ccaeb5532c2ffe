import Testing

@testable import Access

@Suite struct KeySetTests {
  /// The error, or nil if the keys are accepted.
  private func error(_ text: String) -> String? {
    do throws(KeySet.Invalid) {
      _ = try KeySet(Array(text.utf8))
      return nil
    } catch {
      return error.description
    }
  }

  private func error(ofKeys keys: String...) -> String? { error(#"{"keys":["# + keys.joined(separator: ",") + "]}") }

  private func key(_ pair: TestKey, _ members: String) -> String { "{" + pair.members + "," + members + "}" }

  @Test func aSetOfAllKindsIsRead() throws {
    let set = try KeySet(
      TestKey.all.map { key($0, #""alg":"\#($0.algorithm)","use":"sig","key_ops":["verify"],"x5t":"AA""#) })
    #expect(set.keys.map(\.algorithm) == [.hs256, .rs256, .es256, .edDSA])
    #expect(set.warnings == [])
  }

  @Test(
    arguments: [
      "", " ", "[]", "null", "{}", "{\"keys\":null}", "{\"keys\":{}}", "{\"keys\":\"a\"}", "{\"keys\":[]", "key",
      "\u{FEFF}{\"keys\":[]}",
      "{\"keys\":[]}", "{\"keys\":[],\"keys\":[]}",
    ])
  func aFileThatIsNotAKeySetIsRefused(text: String) { #expect(error(text) != nil) }

  @Test func errorsNameTheKeyAndTheAcceptedValues() {
    let rs256 = TestKey.rs256.jwk("a")
    #expect(error(ofKeys: "1") == "key 1 is not a JSON object")
    #expect(error(ofKeys: rs256, "{}") == "key 2: 'kty' is missing: use RSA, EC, OKP or oct")
    #expect(error(ofKeys: #"{"kty":1}"#) == "key 1: 'kty' must be a string")
    #expect(error(ofKeys: rs256, rs256) == #"two keys have the kid "a": a kid must be unique"#)
    #expect(error(ofKeys: #"{"kty":"oct","k":"AAAA","k":"AAAA"}"#) == #"key 1: the member "k" is repeated"#)
    #expect(error(ofKeys: #"{"kty":"oct","kid":"s"}"#) == #"key 1 (kid "s"): 'k' is missing"#)
    #expect(
      error(ofKeys: #"{"kty":"oct","kid":"s","k":"AA=="}"#)
        == #"key 1 (kid "s"): 'k' must be base64url without padding"#)
    #expect(error(ofKeys: #"{"kty":"oct","k":"AAAA"}"#) == "key 1: 'k' must have 32 to 512 bytes")
    #expect(error(ofKeys: #"{"kty":"EC","x":"AA","y":"AA"}"#) == "key 1: 'crv' is missing: use P-256")
    #expect(error(ofKeys: #"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#) == "key 1: a coordinate must have 32 bytes")
    #expect(
      error(ofKeys: #"{"kty":"RSA","n":"AA","e":"AQAB"}"#) == "key 1: the RSA modulus must have 2048 to 8192 bits")
    #expect(error(ofKeys: #"{"kty":"oct","kid":""}"#) == "key 1: 'kid' must have 1 to 256 bytes")
    #expect(error(ofKeys: key(.rs256, #""key_ops":"verify""#)) == "key 1: 'key_ops' must be an array of strings")
    // A name cannot inject lines into a log.
    #expect(error(ofKeys: #"{"kty":"oct","kid":"a\nb"}"#) == #"key 1 (kid "a\nb"): 'k' is missing"#)
  }

  @Test(arguments: ["d", "p", "q", "dp", "dq", "qi", "oth", "k"])
  func aPrivateKeyIsRefused(member: String) throws {
    for pair in [TestKey.rs256, .es256, .edDSA] {
      let message = try #require(error(ofKeys: key(pair, #""\#(member)":"c2VjcmV0""#)))
      #expect(message.contains("'\(member)', a part of a private key") && !message.contains("c2VjcmV0"))
    }
  }

  @Test func anAlgorithmForAnotherKindOfKeyIsRefused() throws {
    for pair in TestKey.all {
      for other in TestKey.all where other !== pair {
        let message = try #require(error(ofKeys: key(pair, #""alg":"\#(other.algorithm)""#)))
        #expect(message.contains("is not for its 'kty': use \(pair.algorithm) or leave 'alg' out"))
      }
    }
  }

  /// Issuers publish keys for other purposes in the same set (RFC 7517 §5).
  @Test(
    arguments: [
      (#"{"kty":"AKP","alg":"ML-DSA-44","kid":"x","pub":"AA"}"#, #"its 'kty' "AKP" is not RSA, EC, OKP or oct"#),
      (#"{"kty":"EC","crv":"P-384","kid":"x","x":"AA","y":"AA"}"#, #"its 'crv' "P-384" is not P-256"#),
      (#"{"kty":"OKP","crv":"X25519","kid":"x","x":"AA"}"#, #"its 'crv' "X25519" is not Ed25519"#),
      (
        #"{"kty":"RSA","alg":"RSA-OAEP","kid":"x","n":"AA","e":"AQAB"}"#,
        #"its 'alg' "RSA-OAEP" is not HS256, RS256, ES256 or EdDSA"#
      ),
      (
        #"{"kty":"RSA","alg":"none","kid":"x","n":"AA","e":"AQAB"}"#,
        #"its 'alg' "none" is not HS256, RS256, ES256 or EdDSA"#
      ),
      (#"{"kty":"RSA","use":"enc","kid":"x","n":"AA","e":"AQAB"}"#, #"its 'use' is "enc", not "sig""#),
      (
        #"{"kty":"RSA","key_ops":["encrypt"],"kid":"x","n":"AA","e":"AQAB"}"#, #"its 'key_ops' do not contain "verify""#
      ),
    ])
  func aKeyForAnotherPurposeIsNotUsed(text: String, reason: String) throws {
    let set = try KeySet([text, TestKey.es256.jwk("a")])
    #expect(set.keys.count == 1)
    #expect(set.warnings == [#"key 1 (kid "x") is not used: "# + reason])
    // A file that contains only such keys verifies nothing.
    #expect(error(ofKeys: text)?.hasPrefix("there is no key that verifies tokens") == true)
  }

  @Test func theFileHasLimits() {
    let secret = "0123456789abcdef0123456789abcdef"
    func keys(_ count: Int) -> String {
      let keys = (0..<count).map { TestKey.secret(Array((secret + "\($0)").utf8)).jwk("k\($0)") }
      return #"{"keys":["# + keys.joined(separator: ",") + "]}"
    }
    #expect(error(keys(KeySet.maximumKeys)) == nil)
    #expect(error(keys(KeySet.maximumKeys + 1)) == "there are more than 64 keys")
    #expect(error(#"{"keys":["# + String(repeating: "0,", count: 100_000) + "0]}") == "there are more than 64 keys")
    let padding = String(repeating: " ", count: KeySet.maximumBytes)
    #expect(error(keys(1) + padding) == "the file has more than 262144 bytes")
  }

  // MARK: PEM

  @Test func publicKeysInPEMAreRead() throws {
    let text = "# Keys of the login service\r\n" + [TestKey.rs256, .es256, .edDSA].map(\.pem).joined(separator: "\n\n")
    for text in [text, text.replacing("\n", with: "\r\n")] {
      #expect(try KeySet(Array(text.utf8)).keys.map(\.algorithm) == [.rs256, .es256, .edDSA])
    }
  }

  @Test func otherBlocksInPEMAreRefused() {
    let pem = TestKey.es256.pem
    for label in ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "CERTIFICATE", "RSA PUBLIC KEY"] {
      let other = pem.replacing("PUBLIC KEY", with: label)
      #expect(error(pem + other)?.hasPrefix("PEM block 2 is not a public key: use BEGIN PUBLIC KEY") == true)
    }
    #expect(error("-----BEGIN PUBLIC KEY-----\n") != nil)
    #expect(
      error("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n") == "PEM block 1: OpenSSL refuses the key")
  }

  /// The file is still being written, or was truncated.
  @Test func aPEMBlockWithoutItsEndIsRefused() {
    let pem = TestKey.es256.pem
    let lines = pem.split(separator: "\n")
    let start = lines.dropLast().joined(separator: "\n") + "\n"
    #expect(error(pem + start) == "PEM block 2 has no end")
    #expect(error(start + pem) == "PEM block 1 has no end")
    #expect(error(pem + lines[0]) == "PEM block 2 has no end")
    #expect(error(pem + "text after it") == nil)
  }

  // MARK: Candidates

  @Test func fewKeysOfAnAlgorithmHaveNoID() {
    let pem = TestKey.es256.pem
    let other = TestKey.edDSA.pem
    #expect(error(String(repeating: pem + other, count: KeySet.maximumCandidates)) == nil)
    #expect(
      error(String(repeating: pem, count: KeySet.maximumCandidates + 1))
        == "more than 4 keys for ES256 have no kid: use a JWK Set with kid")
  }

  // MARK: Issuers

  /// Returns the error of these keys for the accepted issuers, or nil.
  private func error(_ keys: [String], issuers: [String]) throws -> String? {
    let keys = try KeySet(keys)
    do throws(KeySet.Invalid) {
      _ = try Credentials.JWT(keys: keys, policy: JWTPolicy(audiences: ["a"], issuers: issuers))
      return nil
    } catch {
      return error.description
    }
  }

  @Test func withSeveralIssuersEachKeyNamesItsIssuer() throws {
    let (a, b) = (key(.rs256, #""kid":"a","iss":"A""#), key(.es256, #""kid":"b","iss":"B""#))
    let (unbound, nameless) = (TestKey.es256.jwk("b"), TestKey.es256.jwk())
    let advice = "does not name its issuer: with several issuers, use a JWK Set in which each key has the member 'iss'"
    #expect(try error([a, b], issuers: ["A", "B"]) == nil)
    #expect(try error([a, b], issuers: []) == nil)
    #expect(try error([TestKey.rs256.jwk("a"), unbound], issuers: []) == nil)
    #expect(try error([a, unbound], issuers: ["A"]) == nil)
    #expect(try error([a, unbound], issuers: ["A", "B"]) == #"the key with the kid "b" "# + advice)
    #expect(try error([a, nameless], issuers: ["A", "B"]) == "a key without kid " + advice)
    // The first key is valid only for issuer A. The other key has no issuer, so it would also be valid for A.
    #expect(try error([a, unbound], issuers: []) == #"the key with the kid "b" "# + advice)
    #expect(try error([a, b], issuers: ["A"]) == #"the 'iss' "B" of a key is not among the accepted issuers"#)
    #expect(error(ofKeys: key(.rs256, #""iss":["A"]"#)) == "key 1: 'iss' must be a string")
    #expect(error(ofKeys: key(.rs256, #""iss":"""#)) == "key 1: 'iss' must have 1 to 256 bytes")
  }
}
