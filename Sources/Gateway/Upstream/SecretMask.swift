import ByteStreams
import Configuration
import Conventions
import JSONCodec
import ProxyCodec

/// Hides the secrets that an attempt sent, where the upstream's own text may repeat them: an error page that shows the request,
/// the reason of a close frame.
struct SecretMask {
  /// Shorter values occur by chance: `1` in `X-Version: 1` is in every number.
  static let minimumLength = 4
  private static let replacement = Array("***".utf8)
  /// U+FFFD, which stands for bytes that are no UTF-8.
  private static let undecodable = Array("\u{FFFD}".utf8)

  /// Longest first: one may contain another. In bytes: a combining character behind a secret, or a cut in the middle of a
  /// character, hides none.
  private let secrets: [[UInt8]]

  init(_ secrets: some Sequence<String>) {
    self.secrets = Set(secrets.filter { $0.utf8.count >= Self.minimumLength }).sorted {
      ($1.utf8.count, $0) < ($0.utf8.count, $1)
    }.map { Array($0.utf8) }
  }

  /// `text` without secrets, and fit for a terminal. `isCut`: more followed, and a secret may be cut in two at the end.
  func applied(to text: String, isCut: Bool = false) -> String {
    var bytes = Array(text.utf8)
    for secret in secrets { bytes.replace(secret, with: Self.replacement) }
    if isCut {
      // The bytes of a character that was cut in two.
      while bytes.suffix(Self.undecodable.count).elementsEqual(Self.undecodable) {
        bytes.removeLast(Self.undecodable.count)
      }
      let length = secrets.map { Self.beginning(of: $0, atTheEndOf: bytes) }.max() ?? 0
      if length > 0 { bytes.replaceSubrange((bytes.count - length)..., with: Self.replacement) }
    }
    return PrintableText.escaped(String(decoding: bytes, as: UTF8.self))
  }

  /// Number of bytes of `secret` that `text` ends with. In bytes, and no more of them than `text` has: the event loop waits
  /// for this, and a secret may have 64 KiB.
  private static func beginning(of secret: [UInt8], atTheEndOf text: [UInt8]) -> Int {
    var length = min(secret.count, text.count)
    while length > 0, !text[(text.count - length)...].elementsEqual(secret[..<length]) { length -= 1 }
    return length
  }
}

extension UpstreamLink {
  /// For what the upstream, or the proxy, says of this attempt.
  var mask: SecretMask {
    var secrets = values.files.values.map { String(decoding: $0, as: UTF8.self) }
    if let credential = values.credential {
      secrets += [String(decoding: credential, as: UTF8.self), PercentEncoder.encode(credential.span)]
    }
    // Origin and User-Agent only say who asks.
    for field in settings.fields where !["origin", "user-agent"].contains(field.name.lowercased()) {
      secrets.append(field.value)
      // The scheme of `Authorization` is no secret; what follows it is, by itself too.
      secrets += field.value.split(separator: " ").dropFirst().map(String.init)
    }
    for pair in [url.credentials, proxy?.credentials.map { "\($0.username):\($0.password)" }] {
      guard let pair else { continue }
      secrets += [pair, Base64.encode(Array(pair.utf8).span)]
      secrets += pair.split(separator: ":", maxSplits: 1).dropFirst().map(String.init)
    }
    for parameter in url.target.drop(while: { $0 != "?" }).dropFirst().split(separator: "&") {
      let value = parameter.split(separator: "=", maxSplits: 1).last ?? parameter
      secrets.append(String(value))
      if let decoded = try? URLAuthority.percentDecoded(value) { secrets.append(decoded) }
    }
    // As they are inside a message of JSON.
    secrets += secrets.filter { $0.contains { $0 == "\"" || $0 == "\\" } }.map { secret in
      var text = ByteQueue()
      text.append(jsonString: secret)
      return String(text.bytes.text().dropFirst().dropLast())
    }
    return SecretMask(secrets)
  }
}
