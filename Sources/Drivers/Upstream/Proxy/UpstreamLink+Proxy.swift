import ByteStreams
import ProxyCodec
import Reactor
import UpstreamSession

/// The part of an opening that a proxy adds.
extension UpstreamLink {
  /// Whom to connect to: the proxy, or the upstream itself.
  struct Peer {
    let host: String
    let port: UInt16
  }

  var peer: Peer { proxy.map { Peer(host: $0.host, port: $0.port) } ?? Peer(host: url.host, port: url.port) }

  /// Looks the upstream's name up where the proxy does not: for `socks5`, whose request carries an address.
  func destination(for proxy: ProxyURL) async throws(OpeningEnd) -> SOCKSHandshake.Destination? {
    switch proxy.scheme {
    case .http:
      return nil
    case .socks5:
      guard let first = try await resolve(Peer(host: url.host, port: url.port)).first else { throw .discarded }
      return first.ip.map { .address($0) }
    case .socks5h:
      if let address = SocketAddress(numericHost: url.host, port: url.port)?.ip { return .address(address) }
      guard url.host.utf8.count <= 255 else {
        throw .failed(
          OpeningReport(
            .resolving, .nameNotResolved, "the upstream's name has more than the 255 bytes SOCKS5 can carry"))
      }
      return .name(url.host)
    }
  }

  /// Has the proxy open a tunnel to the upstream. What came through it already is left in `input`.
  func openTunnel(
    through proxy: ProxyURL, to destination: SOCKSHandshake.Destination?, over transport: UpstreamTransport,
    _ input: inout ByteQueue
  ) async throws(OpeningEnd) {
    driver.advanced(self, to: .proxying)
    if let destination {
      var handshake = SOCKSHandshake(to: destination, port: url.port, credentials: proxy.credentials)
      try await carryOut(&handshake, over: transport, &input)
    } else {
      var handshake = ConnectHandshake(to: url.authority, credentials: proxy.credentials)
      try await carryOut(&handshake, over: transport, &input)
    }
  }

  private func carryOut(
    _ handshake: inout some ProxyHandshake & ~Copyable, over transport: UpstreamTransport, _ input: inout ByteQueue
  ) async throws(OpeningEnd) {
    while true {
      var isOpen = false
      var failure: ProxyError?
      do throws(ProxyError) {
        isOpen = try handshake.advance(&input, into: &transport.output)
      } catch {
        failure = error
      }
      if let failure { throw .failed(try await report(failure, over: transport, &input)) }
      try await flushAll(of: transport, in: .proxying)
      if isOpen { return }
      try await receive(into: &input, over: transport, in: .proxying)
    }
  }

  private func report(
    _ error: ProxyError, over transport: UpstreamTransport, _ input: inout ByteQueue
  ) async throws(OpeningEnd) -> OpeningReport {
    var report = OpeningReport(.proxying, error.isDenial ? .proxyDenied : .proxy, error.description)
    if case .refused(let refusal, sentCredentials: _) = error {
      report.tell(of: refusal)
      report.body = try await readBody(of: refusal, over: transport, &input)
    }
    return report
  }
}
