import ByteStreams

/// The authority of a URL, `user:password@host:port` (RFC 3986 §3.2), split into its parts.
package struct URLAuthority {
  /// The user information, percent-encoded as in the URL.
  package let userinfo: Substring?
  /// Name or address, without brackets. A zone is appended as `%eth0`.
  package let host: String
  package let port: UInt16?

  package init(_ text: Substring) throws(URLAuthorityError) {
    var rest = text
    if let at = rest.lastIndex(of: "@") {
      userinfo = rest[..<at]
      rest = rest[rest.index(after: at)...]
    } else {
      userinfo = nil
    }
    var portText: Substring?
    if rest.hasPrefix("[") {
      guard let close = rest.firstIndex(of: "]") else { throw .badHost }
      host = try Self.address(rest[rest.index(after: rest.startIndex)..<close])
      let after = rest[rest.index(after: close)...]
      guard after.isEmpty || after.hasPrefix(":") else { throw .badHost }
      if !after.isEmpty { portText = after.dropFirst() }
    } else {
      let parts = rest.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
      host = String(parts[0])
      if parts.count > 1 { portText = parts[1] }
      guard !host.isEmpty, host.utf8.allSatisfy(Self.isNameCharacter) else { throw .badHost }
    }
    if let portText {
      // Only digits (RFC 3986 §3.2.3). `UInt16` alone would accept a sign.
      guard portText.utf8.allSatisfy(ASCII.isDigit), let number = UInt16(portText), number > 0 else { throw .badPort }
      port = number
    } else {
      port = nil
    }
  }

  /// The user name and the password of `user:password`, percent-decoded; nil without user information.
  package func credentials() throws(URLAuthorityError) -> (user: String, password: String)? {
    guard let userinfo else { return nil }
    let parts = userinfo.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
    return (try Self.percentDecoded(parts[0]), parts.count > 1 ? try Self.percentDecoded(parts[1]) : "")
  }

  /// Parses an `IPv6address` with an optional zone, which is valid only on this machine (RFC 3986 §3.2.2). RFC 6874 §2
  /// writes `[fe80::1%25eth0]`; the common form `[fe80::1%eth0]` is accepted, too.
  private static func address(_ text: Substring) throws(URLAuthorityError) -> String {
    let address = text.prefix { $0 != "%" }
    guard IPAddress(ipv6: Array(address.utf8).span) != nil else { throw .badHost }
    guard address.endIndex < text.endIndex else { return String(text) }
    var zone = text[address.endIndex...].dropFirst()
    if zone.hasPrefix("25") { zone = zone.dropFirst(2) }
    guard !zone.isEmpty, zone.utf8.allSatisfy(isNameCharacter) else { throw .badHost }
    let name = try percentDecoded(zone)
    guard name.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "%") }) else { throw .badHost }
    return "\(address)%\(name)"
  }

  /// Whether `byte` may be in a registered name, escapes included (RFC 3986 §3.2.2).
  private static func isNameCharacter(_ byte: UInt8) -> Bool {
    URICharacter.isRegisteredName(byte) || byte == UInt8(ascii: "%")
  }

  /// `host` for use before a port in a URL: an IPv6 address in brackets, with its zone as in RFC 6874.
  package static func bracketed(_ host: String) -> String {
    guard host.contains(":") else { return host }
    let address = host.prefix { $0 != "%" }
    let zone = host[address.endIndex...].dropFirst()
    return zone.isEmpty ? "[\(address)]" : "[\(address)%25\(PercentEncoder.encode(Array(zone.utf8).span))]"
  }

  /// Like `bracketed`, but without the zone, which has no meaning on another machine (RFC 6874 §4). Only an IPv6
  /// address has a zone: in a name, `%` begins an escape.
  package static func bracketedWithoutZone(_ host: String) -> String {
    host.utf8.contains(UInt8(ascii: ":")) ? bracketed(String(host.prefix { $0 != "%" })) : host
  }

  /// Decodes a part of `userinfo`. `%00` is rejected, since a name or password must not contain NUL (RFC 7617 §2), at
  /// which C programs would truncate the value.
  static func percentDecoded(_ text: Substring) throws(URLAuthorityError) -> String {
    guard let decoded = PercentDecoder.decoded(text) else { throw .badEscape }
    return decoded
  }
}

/// Why the authority of a URL is invalid.
package enum URLAuthorityError: Error, Hashable, Sendable, CustomStringConvertible {
  case badCharacter
  /// Letters outside ASCII in the host: an internationalized domain name.
  case internationalName
  /// A '/', '?' or '#' before the '@'.
  case unencodedDelimiter
  case badEscape
  case badHost
  case badPort

  package var description: String {
    switch self {
    case .badCharacter: "it contains a character that must be percent-encoded"
    case .internationalName:
      "the host name has letters outside ASCII: write it in punycode, as in xn--bcher-kva.example for bücher.example"
    case .unencodedDelimiter: "the user name or password contains '/', '?' or '#': write %2F, %3F or %23"
    case .badEscape: "the credentials contain '%' without two hexadecimal digits, or '%00'"
    case .badHost: "no host: use a name, an IPv4 address, or an IPv6 address in brackets"
    case .badPort: "the port is not a number from 1 to 65535"
    }
  }
}
