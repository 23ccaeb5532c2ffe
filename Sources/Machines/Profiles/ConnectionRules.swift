import ByteStreams

/// The destinations to which the sessions of clients may connect. The rules apply to every connection: to the host of
/// its URL before the name is resolved, and to each address afterwards. The gateway connects only to checked addresses,
/// so a name server cannot substitute another address.
package struct ConnectionRules: Hashable, Sendable {
  /// The allowed hosts. If there are none, any host is allowed, except through a proxy.
  package var hosts = HostPatterns()
  /// Blocks of non-public addresses that are allowed.
  package var allowed: [AddressBlock] = []
  /// The owner of these rules, for messages.
  package var owner = "the profile"
  /// The setting that allows an address, for messages; nil for `addresses.allow` of the owner.
  package var allowance: String?

  package init() {}

  /// Returns why a connection to `host` is refused before its name is resolved; nil if it is allowed.
  ///
  /// - Parameter isProxied: whether a proxy connects, and resolves the name.
  package func refusal(ofHost host: String, isProxied: Bool) -> String? {
    if !hosts.isEmpty, !hosts.contains(host) {
      return "the host '\(host)' is not among 'hosts' of \(owner)"
    }
    if isProxied, hosts.isEmpty {
      return "a proxy would resolve the host '\(host)', which needs 'hosts' of \(owner)"
    }
    if let address = NumericHost.address(of: host) { return refusal(of: address) }
    guard NumericHost.isLocalName(host) else { return nil }
    return allowed.contains { $0.contains(.ipv4(0x7F00_0001)) || $0.contains(.ipv6(high: 0, low: 1, scope: 0)) }
      ? nil : "the host '\(host)' is this machine"
  }

  /// Returns why a connection to `address` is refused; nil if it is allowed.
  ///
  /// - Parameter isOwn: returns whether the address belongs to this machine, or throws if that is unknown. Called only
  ///   if the other rules allow the address.
  package func refusal(of address: IPAddress, isOwn: () throws -> Bool = { false }) -> String? {
    if allowed.contains(where: { $0.contains(address) || $0.contains(address.unmapped) }) { return nil }
    if let kind = AddressKind(of: address) {
      return
        "the address is \(kind.rawValue), which is refused unless \(allowance ?? "'addresses.allow' of \(owner)") has it"
    }
    do {
      return try isOwn()
        ? "the address belongs to this machine, which is refused unless \(allowance ?? "'addresses.allow' of \(owner)") has it"
        : nil
    } catch {
      return "whether the address belongs to this machine cannot be determined: \(error)"
    }
  }
}

/// The kinds of addresses that are not public (RFC 6890 and its registries).
package enum AddressKind: String, CaseIterable, Sendable {
  case unspecified
  case loopback
  case `private`
  case linkLocal = "link-local"
  case shared = "in the range of carrier-grade NAT (100.64.0.0/10)"
  case metadata = "the address of a cloud's metadata service"
  case multicast
  case broadcast
  case documentation = "for documentation"
  case benchmarking = "for benchmarks"
  case reserved

  /// Returns nil for a public address. An IPv6 address that contains an IPv4 address is judged by the IPv4 address.
  package init?(of address: IPAddress) {
    switch address {
    case .ipv4(let address): self.init(ofIPv4: address)
    case .ipv6(let high, let low, _): self.init(ofIPv6: high, low)
    }
  }

  private init?(ofIPv4 address: UInt32) {
    for (network, bits, kind) in Self.ipv4 where (address ^ network) >> UInt32(32 - bits) == 0 {
      self = kind
      return
    }
    return nil
  }

  private static let ipv4: [(network: UInt32, bits: Int, kind: AddressKind)] = [
    (0x0000_0000, 8, .unspecified), (0x7F00_0000, 8, .loopback),
    (0x0A00_0000, 8, .private), (0xAC10_0000, 12, .private), (0xC0A8_0000, 16, .private),
    // 169.254.169.254 of most clouds, 100.100.100.200 of Alibaba, 192.0.0.192 of Oracle, 168.63.129.16 of Azure.
    (0xA9FE_A9FE, 32, .metadata), (0x6464_64C8, 32, .metadata), (0xC000_00C0, 32, .metadata),
    (0xA83F_8110, 32, .metadata),
    (0xA9FE_0000, 16, .linkLocal), (0x6440_0000, 10, .shared),
    (0xC000_0000, 24, .reserved), (0xC058_6300, 24, .reserved),
    (0xC000_0200, 24, .documentation), (0xC633_6400, 24, .documentation), (0xCB00_7100, 24, .documentation),
    (0xC612_0000, 15, .benchmarking), (0xE000_0000, 4, .multicast), (0xFFFF_FFFF, 32, .broadcast),
    (0xF000_0000, 4, .reserved),
  ]

  private init?(ofIPv6 high: UInt64, _ low: UInt64) {
    if high == 0, low >> 32 == 0 {
      // ::, ::1, and the deprecated addresses that contain an IPv4 address (RFC 4291 §2.5.5.1).
      switch low {
      case 0: self = .unspecified
      case 1: self = .loopback
      default: self = Self(ofIPv4: UInt32(truncatingIfNeeded: low)) ?? .reserved
      }
      return
    }
    // An address behind a translator or in a tunnel reaches the IPv4 address inside it.
    if let embedded = Self.embedded(high, low) {
      guard let kind = Self(ofIPv4: embedded) else { return nil }
      self = kind
      return
    }
    // ISATAP (RFC 5214) is an interface identifier below any prefix, which may be private. So its IPv4 address can only
    // cause the address to be refused. It cannot make the address public.
    if low >> 32 == 0x0000_5EFE || low >> 32 == 0x0200_5EFE, let kind = Self(ofIPv4: UInt32(truncatingIfNeeded: low)) {
      self = kind
      return
    }
    switch high >> 48 {
    // fd00:ec2::254 of Amazon, fd20:ce::254 of Google.
    case 0xFD00 where high == 0xFD00_0EC2_0000_0000 && low == 0x254: self = .metadata
    case 0xFD20 where high == 0xFD20_00CE_0000_0000 && low == 0x254: self = .metadata
    case 0xFC00...0xFDFF: self = .private
    case 0xFE80...0xFEBF: self = .linkLocal
    // Site-local addresses (RFC 3879) were private addresses.
    case 0xFEC0...0xFEFF: self = .private
    case 0xFF00...0xFFFF: self = .multicast
    case 0x2001 where high >> 32 == 0x2001_0DB8: self = .documentation
    case 0x3FFF where high >> 44 == 0x3FFF0: self = .documentation
    case 0x2001 where high >> 16 == 0x2001_0002_0000: self = .benchmarking
    // 2001::/23 is for protocols. The tunnels in this block were judged above.
    case 0x2001 where high >> 41 == 0x2001_0000 >> 9: self = .reserved
    // All other addresses outside of 2000::/3 are unassigned.
    default:
      if high >> 61 == 1 { return nil }
      self = .reserved
    }
  }

  /// The IPv4 address that packets to this address reach because of its prefix; nil if there is none.
  private static func embedded(_ high: UInt64, _ low: UInt64) -> UInt32? {
    // IPv4-mapped (RFC 4291), and IPv4-translated (RFC 2765).
    if high == 0, low >> 32 == 0xFFFF || low >> 32 == 0xFFFF_0000 { return UInt32(truncatingIfNeeded: low) }
    // NAT64 (RFC 6052), and its prefix for local use (RFC 8215). That prefix has several forms with the address at
    // different places; only the form with the address at the end is read.
    if high == 0x0064_FF9B_0000_0000, low >> 32 == 0 { return UInt32(truncatingIfNeeded: low) }
    // 6to4 (RFC 3056).
    if high >> 48 == 0x2002 { return UInt32(truncatingIfNeeded: high >> 16) }
    // Teredo (RFC 4380): the client's address is inverted.
    if high >> 32 == 0x2001_0000 { return ~UInt32(truncatingIfNeeded: low) }
    return nil
  }
}
