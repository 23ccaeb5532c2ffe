import Reactor
import RouteNetlink
import UpstreamSession

/// What a change of this machine's network means for its connections.
extension UpstreamDriver {
  func networkChanged(_ change: NetworkChange) {
    for link in links where !link.isDiscarded {
      // A socket keeps its address when the machine loses it, and would go on sending in vain until its heartbeat ends it.
      guard let local = link.localAddress, let address = local.ip, change.vanished.contains(address) else {
        continue
      }
      lost(link, .addressGone, "this machine has lost the connection's address \(local.host)")
    }
    apply(machine.networkChanged(hasGained: change.hasGained, now: loop.now, using: &entropy))
  }
}

extension UpstreamLink {
  /// Our end of the connection; nil before there is one.
  fileprivate var localAddress: SocketAddress? {
    guard let channel = transport?.channel, !channel.isClosed else { return nil }
    return try? Sockets.localAddress(of: channel.descriptor)
  }
}
