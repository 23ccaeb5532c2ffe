import ByteStreams

/// The SHA-256 of a certificate's public key (its DER `SubjectPublicKeyInfo`, as in RFC 7469 §2.4).
///
/// Written as base64, with or without the `sha256/` of OkHttp or the `sha256//` of curl before it.
package struct PublicKeyPin: Hashable, Sendable, CustomStringConvertible {
  /// The digest in base64: 44 characters.
  package let base64: String

  /// Nil unless `text` is the base64 of exactly 32 bytes.
  package init?(_ text: String) {
    let digits =
      if text.hasPrefix("sha256//") {
        text.dropFirst(8)
      } else if text.hasPrefix("sha256/") {
        text.dropFirst(7)
      } else {
        text[...]
      }
    // 32 bytes are 43 characters and one '='. The 43rd carries four bits of the digest, its lower two are zero.
    let utf8 = Array(digits.utf8)
    guard utf8.count == 44, utf8[43] == UInt8(ascii: "="), utf8.dropLast().allSatisfy(Self.isBase64),
      "AEIMQUYcgkosw048".utf8.contains(utf8[42])
    else { return nil }
    base64 = String(digits)
  }

  init(digest: [UInt8]) { base64 = Base64.encode(digest.span) }

  package var description: String { "sha256/" + base64 }

  private static func isBase64(_ byte: UInt8) -> Bool {
    ASCII.isDigit(byte) || ASCII.lowercased(byte) &- UInt8(ascii: "a") < 26 || byte == UInt8(ascii: "+")
      || byte == UInt8(ascii: "/")
  }
}
