import ByteStreams
import Metrics
import Reactor
import Threading
import UpstreamSession

/// Dials, within what the process allows itself of one host.
extension UpstreamDriver {
  /// Starts a dial. Where the host's limit does not allow it yet: until when it has to wait.
  func start(_ dial: Dial) -> MonotonicTime? {
    let url = url(for: dial.target)
    switch handle.dials.ask(url.server, ticket, overridesHold: dial.overridesHold, now: loop.now) {
    case .wait(let ticket):
      self.ticket = ticket
      metrics.postponedDials.add()
      return ticket.slot
    case .go:
      if ticket?.host == url.server { ticket = nil }
      let link = UpstreamLink(dial, url: url, driver: self)
      links.append(link)
      // While another connection serves, that one's is shown.
      if sending == nil {
        handle.shared.withLock { shared in
          shared.status.url = url.redacted
          shared.status.proxy = link.proxy?.redacted
        }
      }
      loop.spawn(link)
      return nil
    }
  }

  /// A dial is over, however it ended: another may take its place.
  func dialEnded(_ link: UpstreamLink) {
    guard link.isDialling else { return }
    link.isDialling = false
    handle.dials.ended(link.url.server)
  }

  /// The host that answered the last dial, which a redirection may have led to, is left alone by all sessions.
  func holdHost(_ endpoint: Int, until: MonotonicTime) {
    let url = refusedBy ?? settings.urls[endpoint]
    handle.dials.hold(url.server, until: until)
  }
}
