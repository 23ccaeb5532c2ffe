import ByteStreams
import Host
import Reactor

/// The role of a listener and its reach.
package struct HTTPListener: Sendable {
  /// `peer` is for other gateways, which forward requests of their clients.
  package enum Role: Sendable { case client, management, peer }

  /// From where clients can reach a listener. Each reach includes the clients of the reaches listed before it.
  package enum Reach: UInt8, Sendable, Comparable {
    /// A Unix-domain socket. Browsers cannot connect to it.
    case local
    case loopback
    case network

    package static func < (left: Reach, right: Reach) -> Bool { left.rawValue < right.rawValue }
  }

  package let role: Role
  package let reach: Reach
  /// Whether the listener's clients use HTTPS.
  package let isSecure: Bool

  package init(_ role: Role, reach: Reach, isSecure: Bool = false) {
    self.role = role
    self.reach = reach
    self.isSecure = isSecure
  }
}

extension SocketAddress {
  /// From where clients can reach a listener at this address.
  package var reach: HTTPListener.Reach {
    guard let ip else { return .local }
    return ip.isLoopback ? .loopback : .network
  }
}

/// The listening sockets of one address.
package struct BoundListener: Sendable {
  package let address: SocketAddress
  /// One descriptor per loop. For a Unix-domain socket there is only one, since several sockets cannot use the same
  /// path.
  package let descriptors: [Int32]
  /// The file of a Unix-domain socket that this process has bound.
  package let file: SocketFile?
  /// Whether the process has inherited the socket. An inherited socket outlives the process.
  package let isInherited: Bool

  /// Uses an inherited socket on all loops. Each new connection wakes all idle loops, and the loop that is fastest
  /// accepts it. With EPOLLEXCLUSIVE, the kernel would wake only one loop, but always the same loop if it is idle, so
  /// that most held requests would be on that loop.
  package init(_ inherited: InheritedSockets.Socket, loops: Int) throws(SystemError) {
    address = inherited.address
    descriptors = try InheritedSockets.share(inherited.descriptor, count: max(1, loops))
    file = nil
    isInherited = true
  }

  /// Binds `address` once per loop. Port 0 is replaced by a port that the kernel picks.
  package init(_ address: SocketAddress, loops: Int) throws(SystemError) {
    isInherited = false
    if case .unix(let path) = address {
      descriptors = [try Sockets.listen(on: address, reusesPort: false)]
      file = SocketFile(at: path)
      self.address = address
      return
    }
    try Sockets.checkUnused(address)
    let first = try Sockets.listen(on: address, reusesPort: true)
    self.address = try Sockets.localAddress(of: first)
    var descriptors = [first]
    for _ in 1..<max(1, loops) { descriptors.append(try Sockets.listen(on: self.address, reusesPort: true)) }
    self.descriptors = descriptors
    file = nil
  }
}
