import ByteStreams
import Digests

/// The status page, `status.html` in this directory. It is one file without outside resources, and everything it shows comes from the
/// API by `fetch`. So it is the same for everyone, and contains nothing that needs credentials.
enum StatusPage {
  /// Text first: `*/*` gets it, since a terminal can show it. Browsers ask for HTML by name.
  static let representations = [Representation.text, .html, .json]

  static let content = SharedBytes(PackageResources.status_html)

  /// Header fields, each ending with CRLF. The policy allows the one script and the one style sheet of the page by their digests, and
  /// requests to the gateway itself. Text that becomes markup is refused by the browser (Trusted Types), and no other page can show
  /// this one in a frame, where a click could be stolen.
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
