import ByteStreams
import HTTPCodec
import TLSEngine
import Testing
import UpstreamSession
import WebSocketCodec

@testable import Upstream

@Suite struct SecretMaskTests {
  @Test func hidesSecretsOfAnyCharactersWithAnySuffix() {
    let mask = SecretMask(["päßwörd", "päßwörd-2", "plain"])
    #expect(mask.applied(to: "a päßwörd, päßwörd-2 and plain") == "a ***, *** and ***")
    // A combining character changes the last character, but not its bytes.
    #expect(!mask.applied(to: "plain\u{301}").contains("plai"))
  }

  /// The text is masked after it was cut and decoded. If the cut was within a character, the text ends with a
  /// replacement character.
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

  /// A secret may be `pass`, which is part of our word `password`. Only text from the peer is masked.
  @Test func ourOwnTextIsNotMasked() throws {
    let mask = SecretMask(["upstream", "with", "pass", "certificate"])
    var decoder = HTTPResponseHeadDecoder()
    _ = try decoder.append(Array("HTTP/1.1 401 no pass\r\n\r\n".utf8).span)
    let refusal = AttemptReport(
      HTTPRefusal(decoder), body: "with pass", retryAfter: nil, hint: ": a password is missing")
    #expect(
      refusal.masked(by: mask).detail
        == "the upstream responded with 401 no *** instead of 101 Switching Protocols: a password is missing")
    #expect(refusal.masked(by: mask).body == "*** ***")
    let texts: [(ReportText, String)] = [
      (
        "the upstream closed the connection without a response", "the upstream closed the connection without a response"
      ),
      (
        HandshakeError.badSubprotocol("'pass' was not offered").report,
        "the Sec-WebSocket-Protocol of the 101 response is not acceptable: '***' was not offered"
      ),
      (
        "TLS: \(TLSError.selfSignedCertificate(subject: "CN=pass").report)",
        "TLS: the certificate of CN=*** is self-signed: to trust it, configure it as CA file"
      ),
    ]
    for (text, expected) in texts {
      #expect(AttemptReport(.upgrading, .network, text).masked(by: mask).detail == expected)
    }
  }

  @Test func theEndOfACompleteTextIsNotMasked() {
    let mask = SecretMask(["s3cret"])
    #expect(mask.applied(to: "ends in s3c") == "ends in s3c")
    #expect(mask.applied(to: "ends in s3x", isCut: true) == "ends in s3x")
  }
}
