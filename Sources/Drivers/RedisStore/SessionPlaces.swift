import Replication

/// The holders of remote sessions, as read from Redis and as reported to the delegate.
struct SessionPlaces {
  struct Change {
    /// nil if the session has no holder, or its holder is not alive.
    let holder: SessionHolder?
  }

  /// The tokens of the holders, from the records of the sessions.
  private var tokens: [String: HolderToken] = [:]
  private var reported: [String: SessionHolder] = [:]
  /// The addresses of the gateways that are alive.
  private var addresses: [GatewayID: String] = [:]

  /// Called when the record of a session was read.
  mutating func observed(_ token: HolderToken?, of name: String) { tokens[name] = token }

  /// Called when this gateway has become the holder, or the session no longer concerns it.
  mutating func forget(_ name: String) {
    tokens[name] = nil
    reported[name] = nil
  }

  /// Takes the present addresses. Returns the sessions whose holders may have another address now, or none.
  mutating func found(_ addresses: [GatewayID: String]) -> [String] {
    guard addresses != self.addresses else { return [] }
    self.addresses = addresses
    return Array(tokens.keys)
  }

  /// Returns a change that was not reported yet, and marks it as reported.
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
