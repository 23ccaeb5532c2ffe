import ByteStreams
import COpenSSL
import Digests

/// A public key that verifies signatures: RSA (PKCS #1 v1.5) or ECDSA on P-256, each with SHA-256, or Ed25519.
///
/// A key has one algorithm, so no input can select another.
@safe
package final class PublicKey: Sendable {
  package enum Kind: Sendable { case rsa, p256, ed25519 }

  package enum Refused: Error, Hashable, Sendable, CustomStringConvertible {
    case modulusSize
    case modulusEven
    case exponent
    case coordinateSize
    case notOnCurve
    case unsupported
    /// OpenSSL refuses the key, or has no memory for it.
    case library

    package var description: String {
      switch self {
      case .modulusSize:
        "the RSA modulus must have \(PublicKey.modulusBits.lowerBound) to \(PublicKey.modulusBits.upperBound) bits"
      case .modulusEven: "the RSA modulus must be odd"
      case .exponent: "the RSA exponent must be odd, at least 3, and have at most 32 bits"
      case .coordinateSize: "a coordinate must have 32 bytes"
      case .notOnCurve: "the point is not on the curve P-256"
      case .unsupported: "the key must be RSA, EC on P-256, or Ed25519"
      case .library: "OpenSSL refuses the key"
      }
    }
  }

  /// Smaller keys are insecure (RFC 7518 §3.3). With larger keys, the check of a forged signature would take more than
  /// 0.35 ms, 15 times as long as with the smallest key.
  package static let modulusBits = 2_048...8_192

  package let kind: Kind
  /// Identifies the key.
  package let fingerprint: SecretDigest
  /// Length in bytes of every signature of the key.
  private let signatureBytes: Int
  // Sendable without a lock: only verification uses the key, and OpenSSL allows that on any number of threads at once.
  private nonisolated(unsafe) let raw: OpaquePointer

  /// Takes over `raw`. Frees `raw` if the key is refused.
  private init(_ raw: OpaquePointer?) throws(Refused) {
    guard let raw = unsafe raw else { throw .library }
    do throws(Refused) {
      kind = try unsafe Self.checkedKind(of: raw)
    } catch {
      unsafe EVP_PKEY_free(raw)
      throw error
    }
    var digest = [UInt8](repeating: 0, count: 32)
    guard unsafe copenssl_key_digest(raw, &digest) == 1 else {
      unsafe EVP_PKEY_free(raw)
      throw .library
    }
    fingerprint = SecretDigest(of: digest.span)
    signatureBytes = kind == .rsa ? Int(unsafe EVP_PKEY_get_size(raw)) : 64
    unsafe self.raw = raw
  }

  deinit { unsafe EVP_PKEY_free(raw) }

  private static func checkedKind(of raw: OpaquePointer) throws(Refused) -> Kind {
    switch unsafe copenssl_kind_of_key(raw) {
    case copenssl_p256_key: return .p256
    case copenssl_ed25519_key: return .ed25519
    case copenssl_rsa_key:
      guard modulusBits.contains(Int(unsafe EVP_PKEY_get_bits(raw))) else { throw .modulusSize }
      guard unsafe copenssl_rsa_modulus_is_odd(raw) == 1 else { throw .modulusEven }
      let exponent = unsafe copenssl_rsa_exponent(raw)
      guard exponent >= 3, exponent & 1 == 1 else { throw .exponent }
      return .rsa
    default: throw .unsupported
    }
  }

  /// - Parameters: big-endian numbers.
  package convenience init(rsaModulus: [UInt8], exponent: [UInt8]) throws(Refused) {
    // The sizes are checked first, so that OpenSSL spends no time on numbers that are refused.
    guard rsaModulus.count <= Self.modulusBits.upperBound / 8 + 1, !rsaModulus.isEmpty else { throw .modulusSize }
    guard exponent.count <= 8, !exponent.isEmpty else { throw .exponent }
    try unsafe self.init(copenssl_rsa_public_key(rsaModulus, rsaModulus.count, exponent, exponent.count))
  }

  package convenience init(p256X: [UInt8], y: [UInt8]) throws(Refused) {
    guard p256X.count == 32, y.count == 32 else { throw .coordinateSize }
    guard let raw = unsafe copenssl_p256_public_key([4] + p256X + y) else { throw .notOnCurve }
    try unsafe self.init(raw)
  }

  package convenience init(ed25519 bytes: [UInt8]) throws(Refused) {
    guard bytes.count == 32 else { throw .coordinateSize }
    try unsafe self.init(copenssl_ed25519_public_key(bytes))
  }

  /// Reads one public key in PEM, with its `BEGIN PUBLIC KEY` and `END PUBLIC KEY` lines.
  package convenience init(pem: [UInt8]) throws(Refused) {
    guard let memory = unsafe BIO_new(BIO_s_mem()) else { throw .library }
    defer { unsafe BIO_free(memory) }
    if !pem.isEmpty { unsafe BIO_write(memory, pem, Int32(pem.count)) }
    try unsafe self.init(copenssl_read_public_key(memory))
  }

  /// Whether `signature` is the key's signature of `text`. For P-256 it is r and s, 32 bytes each (RFC 7518 §3.4).
  package func isValid(_ signature: Span<UInt8>, of text: Span<UInt8>) -> Bool {
    guard signature.count == signatureBytes else { return false }
    return unsafe signature.withUnsafeBufferPointer { signature in
      unsafe text.withUnsafeBufferPointer { text in
        unsafe copenssl_verify(raw, signature.baseAddress, signature.count, text.baseAddress, text.count) == 1
      }
    }
  }
}
