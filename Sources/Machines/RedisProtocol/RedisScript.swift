import ByteStreams
import Digests

/// A Lua script, which commands name by the SHA-1 of its text (`EVALSHA`).
package struct RedisScript: Hashable, Sendable {
  package let text: String
  /// 40 hexadecimal digits in lower case.
  package let digest: [UInt8]

  package init(_ text: String) {
    self.text = text
    digest = Digest.sha1(text.utf8Span.span).flatMap { byte in
      [byte >> 4, byte & 15].map { $0 < 10 ? 0x30 + $0 : 0x57 + $0 }
    }
  }
}
