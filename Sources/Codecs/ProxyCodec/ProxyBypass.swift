import ByteStreams
import HTTPCodec

/// The hosts to which the gateway connects without the proxy, as in `NO_PROXY`.
///
/// There is no standard for these rules. This type accepts the rules that curl, Go and Python have in common: `*`, a
/// name (which includes its subdomains), an address, or a block of addresses (CIDR). A name or an address may have a
/// port. Names are compared as written in the URL and never resolved.
package struct ProxyBypass: Hashable, Sendable {
  private enum Pattern: Hashable {
    case everything
    /// Lower case, without leading and trailing dots. If `itself` is false, only subdomains match.
    case name(String, itself: Bool)
    case block(IPAddress, bits: Int)

    static func address(_ address: IPAddress) -> Pattern { .block(address, bits: address.isIPv6 ? 128 : 32) }
  }

  private struct Rule: Hashable {
    let pattern: Pattern
    /// The port; nil matches any port.
    let port: UInt16?
    /// The rule as written.
    let text: String
  }

  private var rules: [Rule] = []

  package init() {}

  /// The rules as written.
  package var texts: [String] { rules.map(\.text) }

  /// Parses rules. Each text may have several rules, separated by commas or spaces as in the environment variable
  /// NO_PROXY.
  package init(_ texts: [String]) throws(ProxyBypassError) {
    for (index, text) in texts.enumerated() {
      for word in text.split(whereSeparator: { $0 == "," || $0 == " " }) {
        guard let rule = Self.rule(String(word)) else { throw ProxyBypassError(index: index) }
        rules.append(rule)
      }
    }
  }

  /// Whether connections to `host` (a name or an address, without brackets) bypass the proxy.
  package func covers(host: String, port: UInt16) -> Bool {
    let address = IPAddress(host)
    let name = Self.normalized(host)
    return rules.contains { rule in
      guard rule.port == nil || rule.port == port else { return false }
      switch rule.pattern {
      case .everything: return true
      case .name(let suffix, let itself):
        return address == nil && (itself && name == suffix || name.hasSuffix("." + suffix))
      case .block(let block, let bits):
        guard let address else { return false }
        // An IPv4-mapped address reaches the embedded IPv4 address, so rules for the embedded address apply, too.
        return address.isEqual(to: block, bits: bits) || address.unmapped.isEqual(to: block, bits: bits)
      }
    }
  }

  // MARK: Reading

  private static func rule(_ text: String) -> Rule? {
    pattern(text).map { Rule(pattern: $0.pattern, port: $0.port, text: text) }
  }

  private static func pattern(_ text: String) -> (pattern: Pattern, port: UInt16?)? {
    if text == "*" { return (.everything, nil) }
    if let slash = text.firstIndex(of: "/") {
      guard let block = IPAddress(String(text[..<slash])), let bits = Int(text[text.index(after: slash)...]),
        (0...(block.isIPv6 ? 128 : 32)).contains(bits)
      else { return nil }
      return (.block(block, bits: bits), nil)
    }
    // An address without brackets is allowed if no port follows.
    if let address = IPAddress(text) { return (.address(address), nil) }
    guard let authority = try? URLAuthority(text[...]), authority.userinfo == nil else { return nil }
    if let address = IPAddress(authority.host) { return (.address(address), authority.port) }
    var name = authority.host
    if name.hasPrefix("*.") { name.removeFirst() }
    let itself = !name.hasPrefix(".")
    name = normalized(itself ? name : String(name.dropFirst()))
    return isName(name) ? (.name(name, itself: itself), authority.port) : nil
  }

  private static func isName(_ name: String) -> Bool {
    guard !name.isEmpty, !name.hasPrefix(".") else { return false }
    return name.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"): true
      case UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."): true
      default: false
      }
    }
  }

  /// `name` in lower case, without the final dot of a fully qualified name.
  private static func normalized(_ name: String) -> String {
    let name = name.lowercased()
    return name.hasSuffix(".") ? String(name.dropLast()) : name
  }
}

/// Reports a rule that cannot be parsed.
package struct ProxyBypassError: Error, Equatable, Sendable, CustomStringConvertible {
  /// The index of the text that contains the rule.
  package let index: Int

  package static let expectation =
    "use '*', a name such as example.org or .example.org, an address, or a block such as 10.0.0.0/8; a port may follow a "
    + "name or an address"

  package var description: String { "text \(index) is not a rule: \(Self.expectation)" }
}
