import ByteStreams

/// The SHA-256 of a certificate's public key (its DER `SubjectPublicKeyInfo`, as in RFC 7469 §2.4).
///
/// The text form is base64, with or without the prefix `sha256/` of OkHttp or `sha256//` of curl.
package struct PublicKeyPin: Hashable, Sendable, CustomStringConvertible {
  /// The digest in base64: 44 characters.
  package let base64: String

  /// Returns nil unless `text` is the base64 of exactly 32 bytes.
  package init?(_ text: String) {
    let digits =
      if text.hasPrefix("sha256//") {
        text.dropFirst(8)
      } else if text.hasPrefix("sha256/") {
        text.dropFirst(7)
      } else {
        text[...]
      }
    guard Base64.isEncoding(Array(digits.utf8).span, ofBytes: 32) else { return nil }
    base64 = String(digits)
  }

  init(digest: [UInt8]) { base64 = Base64.encode(digest.span) }

  package var description: String { "sha256/" + base64 }
}
