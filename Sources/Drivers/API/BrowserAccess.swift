import ByteStreams
import HTTPCodec
import HTTPServer

/// Refuses requests that a browser makes on behalf of a foreign web page. It recognises cross-site requests by `Origin`
/// and `Sec-Fetch-Site`, and DNS rebinding by `Host`. Clients other than browsers send neither `Origin` nor
/// `Sec-Fetch-Site`.
///
/// Immutable, and used by all listeners. Checking a request allocates only if the request is refused.
package struct BrowserAccess: Sendable {
  /// Allowed hosts, in lower case and without port.
  private let hosts: [[UInt8]]
  /// The other origins whose pages may send requests.
  let crossOrigin: CrossOrigin

  /// Reads `http.hosts` and `http.origins`.
  package init(_ settings: APISettings) {
    hosts = settings.hosts.map { Array($0.lowercased().utf8) }
    crossOrigin = CrossOrigin(settings)
  }

  /// Returns the problem (403) if a listener of this reach refuses the request, else nil.
  ///
  /// - Parameters:
  ///   - isSecure: whether the client has used HTTPS.
  ///   - allowsLinks: whether a person may follow a link from a page of any origin to this resource. It must be false
  ///     unless a GET of the resource changes nothing and no frame can show the response.
  ///   - acceptedHost: the Host that was accepted last. If the request has the same Host, the Host is not checked
  ///     again.
  func refusal(
    of request: borrowing HTTPRequestHead, on reach: HTTPListener.Reach, isSecure: Bool = false,
    allowsLinks: Bool = false, _ acceptedHost: inout AcceptedHost
  ) -> Problem? {
    let host = request.authority
    // Browsers always send Host. An HTTP/1.0 request without Host is not from a browser.
    if !host.isEmpty, !acceptedHost.equals(host, reach) {
      guard accepts(host: host.withoutPort, on: reach) else {
        return Problem(.hostNotAllowed, hostDetail(host, reach))
      }
      acceptedHost.note(host, reach)
    }
    if let origin = request.fields.first(.origin) {
      if crossOrigin.find(origin) != nil { return nil }
      guard isOwn(origin, host, isSecure) else {
        return Problem(
          .originNotAllowed,
          "the origin '\(origin.excerpt())' is not allowed: only pages of the gateway's own origin and of the setting http.origins may send requests"
        )
      }
    }
    // A site has no port, so all programs on localhost are the same site. A page of the same site may thus belong to
    // another program.
    if let site = request.fields.first(.secFetchSite), site.equals("cross-site") || site.equals("same-site"),
      !(allowsLinks && request.isNavigation)
    {
      // A browser sends no Origin for links and images, so `http.origins` cannot allow them. If the request has Origin,
      // it is the gateway's own origin, since other origins have already been refused.
      let remedy =
        request.fields.contains(.origin)
        ? "or redirected it here. Send it to this address directly, without a redirect"
        : "and it has no Origin that the setting http.origins could allow. Open the address directly, or use fetch() in the page, which sends Origin"
      return Problem(
        .originNotAllowed,
        "Sec-Fetch-Site is '\(site.text())': a page of another origin caused this request, \(remedy)")
    }
    return nil
  }

  // MARK: Host

  private func accepts(host: Span<UInt8>, on reach: HTTPListener.Reach) -> Bool {
    switch reach {
    case .local: return true
    case .loopback: return host.isLoopbackHost || contains(host, in: hosts)
    // A numeric address is allowed: it cannot be rebound, and the probes of an orchestrator connect to a numeric
    // address.
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
      "the Host '\(host.excerpt())' is not allowed: \(accepted) and the names of the setting http.hosts. Behind a reverse proxy that forwards Host, add its public name there"
  }

  // MARK: Origin

  /// Whether `origin` is the scheme of the request followed by its Host. Either may omit the default port.
  private func isOwn(_ origin: Span<UInt8>, _ host: Span<UInt8>, _ isSecure: Bool) -> Bool {
    let scheme: StaticString = isSecure ? "https://" : "http://"
    guard !host.isEmpty, origin.count > scheme.utf8CodeUnitCount,
      origin.extracting(first: scheme.utf8CodeUnitCount).equalsIgnoringCase(scheme)
    else { return false }
    let other = origin.extracting(scheme.utf8CodeUnitCount..<origin.count)
    let port: StaticString = isSecure ? ":443" : ":80"
    return other.without(defaultPort: port).equalsIgnoringCase(host.without(defaultPort: port))
  }

  private func contains(_ text: Span<UInt8>, in list: [[UInt8]]) -> Bool {
    for entry in list where text.equalsIgnoringCase(entry.span) { return true }
    return false
  }
}

/// The last value of Host that `BrowserAccess` has accepted, and the reach of its listener. Most clients of an event
/// loop send the same value.
struct AcceptedHost: ~Copyable {
  /// Longer values are not kept: a name has at most 253 bytes, and a port five digits.
  private static var longest: Int { 260 }

  private var host = ByteQueue()
  private var reach = HTTPListener.Reach.local

  func equals(_ host: Span<UInt8>, _ reach: HTTPListener.Reach) -> Bool {
    reach == self.reach && host.equals(self.host.bytes)
  }

  mutating func note(_ host: Span<UInt8>, _ reach: HTTPListener.Reach) {
    guard host.count <= Self.longest else { return }
    self.host.removeAll()
    self.host.append(host)
    self.reach = reach
  }
}

extension HTTPRequestHead {
  /// Whether a browser requests the page of a tab, and not of a frame. A navigation by POST has Origin, and is refused
  /// if its Origin is foreign.
  fileprivate var isNavigation: Bool {
    !fields.contains(.origin) && fields.first("sec-fetch-mode")?.equals("navigate") ?? false
      && fields.first("sec-fetch-dest")?.equals("document") ?? false
  }
}

extension Span where Element == UInt8 {
  /// The host of `host:port`.
  fileprivate var withoutPort: Span<UInt8> {
    @_lifetime(copy self)
    get {
      var end = count
      while end > 0, ASCII.isDigit(self[end &- 1]) { end &-= 1 }
      guard end > 0, self[end &- 1] == UInt8(ascii: ":") else { return self }
      return extracting(first: end &- 1)
    }
  }

  /// The host of `host:80`, if `:80` is the default port; any other value unchanged.
  @_lifetime(copy self)
  fileprivate func without(defaultPort: StaticString) -> Span<UInt8> {
    let host = withoutPort
    let port = extracting(host.count..<count)
    return port.equals(defaultPort) || port.equals(":") ? host : self
  }

  fileprivate var isLoopbackHost: Bool { equalsIgnoringCase("localhost") || address?.isLoopback == true }

  /// The IP address of a host without a port; an IPv6 address must be in brackets. nil for a name.
  fileprivate var address: IPAddress? {
    starts(with: "[") ? IPAddress(ipv6: extracting(1..<count - 1)) : IPAddress(ipv4: self)
  }
}
