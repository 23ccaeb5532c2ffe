import COpenSSL
import Digests
import Foundation
import Signatures

@testable import Access

/// A key pair of an issuer: it signs tokens, and formats itself as a JWK or PEM.
final class TestKey: @unchecked Sendable {
  private enum Material {
    case secret(HMACKey, [UInt8])
    case pair(OpaquePointer)
  }

  let algorithm: String
  private let material: Material

  private init(_ algorithm: String, _ material: Material) {
    self.algorithm = algorithm
    self.material = material
  }

  static let hs256 = secret(Array("0123456789abcdef0123456789abcdef".utf8))
  static let rs256 = pair("RS256", EVP_PKEY_RSA) { EVP_PKEY_CTX_set_rsa_keygen_bits($0, 2_048) }
  static let es256 = p256()
  static let edDSA = pair("EdDSA", EVP_PKEY_ED25519) { _ in 1 }
  static let all = [hs256, rs256, es256, edDSA]

  static func secret(_ bytes: [UInt8]) -> TestKey { TestKey("HS256", .secret(HMACKey(bytes)!, bytes)) }

  static func p256() -> TestKey {
    pair("ES256", EVP_PKEY_EC) { EVP_PKEY_CTX_set_ec_paramgen_curve_nid($0, NID_X9_62_prime256v1) }
  }

  private static func pair(_ algorithm: String, _ type: Int32, _ configure: (OpaquePointer) -> Int32) -> TestKey {
    let context = EVP_PKEY_CTX_new_id(type, nil)!
    defer { EVP_PKEY_CTX_free(context) }
    var key: OpaquePointer?
    precondition(EVP_PKEY_keygen_init(context) == 1 && configure(context) == 1 && EVP_PKEY_keygen(context, &key) == 1)
    return TestKey(algorithm, .pair(key!))
  }

  func signature(of text: [UInt8]) -> [UInt8] {
    switch material {
    case .secret(let key, _): return key.signature(of: text.span)
    case .pair(let key):
      let context = EVP_MD_CTX_new()
      defer { EVP_MD_CTX_free(context) }
      var length = 1_024
      var output = [UInt8](repeating: 0, count: length)
      let digest = algorithm == "EdDSA" ? nil : EVP_sha256()
      precondition(EVP_DigestSignInit(context, nil, digest, nil, key) == 1)
      precondition(EVP_DigestSign(context, &output, &length, text, text.count) == 1)
      return algorithm == "ES256" ? Self.concatenated(Array(output.prefix(length))) : Array(output.prefix(length))
    }
  }

  /// r and s of a signature in DER, 32 bytes each.
  private static func concatenated(_ signature: [UInt8]) -> [UInt8] {
    signature.withUnsafeBufferPointer { buffer in
      var start = buffer.baseAddress
      let pair = d2i_ECDSA_SIG(nil, &start, buffer.count)
      defer { ECDSA_SIG_free(pair) }
      var output = [UInt8](repeating: 0, count: 64)
      output.withUnsafeMutableBufferPointer {
        BN_bn2binpad(ECDSA_SIG_get0_r(pair), $0.baseAddress, 32)
        BN_bn2binpad(ECDSA_SIG_get0_s(pair), $0.baseAddress! + 32, 32)
      }
      return output
    }
  }

  /// The members of the key's JWK, without `kid`.
  var members: String {
    switch material {
    case .secret(_, let bytes): return #""kty":"oct","k":"\#(base64URL(bytes))""#
    case .pair(let key):
      switch algorithm {
      case "RS256": return #""kty":"RSA","n":"\#(number(key, "n"))","e":"\#(number(key, "e"))""#
      case "ES256":
        return #""kty":"EC","crv":"P-256","x":"\#(number(key, "qx", 32))","y":"\#(number(key, "qy", 32))""#
      default:
        var bytes = [UInt8](repeating: 0, count: 32)
        var length = 32
        precondition(EVP_PKEY_get_raw_public_key(key, &bytes, &length) == 1)
        return #""kty":"OKP","crv":"Ed25519","x":"\#(base64URL(bytes))""#
      }
    }
  }

  func jwk(_ id: String? = nil) -> String { "{" + members + (id.map { #","kid":"\#($0)""# } ?? "") + "}" }

  var pem: String {
    guard case .pair(let key) = material else { return "" }
    let memory = BIO_new(BIO_s_mem())
    defer { BIO_free(memory) }
    precondition(PEM_write_bio_PUBKEY(memory, key) == 1)
    var bytes = [UInt8](repeating: 0, count: 4_096)
    let count = BIO_read(memory, &bytes, 4_096)
    return String(decoding: bytes.prefix(Int(count)), as: UTF8.self)
  }

  private func number(_ key: OpaquePointer, _ name: String, _ length: Int32? = nil) -> String {
    var value: OpaquePointer?
    precondition(EVP_PKEY_get_bn_param(key, name, &value) == 1)
    defer { BN_free(value) }
    let count = length ?? (BN_num_bits(value) + 7) / 8
    var bytes = [UInt8](repeating: 0, count: Int(count))
    BN_bn2binpad(value, &bytes, count)
    return base64URL(bytes)
  }

  /// A token with this header and these claims, as given.
  func token(header: String, _ claims: String) -> String {
    let text = base64URL(Array(header.utf8)) + "." + base64URL(Array(claims.utf8))
    return text + "." + base64URL(signature(of: Array(text.utf8)))
  }

  func token(_ claims: String, id: String? = nil) -> String {
    token(header: #"{"alg":"\#(algorithm)","typ":"JWT"\#(id.map { #","kid":"\#($0)""# } ?? "")}"#, claims)
  }
}

func base64URL(_ bytes: [UInt8]) -> String {
  Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
}

/// The time of the tests: 2027-01-15T08:00:00Z, in seconds.
let now: Int64 = 1_800_000_000

/// The members of claims that the verifier accepts.
let soundClaims =
  #""iss":"https://login.example","sub":"alice","aud":"drawbridge","exp":1800000300,"scope":"send receive""#

extension KeySet {
  init(_ keys: [String]) throws(Invalid) {
    try self.init(Array((#"{"keys":["# + keys.joined(separator: ",") + "]}").utf8))
  }
}

/// Verifies `token` at the time of the tests. Returns the refusal, or nil if it is accepted.
func refusal(
  of token: String, _ keys: KeySet, policy: JWTPolicy = JWTPolicy(audiences: ["drawbridge"]), at seconds: Int64 = now
) -> TokenRefusal? {
  do throws(TokenRefusal) {
    _ = try JSONWebToken.verify(Array(token.utf8).span, with: keys, policy, at: seconds * 1_000)
    return nil
  } catch {
    return error
  }
}
