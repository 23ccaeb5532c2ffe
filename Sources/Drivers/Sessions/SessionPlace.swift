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

/// Where a session is. Its owner is who decides which sessions this gateway holds; without other gateways, every session stays here.
///
/// Can be read from any thread. `isHere` takes no lock.
package final class SessionPlacement: Sendable {
  private let here = Atomic(true)
  private let current = Locked(SessionPlace.here)
  /// Notified when the place has changed.
  package let notifier = Notifier()

  /// - Parameter place: where it is at first.
  init(_ place: SessionPlace = .here) { _ = move(to: place) }

  package var isHere: Bool { here.load(ordering: .acquiring) }

  package var place: SessionPlace { current.withLock { $0 } }

  @discardableResult
  func move(to place: SessionPlace) -> Bool {
    let isChange = current.withLock { current in
      guard current != place else { return false }
      current = place
      here.store(place == .here, ordering: .releasing)
      return true
    }
    if isChange { notifier.notify() }
    return isChange
  }
}

extension Session {
  /// Whether this gateway holds the session, and this object is what executes its requests. Without a lock.
  package var isHere: Bool { !isRetired && placement.isHere }

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
