import ByteStreams
import JSONCodec
import ProxyCodec
import UpstreamProtocol
import WebSocketCodec

/// Hides the secrets that an attempt sent. A text of the upstream may repeat them, for example an error page that shows
/// the request, or the reason of a close frame.
struct SecretMask {
  /// Shorter values are not hidden, since they also occur by chance: `1`, the value of `X-Version: 1`, occurs in many
  /// numbers.
  static let minimumLength = 4
  private static let replacement = Array("***".utf8)
  /// U+FFFD, which replaces bytes that are not valid UTF-8.
  private static let undecodable = Array("\u{FFFD}".utf8)

  /// Stored as bytes: a combining character after a secret, or a cut in the middle of a character, must not prevent a
  /// match.
  private let secrets: [[UInt8]]

  init(_ secrets: some Sequence<String>) {
    self.secrets = Set(secrets.filter { $0.utf8.count >= Self.minimumLength }).map { Array($0.utf8) }
  }

  /// `text` without secrets and with control characters escaped. `isCut`: the text was truncated, possibly within a
  /// secret.
  func applied(to text: String, isCut: Bool = false) -> String {
    var bytes = Array(text.utf8)
    // Removes the rest of a character that was cut in two.
    while isCut, bytes.suffix(Self.undecodable.count).elementsEqual(Self.undecodable) {
      bytes.removeLast(Self.undecodable.count)
    }
    var hidden = secrets.flatMap { bytes.ranges(of: $0) }
    if isCut {
      hidden += secrets.map { (bytes.count - Self.prefixLength(of: $0, atEndOf: bytes))..<bytes.count }
    }
    // Overlapping secrets are hidden as one range, so that no part of either remains.
    var masked: [UInt8] = []
    var end = 0
    for range in hidden.sorted(by: { $0.lowerBound < $1.lowerBound }) where !range.isEmpty {
      if range.lowerBound >= end { masked += bytes[end..<range.lowerBound] + Self.replacement }
      end = max(end, range.upperBound)
    }
    masked += bytes[end...]
    return PrintableText.escaped(String(decoding: masked, as: UTF8.self))
  }

  /// The number of bytes at the beginning of `secret` that are also the end of `text`. Compares at most as many bytes
  /// as `text` has, since this function runs on the event loop and a secret may have 64 KiB.
  private static func prefixLength(of secret: [UInt8], atEndOf text: [UInt8]) -> Int {
    var length = min(secret.count, text.count)
    while length > 0, !text[(text.count - length)...].elementsEqual(secret[..<length]) { length -= 1 }
    return length
  }
}

extension SecretMask {
  /// The secrets of one connection, including its attempt.
  init(
    of values: TemplateValues, _ settings: UpstreamSettings, url: WebSocketURL?, proxy: ProxyURL?,
    captures: [String: CapturedValue] = [:], encodedTexts: [[UInt8]] = []
  ) {
    var secrets = values.files.values.map { String(decoding: $0, as: UTF8.self) }
    if let credential = values.credential {
      secrets += [String(decoding: credential, as: UTF8.self), PercentEncoder.encode(credential.span)]
    }
    for secret in settings.conventions.declaration?.secrets(values) ?? [] {
      secrets += [String(decoding: secret, as: UTF8.self), PercentEncoder.encode(secret.span)]
    }
    for rule in settings.conventions.captures where !rule.isShown {
      // `true` and `false` occur by chance.
      guard let value = captures[rule.name], value.content != Array("true".utf8), value.content != Array("false".utf8)
      else { continue }
      secrets.append(String(decoding: value.content, as: UTF8.self))
    }
    let header = settings.conventions.credential.header?.encodedTexts(with: values) ?? []
    secrets += (header + encodedTexts).map { String(decoding: $0, as: UTF8.self) }
    // Origin and User-Agent only identify the client.
    for field in settings.fields where !["origin", "user-agent"].contains(field.name.lowercased()) {
      secrets.append(field.value)
      // The scheme of `Authorization` is not a secret. The value after it is a secret, even on its own.
      secrets += field.value.split(separator: " ").dropFirst().map(String.init)
    }
    for pair in [url?.credentials, proxy?.credentials.map { "\($0.username):\($0.password)" }] {
      guard let pair else { continue }
      secrets += [pair, Base64.encode(Array(pair.utf8).span)]
      secrets += pair.split(separator: ":", maxSplits: 1).dropFirst().map(String.init)
    }
    if let url, url.hasSecretPath {
      let path = url.target.prefix { $0 != "?" }.dropFirst()
      secrets.append(String(path))
      // An upstream may repeat an id in the path. Short segments are names such as `devtools`.
      for segment in path.split(separator: "/") where segment.utf8.count >= Self.shortestSegment {
        secrets.append(String(segment))
        if let decoded = PercentDecoder.decoded(segment) { secrets.append(decoded) }
      }
    }
    for parameter in (url?.target ?? "").drop(while: { $0 != "?" }).dropFirst().split(separator: "&") {
      let value = parameter.split(separator: "=", maxSplits: 1).last ?? parameter
      secrets.append(String(value))
      if let decoded = PercentDecoder.decoded(value) { secrets.append(decoded) }
    }
    // Secrets also occur with JSON escapes, inside a JSON message.
    secrets += secrets.filter { $0.contains { $0 == "\"" || $0 == "\\" } }.map { secret in
      var text = ByteQueue()
      text.append(jsonString: secret)
      return String(text.bytes.text().dropFirst().dropLast())
    }
    self.init(secrets)
  }

  /// The shortest segment of a secret path that is masked on its own, in characters.
  private static var shortestSegment: Int { 16 }
}
