import ByteStreams
import Glibc
import Host
import Profiles
import ProxyCodec
import Reactor
import TLSEngine

/// Connects over this machine's network. `NetworkDialer+Proxy` handles proxies.
package final class NetworkDialer: Dialer {
  private let resolver: Resolver
  /// The client on whose behalf names are resolved.
  private let owner: String
  let loop: LoopContext

  /// Maximum number of addresses of a name that are checked against the rules. The limit is needed because a client may
  /// have chosen the name, and so the name server.
  static var judgedLimit: Int { 64 }

  package init(resolver: Resolver, owner: String = "", loop: LoopContext) {
    self.resolver = resolver
    self.owner = owner
    self.loop = loop
  }

  package func dial(
    _ destination: DialDestination, _ cancellation: Cancellation, _ input: inout ByteQueue,
    report: (DialPhase) -> Void
  ) async throws(DialError) -> Transport {
    if let reason = destination.rules?.refusal(ofHost: destination.host, isProxied: destination.proxy != nil) {
      throw .failed(.resolving, .notAllowed, ReportText(reason))
    }
    let target = try await tunnelTarget(of: destination, cancellation)
    var addresses = try await resolve(
      host: destination.proxy?.host ?? destination.host, port: destination.proxy?.port ?? destination.port,
      cancellation)
    if destination.proxy == nil { addresses = try allowed(addresses, destination) }
    report(.connecting)
    let transport = Transport(try await connect(to: addresses, destination, cancellation), destination.permission)
    cancellation.setTransport(transport)
    do throws(DialError) {
      if let proxy = destination.proxy {
        report(.proxying)
        try await openTunnel(to: target, destination, through: proxy, over: transport, &input)
      }
      if let context = destination.tls {
        report(.securing)
        try await secure(transport, with: context, host: destination.host, &input)
      }
    } catch {
      transport.close()
      throw error
    }
    return transport
  }

  func resolve(
    host: String, port: UInt16, _ cancellation: Cancellation
  ) async throws(DialError) -> [SocketAddress] {
    let lookup = resolver.makeLookup()
    cancellation.onCancel { [resolver] in resolver.cancel(lookup) }
    let answer = await resolver.resolve(host: host, port: port, for: owner, as: lookup)
    cancellation.onCancel(nil)
    guard !cancellation.isCancelled else { throw .cancelled }
    switch answer {
    case .success(let addresses): return addresses
    case .failure(let error): throw .failed(.resolving, .nameNotResolved, "\(error)")
    }
  }

  /// The addresses that the rules allow. The gateway connects to no other addresses.
  func allowed(
    _ addresses: [SocketAddress], _ destination: DialDestination
  ) throws(DialError) -> [SocketAddress] {
    guard let rules = destination.rules else { return addresses }
    var (refusal, refused) = ("", "")
    var allowed: [SocketAddress] = []
    for address in ConnectRace.interleaved(addresses, limit: Self.judgedLimit) {
      guard allowed.count < ConnectRace.addressLimit else { break }
      guard let ip = address.ip else { continue }
      if let reason = rules.refusal(of: ip, isOwn: { try RouteLookup.isOwn(ip) }) {
        (refusal, refused) = (reason, address.host)
      } else {
        allowed.append(address)
      }
    }
    if allowed.isEmpty {
      // A client sees this text, and must not learn the addresses of internal names from it.
      var failure = DialFailure(.resolving, .notAllowed, "\(destination.host): \(refusal)")
      failure.refusedAddress = refused
      throw .failed(failure)
    }
    return allowed
  }

  private func connect(
    to addresses: [SocketAddress], _ destination: DialDestination, _ cancellation: Cancellation
  ) async throws(DialError) -> Channel {
    let race = ConnectRace(addresses, userTimeout: destination.userTimeout, loop: loop)
    cancellation.onCancel { race.cancel() }
    let outcome = await race.run()
    cancellation.onCancel(nil)
    switch outcome {
    case .connected(let channel, _):
      guard !cancellation.isCancelled else {
        channel.close()
        throw .cancelled
      }
      return channel
    case .failed(let error, let hasRoute):
      let detail = (destination.proxy.map { "the proxy \($0.redacted) cannot be reached: " } ?? "") + error.description
      throw .failed(.connecting, hasRoute ? .network : .noRoute, ReportText(detail))
    case .cancelled:
      throw .cancelled
    }
  }

  // MARK: TLS

  /// Negotiates TLS. `input`: bytes that have already arrived through a proxy's tunnel.
  private func secure(
    _ transport: Transport, with context: TLSContext, host: String, _ input: inout ByteQueue
  ) async throws(DialError) {
    do throws(TLSSettingsError) {
      transport.secure(with: try TLSConnection(to: host, context: context), received: input.bytes)
      input.removeAll()
    } catch {
      throw .failed(.securing, .preparation, "\(error)")
    }
    while true {
      var outcome = Result<Bool, TLSError>.success(false)
      do throws(TLSError) { outcome = .success(try transport.advanceHandshake()) } catch { outcome = .failure(error) }
      do throws(TransportError) {
        // The output is sent even after an error, since it may contain an alert that reports the reason to the peer.
        try await transport.flushAll()
        switch outcome {
        case .success(true): return
        case .success(false): try await transport.receiveHandshakeBytes()
        case .failure: break
        }
      } catch {
        throw DialError(error, in: .securing)
      }
      if case .failure(let error) = outcome { throw .failed(.securing, .tls(error), "TLS: \(error.report)") }
    }
  }
}

extension DialError {
  /// The error of a wait for the transport in this phase.
  init(_ error: TransportError, in phase: DialPhase) {
    switch error {
    case .closed: self = .cancelled
    case .ended: self = .failed(phase, .network, "the proxy closed the connection before it opened a tunnel")
    case .failed(let code):
      self = .failed(phase, .network, "the connection failed while \(phase.rawValue): \(SystemError.reason(of: code))")
    }
  }
}
