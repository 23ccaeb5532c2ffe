import Replication

/// Which gateways hold the sessions that this one does not, and what of that was reported.
struct SessionPlaces {
  struct Change {
    /// nil: no gateway that lives.
    let holder: SessionHolder?
  }

  /// As the records of the sessions say.
  private var tokens: [String: HolderToken] = [:]
  private var reported: [String: SessionHolder] = [:]
  /// Where the gateways are reached whose entries change.
  private var addresses: [GatewayID: String] = [:]

  /// The record of a session was read.
  mutating func observed(_ token: HolderToken?, of name: String) { tokens[name] = token }

  /// This gateway holds the session, or does not ask for it any more.
  mutating func forget(_ name: String) {
    tokens[name] = nil
    reported[name] = nil
  }

  /// Returns the sessions whose holders may have another address now, or none.
  mutating func found(_ addresses: [GatewayID: String]) -> [String] {
    guard addresses != self.addresses else { return [] }
    self.addresses = addresses
    return Array(tokens.keys)
  }

  /// Returns what was not reported yet, as reported from now on.
  mutating func change(of name: String, own: GatewayID) -> Change? {
    let holder = tokens[name].flatMap { token in
      token.gateway == own
        ? nil
        : addresses[token.gateway].map { SessionHolder(gateway: token.gateway, address: $0, term: token.term) }
    }
    guard reported[name] != holder else { return nil }
    reported[name] = holder
    return Change(holder: holder)
  }
}
