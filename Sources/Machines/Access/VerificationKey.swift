import ByteStreams
import Digests
import Signatures

/// The algorithms of signatures (RFC 7518 §3.1, RFC 8037 §3.1).
enum SignatureAlgorithm: String, Sendable {
  case hs256 = "HS256"
  case rs256 = "RS256"
  case es256 = "ES256"
  case edDSA = "EdDSA"

  /// `Ed25519` is the newer name of EdDSA with this curve (RFC 9864), the only curve that is accepted.
  init?(name: [UInt8]) {
    let name = name.span.text()
    self.init(rawValue: name == "Ed25519" ? "EdDSA" : name)
  }
}

/// A configured key. It has one algorithm, which no token can change (RFC 8725 §3.1).
final class VerificationKey: Sendable {
  enum Material: Sendable {
    case secret(HMACKey)
    case publicKey(PublicKey)
  }

  /// The `kid`. A key without `kid` verifies tokens with any `kid` that no other key has.
  let id: [UInt8]?
  /// The issuer whose tokens the key verifies; nil means the issuers of the policy.
  let issuer: [UInt8]?
  let algorithm: SignatureAlgorithm
  /// Revokes the grants of all tokens that the key signed.
  let revocation = Revocation()
  private let material: Material
  private let fingerprint: SecretDigest

  init(id: [UInt8]?, issuer: [UInt8]? = nil, _ material: Material) {
    self.id = id
    self.issuer = issuer
    self.material = material
    switch material {
    case .secret(let key):
      algorithm = .hs256
      fingerprint = key.fingerprint
    case .publicKey(let key):
      switch key.kind {
      case .rsa: algorithm = .rs256
      case .p256: algorithm = .es256
      case .ed25519: algorithm = .edDSA
      }
      fingerprint = key.fingerprint
    }
  }

  func isSame(as other: VerificationKey) -> Bool {
    id == other.id && issuer == other.issuer && algorithm == other.algorithm && fingerprint.matches(other.fingerprint)
  }

  func isValid(_ signature: Span<UInt8>, of text: Span<UInt8>) -> Bool {
    switch material {
    case .secret(let key): key.isValid(signature, of: text)
    case .publicKey(let key): key.isValid(signature, of: text)
    }
  }
}
