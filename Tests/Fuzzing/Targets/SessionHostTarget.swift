import ByteStreams
import Glibc
import Profiles

/// A host that a client chooses for its session, compared with the result of the C library.
///
/// Input: the host. An address of this machine must be refused in every notation.
enum SessionHostTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let bytes = [UInt8](copying: input)
    // The C library ends a host at a space, which no URL contains.
    guard !bytes.isEmpty, bytes.allSatisfy({ (0x21...0x7E).contains($0) }) else { return }
    let host = String(decoding: bytes, as: UTF8.self)
    let address = NumericHost.address(of: host)
    let reason = ConnectionRules().refusal(ofHost: host, isProxied: false)

    var number = in_addr()
    // A final dot marks a fully qualified name.
    let hasDot = host.hasSuffix(".")
    if !hasDot, unsafe inet_aton(host, &number) == 1 {
      let expected = UInt32(bigEndian: number.s_addr)
      try require(
        address == .ipv4(expected), "\(host) is read as \(String(describing: address)), by the C library as \(expected)"
      )
    } else if !hasDot, case .ipv4? = address {
      throw Finding("\(host) is read as \(String(describing: address)), by the C library as a name")
    }
    if let address {
      let kind = AddressKind(of: address)
      try require((kind == nil) == (reason == nil), "\(host), \(String(describing: kind)), is \(reason ?? "accepted")")
      // The same address, embedded in an IPv6 address.
      if case .ipv4(let inner) = address {
        let inside = UInt64(inner)
        for (high, low) in [
          (0, 0xFFFF_0000_0000 | inside), (0x0064_FF9B_0000_0000, inside), (0x2002 << 48 | inside << 16, 1),
        ] {
          let other = AddressKind(of: .ipv6(high: UInt64(high), low: UInt64(low), scope: 0))
          try require(
            other == kind, "\(host) is \(String(describing: kind)), and inside of IPv6 \(String(describing: other))")
        }
      }
    }
    var rules = ConnectionRules()
    if let patterns = try? HostPatterns([host]) {
      try require(patterns.contains(host) || host.contains("*"), "the pattern \(host) does not contain itself")
      rules.hosts = patterns
      let other = "x" + host.replacing("*", with: "y")
      let isOther = !patterns.contains(other) || host == "*" || host.hasPrefix("*.")
      try require(isOther, "the pattern \(host) contains \(other)")
    }
  }
}
