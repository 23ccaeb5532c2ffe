import ByteStreams
import Upstream
import WebSocketCodec

/// Where a hostile upstream sends us: the `Location` of its answer. And its `Retry-After`.
///
/// Input: a byte that chooses the URL it is seen from, then the value of the field.
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
      throw Finding("the URL to start from is refused: \(error)")
    }
    let text = reader.rest.text()
    try readRetryAfter(text)
    guard let next = try? base.redirected(to: text) else { return }

    let request = ClientHandshake.Request(target: next.target, host: next.hostField)
    if let problem = request.problem { throw Finding("followed to where no request can go: \(problem)") }
    try requireDigits(ofPortIn: text)
    try require(next.isSecure || !base.isSecure, "followed from wss to ws")
    let isSameOrigin = next.isSecure == base.isSecure && next.hostField.lowercased() == base.hostField.lowercased()
    if let credentials = next.credentials, credentials == base.credentials, !isSameOrigin {
      try require(text.contains("@"), "the credentials go along to \(next.hostField)")
    }
    try requireReadable(next)
  }

  /// Written as a URL, it leads to the same place.
  private static func requireReadable(_ url: WebSocketURL) throws(Finding) {
    let text = (url.isSecure ? "wss://" : "ws://") + url.hostField + url.target
    let again: WebSocketURL
    do throws(WebSocketURLError) {
      again = try WebSocketURL(text)
    } catch {
      throw Finding("\(text) is refused: \(error)")
    }
    let isSame = again.host == url.host && again.port == url.port && again.target == url.target
    try require(isSame, "\(text) leads to \(again), not to \(url)")
  }

  /// RFC 3986 §3.2.3: a port is digits. Only what begins with `//`, with or without a scheme, names a host; anything else is a
  /// path, and there a colon is a colon.
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
      port.allSatisfy { (0x30...0x39).contains($0) }, "followed to the port '\(String(decoding: port, as: UTF8.self))'")
  }

  private static func readRetryAfter(_ text: String) throws(Finding) {
    guard let wait = RetryAfter.parse(text, now: 1_700_000_000) else { return }
    try require(wait >= .zero && wait <= .seconds(1 << 31), "Retry-After asks for \(wait)")
  }
}
