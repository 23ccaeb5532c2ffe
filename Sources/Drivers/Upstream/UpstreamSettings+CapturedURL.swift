import Profiles
import UpstreamProtocol
import WebSocketCodec

/// URLs that the upstream has sent for the next connection attempt (`upstream.url_from`). They are untrusted input: the
/// upstream may send any URL, and may repeat a URL from a text that it forwards.
extension UpstreamSettings {
  /// Returns why a captured URL is not used; nil if it is used.
  package func refusal(ofCapturedURL url: WebSocketURL) -> String? {
    if !url.isSecure, requiresTLS {
      return urlSource.isSet ? "it is ws, and 'upstream.url' may be wss" : "it is ws, and a configured URL is wss"
    }
    return isConfigured(url) ? nil : "its host is not in 'upstream.captured_hosts'"
  }

  /// Whether a captured URL must be wss. The URL of a file or command is not known, so it counts as wss.
  private var requiresTLS: Bool { urlSource.isSet || urls.contains(where: \.isSecure) }

  /// Whether `url` has the origin of a configured URL, or of the URL that was read for this connection.
  func hasConfiguredOrigin(_ url: WebSocketURL) -> Bool {
    urls.contains { $0.hasSameOrigin(as: url) } || readURL?.hasSameOrigin(as: url) == true
  }

  /// Whether the host of `url` is listed. If a configured URL is wss, no secret is sent over ws.
  func isListed(_ url: WebSocketURL) -> Bool {
    !capturedHosts.isEmpty && capturedHosts.contains(url.host) && (url.isSecure || !requiresTLS)
  }

  /// The rules for the addresses of a connection to `url`. The addresses of a listed host are judged like the addresses
  /// of sessions that clients create, since a name server chooses them. An address that is listed itself is allowed.
  package func rules(for url: WebSocketURL) -> ConnectionRules? {
    guard connectionRules == nil, !hasConfiguredOrigin(url), isListed(url), NumericHost.address(of: url.host) == nil
    else { return connectionRules }
    var rules = ConnectionRules()
    rules.hosts = capturedHosts
    rules.owner = "the session"
    rules.allowance = "'upstream.captured_hosts'"
    return rules
  }
}
