import ByteStreams

/// `user:password@host:port`, the authority of a URL (RFC 3986 §3.2), taken apart.
package struct URLAuthority {
  /// As it stands there, percent-encoded.
  package let userinfo: Substring?
  /// Name or address, without brackets. A zone follows it as `%eth0`.
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
      // Digits alone (RFC 3986 §3.2.3): a sign would do for the standard library.
      guard portText.utf8.allSatisfy(ASCII.isDigit), let number = UInt16(portText), number > 0 else { throw .badPort }
      port = number
    } else {
      port = nil
    }
  }

  /// `IPv6address`, perhaps with a zone behind it, which means something to this machine only (RFC 3986 §3.2.2). RFC 6874 §2
  /// writes `[fe80::1%25eth0]`; people also write `[fe80::1%eth0]`, as everywhere else.
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

  /// What a registered name consists of, escapes included (RFC 3986 §3.2.2).
  private static func isNameCharacter(_ byte: UInt8) -> Bool {
    URICharacter.isRegisteredName(byte) || byte == UInt8(ascii: "%")
  }

  /// `host` as it is written before a port, in a URL of ours: in brackets, and with the zone as RFC 6874 wants it.
  package static func written(_ host: String) -> String {
    guard host.contains(":") else { return host }
    let address = host.prefix { $0 != "%" }
    let zone = host[address.endIndex...].dropFirst()
    return zone.isEmpty ? "[\(address)]" : "[\(address)%25\(PercentEncoder.encode(Array(zone.utf8).span))]"
  }

  /// The same for another machine, to which the zone means nothing (RFC 6874 §4). Only an IPv6 address has a zone: in a name, a
  /// percent sign is an escape.
  package static func writtenForOthers(_ host: String) -> String {
    host.utf8.contains(UInt8(ascii: ":")) ? written(String(host.prefix { $0 != "%" })) : host
  }

  /// A part of `userinfo`, decoded. `%00` is refused as everywhere: no name and no password may contain a NUL (RFC 7617 §2, and C
  /// programs at the other end would cut the value there).
  package static func percentDecoded(_ text: Substring) throws(URLAuthorityError) -> String {
    guard let decoded = PercentDecoder.decoded(text) else { throw .badEscape }
    return decoded
  }
}

/// What is wrong with the authority of a URL.
package enum URLAuthorityError: Error, Hashable, Sendable, CustomStringConvertible {
  case badCharacter
  case badEscape
  case badHost
  case badPort

  package var description: String {
    switch self {
    case .badCharacter: "a character that must be percent-encoded"
    case .badEscape: "a '%' without two hexadecimal digits, or '%00', in the credentials"
    case .badHost: "no host: a name, an IPv4 address, or an IPv6 address in brackets"
    case .badPort: "the port is not a number from 1 to 65535"
    }
  }
}
