import ByteStreams
import Digests
import Testing

@Suite struct DigestTests {
  private func hexadecimal(_ bytes: [UInt8]) -> String {
    bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
  }

  /// FIPS 180-4's own examples.
  @Test func computesTheExamplesOfTheStandard() {
    let abc = Array("abc".utf8)
    let long = Array("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq".utf8)
    #expect(hexadecimal(Digest.sha1(Span())) == "da39a3ee5e6b4b0d3255bfef95601890afd80709")
    #expect(hexadecimal(Digest.sha1(abc.span)) == "a9993e364706816aba3e25717850c26c9cd0d89d")
    #expect(hexadecimal(Digest.sha1(long.span)) == "84983e441c3bd26ebaae4aa1f95129e5e54670f1")
    #expect(
      hexadecimal(Digest.sha256(Span())) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    #expect(
      hexadecimal(Digest.sha256(abc.span)) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    #expect(
      hexadecimal(Digest.sha256(long.span)) == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1")
  }

  @Test func comparesWholeSecrets() {
    let secret = Array("secret".utf8)
    for other in ["", "s", "secre", "secret", "secreT", "Secret", "secrets"] {
      let bytes = Array(other.utf8)
      let isEqual = Digest.equalInConstantTime(secret.span, bytes.span)
      #expect(isEqual == (other == "secret"))
    }
    let isNothingEqual = Digest.equalInConstantTime(Span(), Span())
    #expect(isNothingEqual)
  }

  private func digest(hexadecimal text: String) -> SecretDigest? {
    SecretDigest(hexadecimal: Array(text.utf8).span)
  }

  @Test func aSecretDigestIsTheSHA256() throws {
    let abc = Array("abc".utf8)
    let digest = SecretDigest(of: abc.span)
    let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    for text in [text, text.uppercased()] {
      let read = try #require(self.digest(hexadecimal: text))
      #expect(digest.matches(read) && read.matches(digest))
      #expect(digest.placeNumber == read.placeNumber)
    }
    #expect(digest.placeNumber == 0x3A78_16BF_8F01_CFEA)
    for index in 0..<64 {
      var other = Array(text)
      other[index] = other[index] == "0" ? "1" : "0"
      let read = try #require(self.digest(hexadecimal: String(other)))
      #expect(!digest.matches(read), "digit \(index)")
    }
    for wrong in ["", String(text.dropLast()), text + "0", String(text.dropLast()) + "g", " " + text.dropLast()] {
      #expect(self.digest(hexadecimal: wrong) == nil)
    }
  }
}
