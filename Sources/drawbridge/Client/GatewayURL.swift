import ByteStreams
import HTTPCodec
import Host

/// The address of a gateway, as a person writes it: `http://127.0.0.1:8080`, `https://gateway.example/path` or
/// `unix:/run/drawbridge.sock`.
struct GatewayURL {
  enum Place {
    case network(host: String, port: UInt16)
    case unix(path: String)
  }

  let place: Place
  let isSecure: Bool
  /// The value of Host.
  let hostField: String
  /// The part of the path before `/v1`: empty, or the path below which a proxy serves the gateway.
  let path: String
  let text: String

  /// Whether other people can read the request, because it is sent to another machine by plain HTTP.
  var isExposed: Bool {
    guard case .network(let host, let port) = place, !isSecure, host != "localhost" else { return false }
    return !(SocketAddress(numericHost: host, port: port)?.ip?.isLoopback ?? false)
  }

  init(_ text: String) throws(UsageError) {
    // `text` is the URL in messages, in which it always has a scheme.
    self.text = text.contains("://") || text.hasPrefix("unix:") ? text : "http://" + text
    if text.hasPrefix("unix:") {
      let path = String(text.dropFirst(5))
      guard path.hasPrefix("/") else { throw Self.invalid(text, "a Unix socket has an absolute path") }
      (place, isSecure, hostField, self.path) = (.unix(path: path), false, "localhost", "")
      return
    }
    guard let url = URLParts(self.text), let isSecure = url.isSecure(("http", "https")) else {
      throw Self.invalid(text, "it has another scheme")
    }
    let authority: URLAuthority
    do throws(URLAuthorityError) {
      authority = try url.parseAuthority()
    } catch {
      throw Self.invalid(text, "\(error)")
    }
    guard authority.userinfo == nil else {
      throw UsageError(message: "the URL has credentials: use --token-file, since other users can read command lines.")
    }
    guard text.contains("://") || authority.port != nil else {
      throw Self.invalid(text, "it has neither a scheme nor a port")
    }
    var path = String(url.path)
    guard !path.contains(where: { $0 == "?" || $0 == "#" }) else {
      throw Self.invalid(text, "it has a query or a fragment")
    }
    while path.hasSuffix("/") { path.removeLast() }
    place = .network(host: authority.host, port: authority.port ?? (isSecure ? 443 : 80))
    hostField = String(url.authority)
    self.isSecure = isSecure
    self.path = path
  }

  /// - Parameter text: the URL. It is not shown if it may have credentials.
  private static func invalid(_ text: String, _ reason: String) -> UsageError {
    let shown = text.contains("@") ? "the URL" : "URL '\(text)'"
    return UsageError(
      message:
        "\(shown) is not valid (\(reason)): use http://HOST:PORT, https://HOST, HOST:PORT or unix:/PATH, as in http://127.0.0.1:8080."
    )
  }
}
