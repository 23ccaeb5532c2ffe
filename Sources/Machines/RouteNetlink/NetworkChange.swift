import ByteStreams

/// What has changed since the last change, once the network has come to rest.
package struct NetworkChange: Equatable, Sendable {
  /// A link came up, or an address or route was added: what could not be reached before may be now.
  package var hasGained = false
  /// Addresses that this machine had, and has no more.
  package var vanished: Set<IPAddress> = []

  package init() {}
}

/// Makes one change of a burst of events: a link that comes up brings its addresses and routes over some tenths of a second,
/// and who dialled at the first of them would fail.
package struct NetworkChangeDebouncer: Sendable {
  /// Addresses of one burst that are remembered. More than this go when a whole host is renumbered; their connections are
  /// then found dead by their heartbeats.
  static let vanishedLimit = 1024
  /// Links whose state is remembered. Hosts of many containers have thousands; of a link beyond it every event counts.
  static let linkLimit = 4096
  /// A network that never comes to rest is reported all the same, after so many quiet times.
  static let restlessFactor: Int64 = 4

  private let quiet: TimeSpan
  private var change = NetworkChange()
  private var first = MonotonicTime.distantFuture
  private var last = MonotonicTime.distantFuture
  /// The kernel tells of a link also when nothing changed that matters here, as on every scan of a wireless one.
  private var isUp: [UInt32: Bool] = [:]

  /// `quiet`: how long nothing may have happened before what did is reported.
  package init(quiet: TimeSpan) { self.quiet = quiet }

  /// When `take` will have something; `.distantFuture` while nothing has happened.
  package var deadline: MonotonicTime { min(last + quiet, first + quiet * Self.restlessFactor) }

  package mutating func note(_ event: NetworkEvent, now: MonotonicTime) {
    switch event {
    case .link(let index, let state):
      let before = isUp[index]
      remember(index, state)
      guard before != (state == .up) else { return }
      if state == .up { change.hasGained = true }
    case .address(let address, isPresent: true):
      change.vanished.remove(address)
      change.hasGained = true
    case .address(let address, isPresent: false):
      if change.vanished.count < Self.vanishedLimit { change.vanished.insert(address) }
    case .route(isPresent: true), .overrun:
      change.hasGained = true
    case .route(isPresent: false):
      break
    }
    if first == .distantFuture { first = now }
    last = now
  }

  /// The change, once it is due; nil before.
  package mutating func take(now: MonotonicTime) -> NetworkChange? {
    guard now >= deadline else { return nil }
    defer {
      change = NetworkChange()
      first = .distantFuture
      last = .distantFuture
    }
    return change
  }

  private mutating func remember(_ index: UInt32, _ state: NetworkEvent.LinkState) {
    switch state {
    case .removed: isUp[index] = nil
    case .up, .down: if isUp[index] != nil || isUp.count < Self.linkLimit { isUp[index] = state == .up }
    }
  }
}
