import ByteStreams
import Dialing
import Host
import Reactor
import Synchronization
import Threading
import Upstream

/// Which gateway holds a session: has its upstream connection, and executes its requests.
package enum SessionPlace: Equatable, Sendable {
  case here
  /// The gateway that others reach at this address.
  case at(SocketAddress)
  /// No gateway at present.
  case nowhere
}

/// Who holds a session that several gateways share, for the status output.
package struct SessionHolding: Hashable, Sendable {
  /// The number of the term. It increases with each holder.
  package let term: UInt64
  /// Of another gateway; nil: this one.
  package let peer: Peer?

  package struct Peer: Hashable, Sendable {
    /// The id of the gateway.
    package let gateway: String
    package let address: String

    package init(gateway: String, address: String) {
      self.gateway = gateway
      self.address = address
    }
  }

  package init(term: UInt64, peer: Peer? = nil) {
    self.term = term
    self.peer = peer
  }
}

/// Where a session is. Its owner is who decides which sessions this gateway holds; without other gateways, every session stays here.
///
/// A gateway that holds a session does so until its deadline. From then on the session is nowhere, also before the owner has noticed it.
///
/// Can be read from any thread. `isHere` takes no lock, and does not read the deadline: see `Session.isHere`.
package final class SessionPlacement: Sendable {
  private let here = Atomic(true)
  /// Whether several gateways share the session.
  package let isShared: Bool

  private struct Current {
    var place = SessionPlace.here
    var holding: SessionHolding?
    /// Of this gateway as the holder; nil: for ever.
    var permission: WritePermission?
    var since = ProcessInformation.monotonicTime()
    var isClosed = false

    var hasLapsed: Bool { place == .here && permission?.isGiven == false }
  }

  private let current = Locked(Current())
  /// Notified when the place has changed.
  package let notifier = Notifier()

  /// - Parameter place: where it is at first.
  init(_ place: SessionPlace = .here, isShared: Bool = false) {
    self.isShared = isShared
    _ = move(to: place)
  }

  var isHere: Bool { here.load(ordering: .acquiring) }

  package var place: SessionPlace { current.withLock { $0.hasLapsed ? .nowhere : $0.place } }
  /// nil if no gateway holds the session, or the session is not shared.
  package var holding: SessionHolding? { current.withLock { $0.hasLapsed ? nil : $0.holding } }
  /// Whether no gateway will hold it any more: a client has closed it, or it was idle.
  package var isClosed: Bool { current.withLock { $0.isClosed } }
  /// When it moved to its place.
  package var since: MonotonicTime { current.withLock { $0.since } }

  @discardableResult
  func move(
    to place: SessionPlace, _ holding: SessionHolding? = nil, while permission: WritePermission? = nil
  ) -> Bool {
    let isChange = current.withLock { current in
      (current.holding, current.permission) = (holding, permission)
      guard current.place != place else { return false }
      (current.place, current.since) = (place, ProcessInformation.monotonicTime())
      here.store(place == .here, ordering: .releasing)
      return true
    }
    if isChange { notifier.notify() }
    return isChange
  }

  /// The session is closed.
  func close() {
    current.withLock { $0.isClosed = true }
    if !move(to: .nowhere) { notifier.notify() }
  }
}

extension Session {
  /// Whether the pushes that this gateway has are all that were stored by now, or almost.
  package var isCurrent: Bool { isHere || copy?.isCurrent ?? false }

  /// How late the newest push became readable here; nil: none has arrived since this gateway follows the session.
  package var lag: TimeSpan? { isHere ? .zero : copy?.lag }

  /// Whether this gateway holds the session now, and this object is what executes its requests. Without a lock.
  package var isHere: Bool { isHeldByClock && placement.isHere }

  /// Whether requests that only the holder can execute must go elsewhere. A session that is closed is nowhere, and ends what waits for it.
  package var hasLeft: Bool { !isHere && !inbox.isClosed }

  /// The session is at another place from now on. Called by one owner only, on any thread.
  ///
  /// What waits here for the session is notified, too: a request of another gateway is then responded to with the news that it must ask
  /// elsewhere. Before a session is `here`, its state must be restored; and before it is elsewhere, its upstream must be closed.
  package func move(to place: SessionPlace) {
    guard placement.move(to: place) else { return }
    upstream.deliveryNotifier.notify()
    consumers.notifier.notify()
  }
}
