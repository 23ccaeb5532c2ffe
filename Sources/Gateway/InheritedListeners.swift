import Configuration
import Reactor

extension GatewaySettings.Listeners {
  /// Lets inherited sockets take the place of configured addresses. Those named `http`, `https` or `management` replace all addresses of that
  /// setting. Any other must be bound to one of the addresses. Returns those that are not.
  @discardableResult
  package mutating func use(_ inherited: InheritedSockets) -> [InheritedSockets.Socket] {
    let roles: [(name: String, addresses: WritableKeyPath<Self, [SocketAddress]>)] = [
      ("http", \.http), ("https", \.https), ("management", \.management),
    ]
    for role in roles {
      var seen: Set<SocketAddress> = []
      let addresses = inherited.sockets.filter { $0.name == role.name }.map(\.address)
      if !addresses.isEmpty { self[keyPath: role.addresses] = addresses.filter { seen.insert($0).inserted } }
    }
    let used = Set(roles.flatMap { self[keyPath: $0.addresses] })
    return inherited.sockets.filter { !used.contains($0.address) }
  }
}
