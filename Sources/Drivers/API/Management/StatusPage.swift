import ByteStreams
import Digests

/// The status page, `status.html` in this directory. It is one file without external resources, and gets all its data
/// from the API by `fetch`. So every client gets the same page, and the page itself contains nothing that needs
/// credentials.
enum StatusPage {
  /// Text is the first, so that a client that accepts `*/*` gets text, which a terminal can show. Browsers request HTML
  /// by name.
  static let representations = [Representation.text, .html, .json]

  static let content = ByteString(PackageResources.status_html)

  /// Header fields, each ending with CRLF. The policy allows the page's only script and style sheet by their digests,
  /// and requests to the gateway itself. The browser refuses to use text as markup (Trusted Types). No other page can
  /// show this page in a frame, since a frame makes it possible to steal clicks.
  static let fields: String = {
    let policy = [
      "default-src 'none'", "script-src '\(digest(of: "script"))'", "style-src '\(digest(of: "style"))'",
      "connect-src 'self'",
      "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
      "require-trusted-types-for 'script'",
      "trusted-types 'none'",
    ]
    return "Content-Security-Policy: \(policy.joined(separator: "; "))\r\n"
      + "X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n"
  }()

  /// Returns the source expression of the only element with this name, such as `sha256-…`.
  private static func digest(of element: String) -> String {
    let page = String(decoding: PackageResources.status_html, as: UTF8.self)
    guard let start = page.firstRange(of: "<\(element)>")?.upperBound,
      let end = page[start...].firstRange(of: "</\(element)>")?.lowerBound
    else { preconditionFailure("the status page has no <\(element)>") }
    var text = ByteQueue()
    Base64.encode(Digest.sha256(Array(page[start..<end].utf8).span).span, into: &text)
    return "sha256-" + text.bytes.text()
  }
}
