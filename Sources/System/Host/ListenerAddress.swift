import ByteStreams

/// The text form of a listener's address: `127.0.0.1:8080`, `[::1]:8080`, `[fe80::1%eth0]:8080`, `:8080` for every IPv4
/// address, `localhost:8080`, or `unix:/path`.
package enum ListenerAddress {
  package static let expectation =
    "host:port with a numeric host or localhost and a port from 0 to 65535, [v6-address]:port, or unix:/path with at most "
    + "\(SocketAddress.longestPath) bytes"

  package static func parse(_ text: String) -> SocketAddress? {
    if text.hasPrefix("unix:") {
      let path = String(text.dropFirst(5))
      return path.isEmpty || path.utf8.count > SocketAddress.longestPath ? nil : .unix(path: path)
    }
    guard let colon = text.lastIndex(of: ":") else { return nil }
    let digits = text[text.index(after: colon)...]
    // Only digits are accepted, since `UInt16` would also accept a sign.
    guard digits.utf8.allSatisfy(ASCII.isDigit), let port = UInt16(digits) else { return nil }
    var host = String(text[..<colon])
    if host.hasPrefix("["), host.hasSuffix("]") {
      host = String(host.dropFirst().dropLast())
      guard let address = SocketAddress(numericHost: host, port: port), address.isIPv6 else { return nil }
      return address
    }
    switch host {
    case "", "*": host = "0.0.0.0"
    case "localhost": host = "127.0.0.1"
    default: break
    }
    guard let address = SocketAddress(numericHost: host, port: port), !address.isIPv6 else { return nil }
    return address
  }
}
