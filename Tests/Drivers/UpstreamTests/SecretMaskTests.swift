import Testing

@testable import Upstream

@Suite struct SecretMaskTests {
  @Test func hidesSecretsOfAnyCharactersWithAnySuffix() {
    let mask = SecretMask(["päßwörd", "päßwörd-2", "plain"])
    #expect(mask.applied(to: "a päßwörd, päßwörd-2 and plain") == "a ***, *** and ***")
    // A combining character changes the last character, but not its bytes.
    #expect(!mask.applied(to: "plain\u{301}").contains("plai"))
  }

  /// The text is decoded after the cut, so an incomplete character at its end has been replaced.
  @Test(arguments: ["s3cret-äöü€😀-end", "pass\u{301}word"])
  func hidesTheBeginningOfASecretThatIsCutAtAnyByte(secret: String) {
    let mask = SecretMask([secret])
    let bytes = Array(secret.utf8)
    for length in 1..<bytes.count {
      let text = "said: " + String(decoding: bytes.prefix(length), as: UTF8.self)
      #expect(mask.applied(to: text, isCut: true) == "said: ***", "cut after \(length) bytes")
    }
  }

  @Test func hidesOverlappingSecretsAsOne() {
    let mask = SecretMask(["prod", "sk_prod_0123", "0123-abc"])
    #expect(mask.applied(to: "key sk_prod_0123-abc, prod") == "key ***, ***")
    #expect(mask.applied(to: "key sk_prod_01", isCut: true) == "key ***")
  }

  @Test func aCompleteTextKeepsItsEnd() {
    let mask = SecretMask(["s3cret"])
    #expect(mask.applied(to: "ends in s3c") == "ends in s3c")
    #expect(mask.applied(to: "ends in s3x", isCut: true) == "ends in s3x")
  }
}
