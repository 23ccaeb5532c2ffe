import ByteStreams
import Dialing
import HTTPCodec
import Logging
import Reactor
import Replication

/// Checks that the gateways can reach each other, and that they connect each session to the same hosts. Without these
/// checks, such faults of the settings would show only as requests that no gateway serves, or as messages of another
/// installation.
extension RedisStoreDriver {
  /// Called with each heartbeat.
  func checkPeers() {
    for (gateway, address) in peers.due(watch.freshAddresses(now: now), now: now) {
      guard address != settings.address else {
        peers.ended(gateway, at: address, failure: "this gateway states the same address", now: now)
        continue
      }
      guard let url = try? HTTPURL("http://\(address)") else {
        peers.ended(gateway, at: address, failure: "it is not a host with a port", now: now)
        continue
      }
      let destination = DialDestination(
        host: url.host, port: url.port, authority: address, proxy: nil, tls: nil, userTimeout: PeerAttempt.timeout)
      loop.spawn(
        PeerAttempt(destination, dialer, loop) { [weak self] failure in
          guard let self else { return }
          peers.ended(gateway, at: address, failure: failure, now: now)
        })
    }
    log(conditions.observed(unreachable: peers.unreachable, now: now))
    metrics.setUnreachable(peers.unreachable.count)
    let isUnreachable = watch.isUnreachable(now: now)
    log([conditions.observed(ownAddress: settings.address, isUnreachable: isUnreachable, now: now)].compactMap(\.self))
    store.report(isUnreachable: isUnreachable)
  }

  // MARK: Hosts of the upstreams

  /// Stores the hosts of this gateway if Redis may lack them. Reads the hosts of other gateways whose settings have
  /// changed.
  func exchangeHosts(_ flight: LogFlight) {
    let own = store.upstreamHosts
    if storedHosts != own {
      storedHosts = own
      flight.send(.storeHosts(watch.own, own.text)) { [unowned self] reply, _ in
        if reply.isRefused { storedHosts = nil }
      }
    }
    let others = watch.otherConfigurations(now: now).filter { $0.value.configuration != store.configuration }
    for (gateway, other) in others where readHosts[gateway]?.configuration != other.configuration {
      flight.send(.readHosts(gateway)) { [unowned self] reply, _ in
        guard let text = reply.value.map({ $0.span.text() }) else { return }
        readHosts[gateway] = (other.configuration, UpstreamHosts(text))
      }
    }
    readHosts = readHosts.filter { others[$0.key] != nil }
    let differences = readHosts.compactMap { gateway, read in
      own.difference(from: read.hosts).map { (gateway, others[gateway]?.address ?? "", $0) }
    }
    log(conditions.observed(differences, now: now))
    metrics.setOtherUpstreams(differences.count)
    store.report(otherUpstream: differences.first?.2)
  }
}

/// An attempt to connect to another gateway. It sends nothing.
private final class PeerAttempt: LoopTask, TimerTarget {
  /// The timeout is long enough for an attempt whose first packet is lost once and sent again.
  static var timeout: TimeSpan { .seconds(2) }

  private let destination: DialDestination
  private let dialer: any Dialer
  private let loop: LoopContext
  private let cancellation = Cancellation()
  private let end: (_ failure: String?) -> Void

  init(_ destination: DialDestination, _ dialer: any Dialer, _ loop: LoopContext, _ end: @escaping (String?) -> Void) {
    self.destination = destination
    self.dialer = dialer
    self.loop = loop
    self.end = end
  }

  func run() async {
    let timer = loop.schedule(at: loop.now + Self.timeout, self)
    var input = ByteQueue()
    do throws(DialError) {
      try await dialer.dial(destination, cancellation, &input) { _ in }.close()
      loop.cancel(timer)
      end(nil)
    } catch {
      loop.cancel(timer)
      switch error {
      case .failed(let failure): end(failure.detail)
      case .cancelled: end("no connection within \(Self.timeout.text)")
      }
    }
  }

  func timerFired(_ token: Int) { cancellation.cancel() }
}
