import Digests
import Foundation
import Signatures
import Testing

/// The signatures of RFC 7515 appendix A and RFC 8037 appendix A, and keys that must be refused.
@Suite struct SignatureTests {
  private func bytes(_ base64URL: String) -> [UInt8] {
    let standard = base64URL.replacing("-", with: "+").replacing("_", with: "/")
    let padding = String(repeating: "=", count: (4 - standard.count % 4) % 4)
    return Array(Data(base64Encoded: standard + padding) ?? Data())
  }

  private static let claims =
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
  private static let modulus =
    "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pC"
    + "gNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg6"
    + "65xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRW"
    + "yuXpoQ"
  private static let x = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"
  private static let y = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"

  /// Checks that the signature is valid, and that it is invalid once a bit of it or of the text has changed.
  private func expectOnly(
    _ signature: [UInt8], of text: String, isValid: ([UInt8], [UInt8]) -> Bool,
    sourceLocation: SourceLocation = #_sourceLocation
  ) {
    let text = Array(text.utf8)
    #expect(isValid(signature, text), sourceLocation: sourceLocation)
    for index in signature.indices {
      var changed = signature
      changed[index] ^= 1 << UInt8(index % 8)
      #expect(!isValid(changed, text), "byte \(index)", sourceLocation: sourceLocation)
    }
    var changed = text
    changed[text.count / 2] ^= 1
    #expect(!isValid(signature, changed), sourceLocation: sourceLocation)
    for other in [[], Array(signature.dropLast()), signature + [0], [0] + signature] {
      #expect(!isValid(other, text), "\(other.count) bytes", sourceLocation: sourceLocation)
    }
  }

  @Test func verifiesHMAC() throws {
    let secret = bytes("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
    let key = try #require(HMACKey(secret))
    expectOnly(
      bytes("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
      of: "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." + Self.claims
    ) { key.isValid($0.span, of: $1.span) }
  }

  @Test func verifiesRSA() throws {
    let key = try PublicKey(rsaModulus: bytes(Self.modulus), exponent: bytes("AQAB"))
    #expect(key.kind == .rsa)
    expectOnly(
      bytes(
        "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CU"
          + "Ar7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_d"
          + "O--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0ig"
          + "cN_IoypGlUPQGe77Rw"),
      of: "eyJhbGciOiJSUzI1NiJ9." + Self.claims
    ) { key.isValid($0.span, of: $1.span) }
  }

  @Test func verifiesECDSA() throws {
    let key = try PublicKey(p256X: bytes(Self.x), y: bytes(Self.y))
    #expect(key.kind == .p256)
    expectOnly(
      bytes("DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"),
      of: "eyJhbGciOiJFUzI1NiJ9." + Self.claims
    ) { key.isValid($0.span, of: $1.span) }
    // "Psychic signatures" (CVE-2022-21449): r and s of zero are valid for any text if they are not checked.
    let zeros = [UInt8](repeating: 0, count: 64)
    let isValid = key.isValid(zeros.span, of: Array("text".utf8).span)
    #expect(!isValid)
  }

  @Test func verifiesEd25519() throws {
    let key = try PublicKey(ed25519: bytes("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"))
    #expect(key.kind == .ed25519)
    expectOnly(
      bytes("hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"),
      of: "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
    ) { key.isValid($0.span, of: $1.span) }
  }

  @Test func refusesKeysThatAreTooSmallOrTooLarge() throws {
    #expect(HMACKey([UInt8](repeating: 1, count: 31)) == nil)
    #expect(HMACKey([UInt8](repeating: 1, count: 513)) == nil)
    for count in [0, 1, 128, 255, 1025, 100_000] {
      let modulus = [UInt8](repeating: 0xFF, count: count)
      #expect(throws: PublicKey.Refused.modulusSize) { try PublicKey(rsaModulus: modulus, exponent: [1, 0, 1]) }
    }
    for count in [256, 1024] {
      let modulus = [UInt8](repeating: 0xFF, count: count)
      #expect(try PublicKey(rsaModulus: modulus, exponent: [1, 0, 1]).kind == .rsa)
    }
    for count in [0, 31, 33, 64] {
      let coordinate = [UInt8](repeating: 1, count: count)
      #expect(throws: PublicKey.Refused.coordinateSize) { try PublicKey(ed25519: coordinate) }
      #expect(throws: PublicKey.Refused.coordinateSize) { try PublicKey(p256X: bytes(Self.x), y: coordinate) }
    }
  }

  @Test func refusesRSANumbersThatNoKeyCanHave() throws {
    let modulus = bytes(Self.modulus)
    for exponent in [[], [0], [1], [2], [1, 0, 0], [1, 0, 0, 0, 1], [UInt8](repeating: 0xFF, count: 9)] {
      #expect(throws: PublicKey.Refused.exponent, "\(exponent)") {
        try PublicKey(rsaModulus: modulus, exponent: exponent)
      }
    }
    #expect(throws: PublicKey.Refused.modulusEven) {
      try PublicKey(rsaModulus: modulus.dropLast() + [0xA0], exponent: [3])
    }
  }

  @Test func refusesAPointThatIsNotOnTheCurve() throws {
    var y = bytes(Self.y)
    y[31] ^= 1
    #expect(throws: PublicKey.Refused.notOnCurve) { try PublicKey(p256X: bytes(Self.x), y: y) }
    let zero = [UInt8](repeating: 0, count: 32)
    #expect(throws: PublicKey.Refused.notOnCurve) { try PublicKey(p256X: zero, y: zero) }
  }

  @Test func readsPublicKeysInPEMOnly() throws {
    // Written by `openssl pkey -pubout`.
    let p256 = """
      -----BEGIN PUBLIC KEY-----
      MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEIIv7jx+shJKr5jW1huN7Wz0cDfvv
      ic/H8ZG7pC/eUx+qfbEbHEg2LBL6tkG4ZfRSXAnTPDTulyV2IXrQLIGcIw==
      -----END PUBLIC KEY-----

      """
    let p384 = """
      -----BEGIN PUBLIC KEY-----
      MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAElVPZ3GFu4Nr4pcuqBPF0up6pTohuRoWZ
      uJcyFWAjSeJc4/i97hWzpRTITJtWwn1SydIAQJfl+IzqyBskuwWgN33aN0JOI9k9
      bXmN+P5W950XdTCunvQIhM2OPCNsKdZO
      -----END PUBLIC KEY-----

      """
    let rsa1024 = """
      -----BEGIN PUBLIC KEY-----
      MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCx11LDXeVeVKI9vur0oOmGoAqD
      NDIsBNKgbbQYjFV6F5HyP1wEjzvVrwmmY491VJHQOPtbdJ1U64e0oynkWJPwiOQw
      DBv8zaVFMcqvO/EUzXiSPHIW5eeg9tyXxaDENj+AB/JyNkYhWCATZluyG3qUmvzc
      85BS0Q/UWj3c2jKJHQIDAQAB
      -----END PUBLIC KEY-----

      """
    #expect(try PublicKey(pem: Array(p256.utf8)).kind == .p256)
    #expect(throws: PublicKey.Refused.unsupported) { try PublicKey(pem: Array(p384.utf8)) }
    #expect(throws: PublicKey.Refused.modulusSize) { try PublicKey(pem: Array(rsa1024.utf8)) }
    for text in [
      "", "-----BEGIN PUBLIC KEY-----\n", p256.replacing("PUBLIC", with: "PRIVATE"), p256.replacing("M", with: "N"),
    ] {
      #expect(throws: PublicKey.Refused.library, "\(text)") { try PublicKey(pem: Array(text.utf8)) }
    }
  }

  @Test func aFingerprintIdentifiesAKey() throws {
    let key = try PublicKey(rsaModulus: bytes(Self.modulus), exponent: [1, 0, 1])
    // A leading zero does not change the number.
    let same = try PublicKey(rsaModulus: [0] + bytes(Self.modulus), exponent: [1, 0, 1])
    let other = try PublicKey(rsaModulus: bytes(Self.modulus), exponent: [3])
    #expect(key.fingerprint.matches(same.fingerprint))
    #expect(!key.fingerprint.matches(other.fingerprint))
  }
}
