import ByteStreams

/// The changes since the last report, once the network has settled.
package struct NetworkChange: Equatable, Sendable {
  /// A link came up, or an address or route was added: upstreams that were unreachable may be reachable now.
  package var hasGained = false
  /// Addresses that this machine had and no longer has.
  package var vanished: Set<IPAddress> = []

  package init() {}
}

/// Merges a burst of events into one change. When a link comes up, its addresses and routes follow within a few tenths
/// of a second. A connection attempt at the first of these events would fail.
package struct NetworkChangeDebouncer: Sendable {
  /// Maximum addresses remembered per burst. More addresses disappear only when a whole host is renumbered. In this
  /// case, liveness checks detect the dead connections.
  static let vanishedLimit = 1024
  /// Maximum links whose state is remembered. A host of many containers has thousands of links. For a link beyond this
  /// limit, every event counts as a change.
  static let linkLimit = 4096
  /// The changes of a network that never settles are reported after this many times `quiet`.
  static let maximumQuietPeriods: Int64 = 4

  private let quiet: TimeSpan
  private var change = NetworkChange()
  private var first = MonotonicTime.distantFuture
  private var last = MonotonicTime.distantFuture
  /// The last state of each link. The kernel also reports a link without a relevant change, as on every wireless scan.
  private var isUp: [UInt32: Bool] = [:]

  /// - Parameter quiet: how long no event may occur before a change is reported.
  package init(quiet: TimeSpan) { self.quiet = quiet }

  /// When `take` returns a change; `.distantFuture` if nothing has happened.
  package var deadline: MonotonicTime { min(last + quiet, first + quiet * Self.maximumQuietPeriods) }

  package mutating func add(_ event: NetworkEvent, now: MonotonicTime) {
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

  /// Returns the change once it is due; nil before that.
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
