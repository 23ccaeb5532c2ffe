import ByteStreams
import COpenSSL

/// Message digests, by OpenSSL.
package enum Digest {
  /// SHA-1: for `Sec-WebSocket-Accept` (RFC 6455 §4.2.2), which asks for nothing better.
  package static func sha1(_ bytes: Span<UInt8>) -> [UInt8] { unsafe digest(bytes, EVP_sha1(), length: 20) }

  package static func sha256(_ bytes: Span<UInt8>) -> [UInt8] { unsafe digest(bytes, EVP_sha256(), length: 32) }

  private static func digest(_ bytes: Span<UInt8>, _ algorithm: OpaquePointer?, length: Int) -> [UInt8] {
    var output = [UInt8](repeating: 0, count: length)
    let result = unsafe bytes.withUnsafeBytes {
      unsafe EVP_Digest($0.baseAddress, $0.count, &output, nil, algorithm, nil)
    }
    precondition(result == 1, "OpenSSL could not compute a digest")
    return output
  }
}
