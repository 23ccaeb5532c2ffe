import ByteStreams
import HTTPCodec

/// The reverse proxies that are trusted to name the client, by the PROXY protocol and by `X-Forwarded-For`.
package struct TrustedProxies: Hashable, Sendable {
  private struct Block: Hashable {
    let address: IPAddress
    let bits: Int
  }

  private var blocks: [Block] = []
  private var includesLocal = false
  /// The entries as written.
  package private(set) var texts: [String] = []

  package static let expectation = "use an address, a block such as 10.0.0.0/8, or unix for Unix-domain sockets"

  package init() {}

  /// Adds an address, a block or `unix`. Returns false if `text` is something else.
  package mutating func add(_ text: String) -> Bool {
    if text == "unix" {
      includesLocal = true
    } else {
      let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
      guard !text.contains("%"), let address = IPAddress(String(parts[0])) else { return false }
      let width = address.isIPv6 ? 128 : 32
      guard let bits = parts.count == 1 ? width : Int(parts[1]), (0...width).contains(bits) else { return false }
      // Mapped addresses of peers are compared as IPv4 addresses, so a block of mapped addresses is stored as the IPv4
      // block that it contains.
      let isMapped = address.isIPv6 && !address.unmapped.isIPv6
      guard !isMapped || bits >= 96 else { return false }
      blocks.append(Block(address: address.unmapped, bits: isMapped ? bits - 96 : bits))
    }
    texts.append(text)
    return true
  }

  package var isEmpty: Bool { texts.isEmpty }

  /// `address` is nil for the peer of a Unix-domain socket.
  package func contains(_ address: IPAddress?) -> Bool {
    guard let address = address?.unmapped else { return includesLocal }
    return blocks.contains { address.isEqual(to: $0.address, bits: $0.bits) }
  }

  /// Returns the client of a request that came from a trusted proxy at `peer`.
  ///
  /// Each proxy appends the address of its own peer to `X-Forwarded-For`. So the client is the rightmost address that
  /// is not a trusted proxy. The addresses to the left of it may have been invented by the client. An element that is
  /// not an address ends the search. In that case, the client is the proxy that has appended this element.
  package func client(behind peer: IPAddress?, _ fields: borrowing HTTPFields) -> IPAddress? {
    var client = peer
    // Whether the next address replaces `client` even if it is a trusted proxy.
    var isOpen = true
    fields.forEachElement(of: .xForwardedFor) { element in
      guard let address = Self.address(element)?.unmapped else {
        client = peer
        isOpen = true
        return
      }
      if isOpen || !contains(address) { client = address }
      isOpen = false
    }
    return client
  }

  /// Whether the client has used HTTPS, according to the last entry of `X-Forwarded-Proto`, which the trusted proxy
  /// itself has added. nil if there is no such entry.
  package func isSecure(_ fields: borrowing HTTPFields) -> Bool? {
    var result: Bool?
    for index in 0..<fields.count where fields.name(at: index).equalsIgnoringCase("x-forwarded-proto") {
      var elements = HTTPListElements(fields.value(at: index), quoting: .none)
      while let element = elements.next() { result = element.equalsIgnoringCase("https") }
    }
    return result
  }

  /// An address, which may have a port: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]:4711`.
  private static func address(_ text: Span<UInt8>) -> IPAddress? {
    if text.starts(with: "[") {
      guard let end = text.firstIndex(of: UInt8(ascii: "]")) else { return nil }
      let rest = text.extracting(end + 1..<text.count)
      guard rest.isEmpty || isPort(rest) else { return nil }
      return IPAddress(ipv6: text.extracting(1..<end))
    }
    if let address = IPAddress(ipv4: text) ?? IPAddress(ipv6: text) { return address }
    guard let colon = text.firstIndex(of: UInt8(ascii: ":")), isPort(text.extracting(colon..<text.count)) else {
      return nil
    }
    return IPAddress(ipv4: text.extracting(first: colon))
  }

  private static func isPort(_ text: Span<UInt8>) -> Bool {
    guard (2...6).contains(text.count), text[0] == UInt8(ascii: ":") else { return false }
    return text.extracting(1..<text.count).decimalValue().map { $0 <= 65_535 } ?? false
  }
}
