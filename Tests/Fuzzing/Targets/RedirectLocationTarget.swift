import ByteStreams
import Dialing
import WebSocketCodec

/// The `Location` and `Retry-After` fields of a hostile upstream's response.
///
/// Input: a byte for the original URL, then the value of the field.
enum RedirectLocationTarget {
  private static let bases = [
    "wss://user:pw@example.org/socket?token=1", "ws://u@127.0.0.1:9000", "wss://[2001:db8::1]:444/a",
  ]

  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let base: WebSocketURL
    do throws(WebSocketURLError) {
      base = try WebSocketURL(bases[Int(reader.byte()) % bases.count])
    } catch {
      throw Finding("the original URL is refused: \(error)")
    }
    let text = reader.rest.text()
    try readRetryAfter(text)
    guard let next = try? base.redirected(to: text) else { return }

    let request = ClientHandshake.Request(target: next.target, host: next.hostField)
    if let problem = request.problem { throw Finding("redirected to a URL that does not allow a request: \(problem)") }
    try requireDigits(ofPortIn: text)
    try require(next.isSecure || !base.isSecure, "redirected from wss to ws")
    let isSameOrigin = next.isSecure == base.isSecure && next.hostField.lowercased() == base.hostField.lowercased()
    if let credentials = next.credentials, credentials == base.credentials, !isSameOrigin {
      try require(text.contains("@"), "the credentials are sent to \(next.hostField)")
    }
    try requireReadable(next)
  }

  /// Writing and parsing the URL again results in the same URL, except for a zone, since `hostField` contains no zone.
  private static func requireReadable(_ url: WebSocketURL) throws(Finding) {
    let text = (url.isSecure ? "wss://" : "ws://") + url.hostField + url.target
    let again: WebSocketURL
    do throws(WebSocketURLError) {
      again = try WebSocketURL(text)
    } catch {
      throw Finding("\(text) is refused: \(error)")
    }
    let isSame = again.hostField == url.hostField && again.port == url.port && again.target == url.target
    try require(isSame, "\(text) is read as \(again) instead of \(url)")
  }

  /// RFC 3986 §3.2.3: a port consists of digits. A reference contains a host only if it begins with `//`, with or
  /// without a scheme. Otherwise it is a path, in which a colon has no meaning.
  private static func requireDigits(ofPortIn text: String) throws(Finding) {
    guard let slashes = text.firstRange(of: "//"),
      ["", "http:", "https:", "ws:", "wss:"].contains(text[..<slashes.lowerBound].lowercased())
    else { return }
    let authority = text[slashes.upperBound...].utf8.prefix { !"/?#".utf8.contains($0) }
    let host = authority.split(separator: UInt8(ascii: "@")).last ?? []
    let behind = host.split(separator: UInt8(ascii: "]"), omittingEmptySubsequences: false).last ?? []
    guard let colon = behind.lastIndex(of: UInt8(ascii: ":")) else { return }
    let port = behind[behind.index(after: colon)...]
    try require(
      port.allSatisfy { (0x30...0x39).contains($0) },
      "redirected to the port '\(String(decoding: port, as: UTF8.self))'")
  }

  private static func readRetryAfter(_ text: String) throws(Finding) {
    guard let wait = RetryAfter.parse(text, now: 1_700_000_000) else { return }
    try require(wait >= .zero && wait <= .seconds(1 << 31), "Retry-After asks for \(wait)")
  }
}
