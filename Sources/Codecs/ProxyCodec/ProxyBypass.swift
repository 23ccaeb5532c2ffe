import ByteStreams
import HTTPCodec

/// Which hosts are dialled without the proxy: what `NO_PROXY` is elsewhere.
///
/// There is no standard for it. These are the rules that curl, Go and Python have in common: `*`, a name (which stands for
/// everything below it, too), an address, a block of addresses (CIDR), each but the first with an optional port. Names are
/// compared as they stand in the URL; none is looked up.
package struct ProxyBypass: Hashable, Sendable {
  private enum Pattern: Hashable {
    case everything
    /// Lower case, without dots around it. `itself`: whether the name matches, or only what is below it.
    case name(String, itself: Bool)
    case block(IPAddress, bits: Int)

    static func address(_ address: IPAddress) -> Pattern { .block(address, bits: address.isIPv6 ? 128 : 32) }
  }

  private struct Rule: Hashable {
    let pattern: Pattern
    /// nil: any.
    let port: UInt16?
    /// As it was written.
    let text: String
  }

  private var rules: [Rule] = []

  package init() {}

  /// Each rule as it was written.
  package var texts: [String] { rules.map(\.text) }

  /// Each text holds rules with commas or blanks between them, as the environment's NO_PROXY has them.
  package init(_ texts: [String]) throws(ProxyBypassError) {
    for (index, text) in texts.enumerated() {
      for word in text.split(whereSeparator: { $0 == "," || $0 == " " }) {
        guard let rule = Self.rule(String(word)) else { throw ProxyBypassError(index: index) }
        rules.append(rule)
      }
    }
  }

  /// Whether `host` (a name or an address, without brackets) is dialled without the proxy.
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
        // An IPv4-mapped address leads to the IPv4 address in it, so the rules for that one count, too.
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
    // An address may stand without brackets when no port follows.
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

  /// Lower case, and without the final dot that says 'from the root'.
  private static func normalized(_ name: String) -> String {
    let name = name.lowercased()
    return name.hasSuffix(".") ? String(name.dropLast()) : name
  }
}

/// A rule that cannot be read.
package struct ProxyBypassError: Error, Equatable, Sendable, CustomStringConvertible {
  /// Which of the texts has it.
  package let index: Int

  package static let expectation =
    "it takes '*', a name such as example.org or .example.org, an address, or a block such as 10.0.0.0/8; a port may follow a "
    + "name or an address"

  package var description: String { "text \(index) is no rule: \(Self.expectation)" }
}
