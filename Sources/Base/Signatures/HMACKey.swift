import ByteStreams
import COpenSSL
import Digests

/// A secret for HMAC-SHA-256 (RFC 2104).
package struct HMACKey: Equatable, Sendable {
  /// The length of the digest (RFC 7518 §3.2).
  package static var minimumBytes: Int { 32 }
  /// More bytes do not make a key stronger: a key longer than a block of 64 bytes is hashed before it is used.
  package static var maximumBytes: Int { 512 }

  private let bytes: [UInt8]

  /// Returns nil for fewer than `minimum` or more than `maximumBytes`.
  ///
  /// - Parameter minimum: the number of bytes that the protocol requires.
  package init?(_ bytes: [UInt8], minimum: Int = minimumBytes) {
    guard (minimum...Self.maximumBytes).contains(bytes.count) else { return nil }
    self.bytes = bytes
  }

  /// Identifies the key, without showing it.
  package var fingerprint: SecretDigest { SecretDigest(of: bytes.span) }

  package func signature(of text: Span<UInt8>) -> [UInt8] {
    var output = [UInt8](repeating: 0, count: 32)
    let result = unsafe text.withUnsafeBufferPointer {
      unsafe HMAC(EVP_sha256(), bytes, Int32(bytes.count), $0.baseAddress, $0.count, &output, nil)
    }
    precondition(unsafe result != nil, "OpenSSL could not compute an HMAC")
    return output
  }

  /// Whether `signature` is the key's signature of `text`. The time does not depend on where a wrong signature differs
  /// from the right one.
  package func isValid(_ signature: Span<UInt8>, of text: Span<UInt8>) -> Bool {
    Digest.equalInConstantTime(self.signature(of: text).span, signature)
  }
}
