import Configuration
import Host

extension GatewaySettings.Listeners {
  private static var roles: [(name: String, addresses: WritableKeyPath<Self, [SocketAddress]>)] {
    [("http", \.http), ("https", \.https), ("management", \.management), ("peers", \.peers)]
  }

  /// Replaces configured addresses by inherited sockets. Sockets named `http`, `https`, `management` or `peers` replace
  /// all addresses of that setting. Any other socket must be bound to one of the configured addresses. Returns the
  /// sockets that are bound to another address.
  @discardableResult
  package mutating func use(_ inherited: InheritedSockets) -> [InheritedSockets.Socket] {
    for role in Self.roles {
      var seen: Set<SocketAddress> = []
      let addresses = inherited.sockets.filter { $0.name == role.name }.map(\.address)
      if !addresses.isEmpty { self[keyPath: role.addresses] = addresses.filter { seen.insert($0).inserted } }
    }
    let used = Set(Self.roles.flatMap { self[keyPath: $0.addresses] })
    return inherited.sockets.filter { !used.contains($0.address) }
  }

  /// Returns a problem for each inherited socket whose address is in two settings, since both settings would use the
  /// same descriptor. The loader compares only configured addresses.
  func duplicates(of inherited: InheritedSockets) -> [SettingProblem] {
    let addresses = Set(inherited.sockets.map(\.address))
    var seen: Set<SocketAddress> = []
    return Self.roles.flatMap { role in
      self[keyPath: role.addresses].filter { !seen.insert($0).inserted && addresses.contains($0) }.map {
        SettingProblem("listeners.\(role.name)", .none, "another listener uses this address")
          .of("the inherited socket \($0)")
      }
    }
  }

  /// Returns `problem`. If it concerns the address of an inherited socket, the name of this socket is added.
  func naming(_ inherited: InheritedSockets, in problem: SettingProblem) -> SettingProblem {
    guard case .item(let index) = problem.subject,
      let role = Self.roles.first(where: { "listeners.\($0.name)" == problem.key }),
      self[keyPath: role.addresses].indices.contains(index)
    else { return problem }
    let address = self[keyPath: role.addresses][index]
    return inherited.sockets.contains { $0.address == address }
      ? problem.of("the inherited socket \(address)") : problem
  }
}
