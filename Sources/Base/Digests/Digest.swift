import ByteStreams
import COpenSSL

/// Message digests, computed by OpenSSL.
package enum Digest {
  /// SHA-1, 20 bytes. Only where a protocol requires it: `Sec-WebSocket-Accept` (RFC 6455 §4.2.2) and the names of
  /// Redis scripts.
  package static func sha1(_ bytes: Span<UInt8>) -> [UInt8] { unsafe digest(bytes, EVP_sha1(), length: 20) }

  /// SHA-256, 32 bytes.
  package static func sha256(_ bytes: Span<UInt8>) -> [UInt8] { unsafe digest(bytes, EVP_sha256(), length: 32) }

  /// Compares secrets in a time that does not depend on where they differ. Their lengths are not secret.
  package static func equalInConstantTime(_ left: Span<UInt8>, _ right: Span<UInt8>) -> Bool {
    guard left.count == right.count else { return false }
    return unsafe left.withUnsafeBytes { left in
      unsafe right.withUnsafeBytes { right in
        guard let first = left.baseAddress, let second = right.baseAddress else { return true }
        return unsafe CRYPTO_memcmp(first, second, left.count) == 0
      }
    }
  }

  private static func digest(_ bytes: Span<UInt8>, _ algorithm: OpaquePointer?, length: Int) -> [UInt8] {
    var output = [UInt8](repeating: 0, count: length)
    let result = unsafe bytes.withUnsafeBytes {
      unsafe EVP_Digest($0.baseAddress, $0.count, &output, nil, algorithm, nil)
    }
    precondition(result == 1, "OpenSSL could not compute a digest")
    return output
  }
}
