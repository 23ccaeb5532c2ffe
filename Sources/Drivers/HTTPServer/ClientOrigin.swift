import ByteStreams
import Host

/// The part of a client's address that one party cannot vary freely: an IPv4 address, or the /64 of an IPv6 address. A
/// single host is assigned a /64 or more (RFC 6177 §2). If limits applied to whole addresses, one host could have 2^64
/// times as many connections.
package enum ClientOrigin: Hashable, Sendable {
  case ipv4(UInt32)
  case ipv6(prefix: UInt64)
  /// A Unix-domain socket. The permissions of its file decide who may connect, so no limit per client applies.
  case local

  /// `address` is nil for a Unix-domain socket.
  package init(_ address: IPAddress?) {
    // An IPv4 client may appear on an IPv6 socket with a mapped address.
    switch address?.unmapped {
    case .ipv4(let address)?: self = .ipv4(address)
    case .ipv6(let high, _, _)?: self = .ipv6(prefix: high)
    case nil: self = .local
    }
  }

  package init(_ address: SocketAddress) { self.init(address.ip) }
}
