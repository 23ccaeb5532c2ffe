import ByteStreams
import Host
import ProxyCodec
import Reactor

/// The part of a connection attempt that concerns a proxy.
extension NetworkDialer {
  /// The destination in the form that a SOCKS proxy needs; nil for an HTTP proxy or without a proxy. With `socks5`, the
  /// gateway resolves the name, since the request to the proxy contains an address.
  func tunnelTarget(
    of destination: DialDestination, _ cancellation: Cancellation
  ) async throws(DialError) -> SOCKSHandshake.Destination? {
    switch destination.proxy?.scheme {
    case nil, .http:
      return nil
    case .socks5:
      let addresses = try allowed(
        try await resolve(host: destination.host, port: destination.port, cancellation), destination)
      guard let first = addresses.first else { throw .cancelled }
      return first.ip.map { .address($0) }
    case .socks5h:
      if let address = SocketAddress(numericHost: destination.host, port: destination.port)?.ip {
        return .address(address)
      }
      guard destination.host.utf8.count <= 255 else {
        throw .failed(
          .resolving, .nameNotResolved, "the upstream's host name is longer than 255 bytes, the limit of SOCKS5")
      }
      return .name(destination.host)
    }
  }

  /// Makes the proxy open a tunnel. Bytes that have already arrived through the tunnel are left in `input`.
  func openTunnel(
    to target: SOCKSHandshake.Destination?, _ destination: DialDestination, through proxy: ProxyURL,
    over transport: Transport, _ input: inout ByteQueue
  ) async throws(DialError) {
    if let target {
      var handshake = SOCKSHandshake(to: target, port: destination.port, credentials: proxy.credentials)
      try await perform(&handshake, over: transport, &input)
    } else {
      var handshake = ConnectHandshake(to: destination.authority, credentials: proxy.credentials)
      try await perform(&handshake, over: transport, &input)
    }
  }

  private func perform(
    _ handshake: inout some ProxyHandshake & ~Copyable, over transport: Transport, _ input: inout ByteQueue
  ) async throws(DialError) {
    while true {
      var isOpen = false
      var refusal: ProxyError?
      do throws(ProxyError) {
        isOpen = try handshake.advance(&input, into: &transport.output)
      } catch {
        refusal = error
      }
      if let refusal { throw .failed(try await failure(refusal, over: transport, &input)) }
      do throws(TransportError) {
        try await transport.flushAll()
        if isOpen { return }
        try await transport.receiveSome(into: &input)
      } catch {
        throw DialError(error, in: .proxying)
      }
    }
  }

  private func failure(
    _ error: ProxyError, over transport: Transport, _ input: inout ByteQueue
  ) async throws(DialError) -> DialFailure {
    var failure = DialFailure(.proxying, error.isDenial ? .proxyDenied : .proxy, error.report)
    guard case .refused(let head, sentCredentials: _) = error else { return failure }
    do throws(TransportError) {
      failure.refusal = (head, try await transport.receiveBody(of: head, &input, on: loop))
    } catch {
      throw .cancelled
    }
    return failure
  }
}
