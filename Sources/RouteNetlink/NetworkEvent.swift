/// One thing that the kernel tells of this machine's network.
package enum NetworkEvent: Hashable, Sendable {
  /// A link, by its index, other than the loopback.
  case link(UInt32, LinkState)
  /// An address that can be used from now on, or no longer.
  case address(NetworkAddress, isPresent: Bool)
  /// A unicast route was added, changed or removed.
  case route(isPresent: Bool)
  /// Events were lost: anything may have changed.
  case overrun

  package enum LinkState: Hashable, Sendable {
    /// Set up by the operator, and with a carrier.
    case up
    case down
    case removed
  }
}

/// An IP address of this machine.
package enum NetworkAddress: Hashable, Sendable {
  /// In host order.
  case ipv4(UInt32)
  /// Two halves, high first. `scope`: the index of the link for a link-local address (RFC 4007 §6), else 0.
  case ipv6(high: UInt64, low: UInt64, scope: UInt32)
}
