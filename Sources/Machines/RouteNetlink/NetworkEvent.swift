import ByteStreams

/// One thing that the kernel tells of this machine's network.
package enum NetworkEvent: Hashable, Sendable {
  /// A link, by its index, other than the loopback.
  case link(UInt32, LinkState)
  /// An address that can be used from now on, or no longer.
  case address(IPAddress, isPresent: Bool)
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
