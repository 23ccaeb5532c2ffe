import ByteStreams
import Configuration
import HTTPCodec
import HTTPServer

/// Refuses requests that a browser makes for a foreign web page: cross-site requests by `Origin` and `Sec-Fetch-Site`, and DNS
/// rebinding by `Host`. Other clients send neither `Origin` nor `Sec-Fetch-Site`.
///
/// One for all listeners, immutable. Checking a request allocates nothing unless the request is refused.
package struct BrowserAccess: Sendable {
  /// Lower case, without port.
  private let hosts: [[UInt8]]
  /// Lower case, as browsers send them: `https://app.example.org`.
  private let origins: [[UInt8]]

  /// From `http.hosts` and `http.origins`.
  package init(_ settings: GatewaySettings.HTTP) {
    hosts = settings.hosts.map { Array($0.lowercased().utf8) }
    origins = settings.origins.map { Array($0.lowercased().utf8) }
  }

  /// The 403 for a request that is not accepted on a listener of this reach; nil for one that is.
  func refusal(of request: borrowing HTTPRequestHead, on reach: HTTPListener.Reach) -> Problem? {
    let host = request.authority
    // Browsers always send Host. A request of HTTP/1.0 without one is no browser's.
    if !host.isEmpty, !accepts(host: host.withoutPort, on: reach) {
      return Problem(.hostNotAllowed, detail: hostDetail(host, reach))
    }
    if let origin = request.fields.first(.origin) {
      if contains(origin, in: origins) { return nil }
      guard isOwn(origin, host) else {
        return Problem(
          .originNotAllowed,
          detail:
            "the origin '\(origin.excerpt())' is not allowed: only pages of the gateway's own origin and of the setting http.origins may send requests"
        )
      }
    }
    // The site ignores the port: every program on localhost is the same site, so a page of it is foreign as well.
    if let site = request.fields.first(.secFetchSite), site.equals("cross-site") || site.equals("same-site") {
      // A link or an image sends no Origin that the setting could allow. Where there is one, it is the gateway's own.
      let remedy =
        request.fields.contains(.origin)
        ? "or redirected it here. Send it to this address at once, without a redirection"
        : "and it has no Origin that the setting http.origins could allow. Open the address directly, or let the page use fetch(), which sends Origin"
      return Problem(
        .originNotAllowed,
        detail: "Sec-Fetch-Site is '\(site.text())': a page of another origin caused this request, \(remedy)")
    }
    return nil
  }

  // MARK: Host

  private func accepts(host: Span<UInt8>, on reach: HTTPListener.Reach) -> Bool {
    switch reach {
    case .local: return true
    case .loopback: return host.isLoopbackHost || contains(host, in: hosts)
    // A numeric address cannot be rebound. Probes of an orchestrator connect to one.
    case .network: return hosts.isEmpty || host.isLoopbackHost || host.address != nil || contains(host, in: hosts)
    }
  }

  private func hostDetail(_ host: Span<UInt8>, _ reach: HTTPListener.Reach) -> String {
    let accepted =
      switch reach {
      case .loopback, .local: "this loopback listener accepts localhost, loopback addresses"
      case .network: "this listener accepts localhost, numeric addresses"
      }
    return
      "the Host '\(host.excerpt())' is not allowed: \(accepted) and the names of the setting http.hosts. Behind a reverse proxy that forwards Host, add the proxy's name there"
  }

  // MARK: Origin

  /// Whether `origin` is the listener's scheme with the request's Host; the default port may be left out of either.
  private func isOwn(_ origin: Span<UInt8>, _ host: Span<UInt8>) -> Bool {
    let scheme = "http://" as StaticString
    guard !host.isEmpty, origin.count > scheme.utf8CodeUnitCount,
      origin.extracting(first: scheme.utf8CodeUnitCount).equalsIgnoringCase(scheme)
    else { return false }
    let other = origin.extracting(scheme.utf8CodeUnitCount..<origin.count)
    return other.withoutDefaultPort.equalsIgnoringCase(host.withoutDefaultPort)
  }

  private func contains(_ text: Span<UInt8>, in list: [[UInt8]]) -> Bool {
    for entry in list where text.equalsIgnoringCase(entry.span) { return true }
    return false
  }
}

extension Span where Element == UInt8 {
  /// A `host:port` without its port.
  fileprivate var withoutPort: Span<UInt8> {
    @_lifetime(copy self)
    get {
      var end = count
      while end > 0, ASCII.isDigit(self[end &- 1]) { end &-= 1 }
      guard end > 0, self[end &- 1] == UInt8(ascii: ":") else { return self }
      return extracting(first: end &- 1)
    }
  }

  /// A `host:port` without the port 80.
  fileprivate var withoutDefaultPort: Span<UInt8> {
    @_lifetime(copy self)
    get {
      let host = withoutPort
      let port = extracting(host.count..<count)
      return port.equals(":80") || port.equals(":") ? host : self
    }
  }

  fileprivate var isLoopbackHost: Bool { equalsIgnoringCase("localhost") || address?.isLoopback == true }

  /// The address that a host without a port is, in brackets if it is an IPv6 address; nil for a name.
  fileprivate var address: IPAddress? {
    starts(with: "[") ? IPAddress(ipv6: extracting(1..<count - 1)) : IPAddress(ipv4: self)
  }
}
