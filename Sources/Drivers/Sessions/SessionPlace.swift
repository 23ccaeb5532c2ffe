import ByteStreams
import Dialing
import Host
import Reactor
import Synchronization
import Threading
import Upstream

/// The gateway that is the holder of a session: it has the upstream connection, and executes the requests.
package enum SessionPlace: Equatable, Sendable {
  case here
  /// The gateway that listens for peers at this address.
  case at(SocketAddress)
  /// No gateway is the holder at present.
  case nowhere
}

/// The holder of a session that several gateways share, for the status output.
package struct HolderStatus: Hashable, Sendable {
  /// The number of the term. Each holder has a greater number than the previous holder.
  package let term: UInt64
  /// The holder, if it is another gateway; nil if it is this gateway.
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

/// Which gateway is the holder of a session. The owner of this object decides when this gateway becomes or ceases to be
/// the holder. The holder of a session that is not shared is always this gateway.
///
/// A gateway is the holder until its deadline. After the deadline, the place is `nowhere`, even if the owner has not
/// handled the deadline yet.
///
/// Readable from any thread. `isHere` takes no lock and does not check the deadline; `Session.isHere` checks the
/// deadline.
package final class SessionPlacement: Sendable {
  private let here = Atomic(true)
  /// Whether several gateways share the session.
  package let isShared: Bool

  private struct Current {
    var place = SessionPlace.here
    var holder: HolderStatus?
    /// The permission of this gateway, as the holder, to write. nil if this gateway is not the holder, or if it is the
    /// holder without a deadline.
    var permission: WritePermission?
    var since = ProcessInformation.monotonicTime()
    var isClosed = false

    var hasLapsed: Bool { place == .here && permission?.isGiven == false }
  }

  private let current = Locked(Current())
  /// Notified after a change of the place.
  package let notifier = Notifier()

  /// - Parameter place: the place at the start.
  init(_ place: SessionPlace = .here, isShared: Bool = false) {
    self.isShared = isShared
    _ = move(to: place)
  }

  var isHere: Bool { here.load(ordering: .acquiring) }

  package var place: SessionPlace { current.withLock { $0.hasLapsed ? .nowhere : $0.place } }
  /// The holder; nil if no gateway is the holder, or the session is not shared.
  package var holder: HolderStatus? { current.withLock { $0.hasLapsed ? nil : $0.holder } }
  /// Whether the session was closed by a client, or because it was idle. A closed session never has a holder again.
  package var isClosed: Bool { current.withLock { $0.isClosed } }
  /// When the session moved to its present place.
  package var since: MonotonicTime { current.withLock { $0.since } }

  @discardableResult
  func move(
    to place: SessionPlace, _ holder: HolderStatus? = nil, while permission: WritePermission? = nil
  ) -> Bool {
    let isChange = current.withLock { current in
      (current.holder, current.permission) = (holder, permission)
      guard current.place != place else { return false }
      (current.place, current.since) = (place, ProcessInformation.monotonicTime())
      here.store(place == .here, ordering: .releasing)
      return true
    }
    if isChange { notifier.notify() }
    return isChange
  }

  /// Called when the session was closed.
  func close() {
    current.withLock { $0.isClosed = true }
    if !move(to: .nowhere) { notifier.notify() }
  }
}

extension Session {
  /// Whether this gateway has all stored pushes, except pushes whose notification has not arrived yet.
  package var isCurrent: Bool { isHere || copy?.isCurrent ?? false }

  /// How long after its arrival at the holder the newest push became readable here. nil if no push has arrived since
  /// this gateway began to follow the session.
  package var lag: TimeSpan? { isHere ? .zero : copy?.lag }

  /// Whether this gateway is the holder now, and this object executes the requests. Takes no lock.
  package var isHere: Bool { isHolderByClock && placement.isHere }

  /// Whether requests that only the holder can execute must be forwarded. False for a closed session: the requests that
  /// wait for it end.
  package var hasLeft: Bool { !isHere && !inbox.isClosed }

  /// Moves the session to another place. Only its owner calls this, on any thread.
  ///
  /// Requests that wait at this gateway are notified. If a peer has forwarded such a request, the peer gets a response
  /// now, and sends the request to another gateway. Before a session moves to this gateway, its state must have been
  /// restored. Before it moves away, its connection to the upstream must have been closed.
  package func move(to place: SessionPlace) {
    guard placement.move(to: place) else { return }
    upstream.deliveryNotifier.notify()
    consumers.notifier.notify()
  }
}
