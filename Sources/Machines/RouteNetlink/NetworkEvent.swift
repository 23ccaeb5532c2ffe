import ByteStreams

/// A change of this machine's network, as reported by the kernel.
package enum NetworkEvent: Hashable, Sendable {
  /// A link other than the loopback, by its index.
  case link(UInt32, LinkState)
  /// An address has become usable, or has been removed.
  case address(IPAddress, isPresent: Bool)
  /// A unicast route was added, changed or removed.
  case route(isPresent: Bool)
  /// Events were lost: anything may have changed.
  case overrun

  package enum LinkState: Hashable, Sendable {
    /// Enabled by the operator, and with a carrier.
    case up
    case down
    case removed
  }
}
