import ByteStreams

/// The header of the PROXY protocol, version 1 or 2. A proxy sends it first on a connection, to name the client.
///
/// https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt. The header may be used only if it comes from a trusted
/// proxy.
package struct ProxyHeader: Equatable, Sendable {
  /// The client's address; nil if the connection is the proxy's own, such as a health check, or if the header has no IP
  /// address.
  package let address: IPAddress?
  /// The client's port.
  package let port: UInt16
  /// Length of the header in bytes.
  package let length: Int

  /// Maximum length of version 1, with its line end (§2.1).
  private static var longestLine: Int { 107 }
  /// Maximum length of the extensions after the addresses in version 2, in bytes. HAProxy sends a few hundred at most.
  private static var extensionBytes: Int { 4096 }
  /// Maximum length of any header, in bytes.
  package static var maximumLength: Int { 16 + 216 + extensionBytes }

  init(_ address: IPAddress?, _ port: UInt16, length: Int) {
    self.address = address?.unmapped
    self.port = port
    self.length = length
  }

  /// Reads the header at the start of `bytes`; nil if it is not complete.
  package static func read(_ bytes: Span<UInt8>) throws(ProxyHeaderError) -> ProxyHeader? {
    if bytes.beginsLike("PROXY ") { return try line(bytes) }
    let signature: StaticString = "\r\n\r\n\0\r\nQUIT\n"
    guard bytes.beginsLike(signature) else { throw .noHeader }
    return bytes.count < 16 ? nil : try binary(bytes)
  }

  // MARK: Version 1

  private static func line(_ bytes: Span<UInt8>) throws(ProxyHeaderError) -> ProxyHeader? {
    guard let end = bytes.firstIndex(of: UInt8(ascii: "\r")), end < longestLine - 1 else {
      if bytes.count >= longestLine - 1 { throw .malformed("its line has more than 107 bytes") }
      return nil
    }
    guard end + 1 < bytes.count else { return nil }
    guard bytes[end + 1] == UInt8(ascii: "\n") else { throw .malformed("CR is not followed by LF") }
    let length = end + 2
    var words = Words(bytes.extracting(6..<end))
    let family = words.next()
    if family.equals("UNKNOWN") { return ProxyHeader(nil, 0, length: length) }
    guard family.equals("TCP4") || family.equals("TCP6") else {
      throw .malformed("its protocol is not TCP4, TCP6 or UNKNOWN")
    }
    let isIPv6 = family.equals("TCP6")
    guard let source = address(words.next(), isIPv6), address(words.next(), isIPv6) != nil else {
      throw .malformed("an address is not valid")
    }
    guard let port = port(words.next()), self.port(words.next()) != nil, words.isAtEnd else {
      throw .malformed("a port is not valid")
    }
    return ProxyHeader(source, port, length: length)
  }

  private static func address(_ text: Span<UInt8>, _ isIPv6: Bool) -> IPAddress? {
    isIPv6 ? IPAddress(ipv6: text) : IPAddress(ipv4: text)
  }

  private static func port(_ text: Span<UInt8>) -> UInt16? {
    guard (1...5).contains(text.count), text.count == 1 || text[0] != UInt8(ascii: "0"), let value = text.decimalValue()
    else { return nil }
    return UInt16(exactly: value)
  }

  /// Words that are separated by exactly one space.
  private struct Words: ~Escapable {
    private let line: Span<UInt8>
    private var position = 0

    @_lifetime(copy line)
    init(_ line: Span<UInt8>) { self.line = line }

    var isAtEnd: Bool { position > line.count }

    @_lifetime(copy self)
    mutating func next() -> Span<UInt8> {
      guard position <= line.count else { return line.extracting(0..<0) }
      let start = position
      let end = line.firstIndex(of: UInt8(ascii: " "), from: start) ?? line.count
      position = end + 1
      return line.extracting(start..<end)
    }
  }

  // MARK: Version 2

  private static func binary(_ bytes: Span<UInt8>) throws(ProxyHeaderError) -> ProxyHeader? {
    guard bytes[12] == 0x20 || bytes[12] == 0x21 else { throw .malformed("its version or command is not known") }
    let count = Int(bytes[14]) << 8 | Int(bytes[15])
    guard count <= 216 + extensionBytes else { throw .malformed("it has more than \(maximumLength) bytes") }
    let length = 16 + count
    guard bytes.count >= length else { return nil }
    // For the command LOCAL, the rest of the header must be skipped (§2.2).
    if bytes[12] == 0x20 { return ProxyHeader(nil, 0, length: length) }
    let addressBytes: Int
    switch bytes[13] {
    case 0x00: return ProxyHeader(nil, 0, length: length)
    case 0x11: addressBytes = 12
    case 0x21: addressBytes = 36
    case 0x31: addressBytes = 216
    default: throw .malformed("its address family or transport is not known")
    }
    guard count >= addressBytes else { throw .malformed("its addresses are cut off") }
    try checkExtensions(bytes.extracting(16 + addressBytes..<length))
    switch addressBytes {
    case 12:
      return ProxyHeader(.ipv4(UInt32(truncatingIfNeeded: number(bytes, 16, 4))), port(bytes, 24), length: length)
    case 36:
      let address = IPAddress.ipv6(high: number(bytes, 16, 8), low: number(bytes, 24, 8), scope: 0)
      return ProxyHeader(address, port(bytes, 48), length: length)
    default: return ProxyHeader(nil, 0, length: length)
    }
  }

  private static func number(_ bytes: Span<UInt8>, _ start: Int, _ count: Int) -> UInt64 {
    var value: UInt64 = 0
    for index in start..<start + count { value = value << 8 | UInt64(bytes[index]) }
    return value
  }

  private static func port(_ bytes: Span<UInt8>, _ start: Int) -> UInt16 {
    UInt16(truncatingIfNeeded: number(bytes, start, 2))
  }

  /// Verifies that the extensions are complete: each is a type, two bytes of length and a value. Their values are not
  /// used.
  private static func checkExtensions(_ bytes: Span<UInt8>) throws(ProxyHeaderError) {
    var position = 0
    while position < bytes.count {
      guard position + 3 <= bytes.count else { throw .malformed("an extension is cut off") }
      position += 3 + Int(number(bytes, position + 1, 2))
      guard position <= bytes.count else { throw .malformed("an extension is cut off") }
    }
  }
}

/// Why a connection does not begin with a valid header of the PROXY protocol.
package enum ProxyHeaderError: Error, Equatable, Sendable, CustomStringConvertible {
  case noHeader
  case malformed(String)

  package var description: String {
    switch self {
    case .noHeader: "the connection does not begin with a header of the PROXY protocol"
    case .malformed(let reason): "the header of the PROXY protocol is malformed: \(reason)"
    }
  }
}

extension Span where Element == UInt8 {
  /// Whether the shorter of these bytes and `text` is a prefix of the other.
  fileprivate func beginsLike(_ text: StaticString) -> Bool {
    for index in 0..<Swift.min(count, text.utf8CodeUnitCount) {
      if unsafe text.utf8Start[index] != self[index] { return false }
    }
    return true
  }
}
