import ByteStreams
import COpenSSL

/// The SHA-256 of a secret, such as a token.
///
/// The type has no `Equatable` and does not show its bytes. `matches` is the only comparison, and its time does not
/// depend on where two digests differ. Nothing is allocated.
package struct SecretDigest: Sendable {
  private var bytes = InlineArray<32, UInt8>(repeating: 0)

  // Fetched once. The algorithm of EVP_sha256() would be looked up among OpenSSL's providers at each use, which takes
  // longer than the digest.
  private nonisolated(unsafe) static let algorithm = unsafe EVP_MD_fetch(nil, "SHA256", nil)

  package init(of secret: Span<UInt8>) {
    var span = bytes.mutableSpan
    let result = unsafe span.withUnsafeMutableBytes { output in
      unsafe secret.withUnsafeBytes { input in
        unsafe EVP_Digest(
          input.baseAddress, input.count, output.baseAddress?.assumingMemoryBound(to: UInt8.self), nil, Self.algorithm,
          nil)
      }
    }
    precondition(result == 1, "OpenSSL could not compute a digest")
  }

  /// Reads 64 hexadecimal digits. Returns nil for anything else.
  package init?(hexadecimal text: Span<UInt8>) {
    guard text.count == 64 else { return nil }
    for index in 0..<32 {
      guard let high = ASCII.hexValue(text[2 * index]), let low = ASCII.hexValue(text[2 * index + 1]) else {
        return nil
      }
      bytes[index] = high << 4 | low
    }
  }

  /// Compares in a time that does not depend on the digests.
  package func matches(_ other: SecretDigest) -> Bool {
    Digest.equalInConstantTime(bytes.span, other.bytes.span)
  }

  /// A number for choosing a place in a hash table: the first 63 bits. Timing can show an attacker which places are in
  /// use. That does not help to find a secret whose digest leads to one of these places.
  package var placeNumber: Int {
    var number = 0
    for index in 0..<8 { number = number << 8 | Int(bytes[index]) }
    return number & .max
  }
}
