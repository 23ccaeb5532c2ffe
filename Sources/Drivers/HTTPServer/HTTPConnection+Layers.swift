import ByteStreams
import Glibc
import HTTPCodec
import Host
import Logging
import Metrics
import ProxyCodec
import Reactor
import Threading

/// Connections with HTTPS, or through a proxy that is trusted to name the client. Other connections use none of this.
extension HTTPConnection {
  /// Reads through the layers into `worker.plaintext`.
  @inline(never)
  func receive(through layers: ConnectionLayers, atMost limit: Int) -> IOResult {
    let (expectedHeader, wasEstablished) = (layers.expectsHeader, layers.isEstablished)
    let result = layers.receive(channel, atMost: limit, into: &worker.plaintext)
    if expectedHeader, !layers.expectsHeader {
      guard worker.recount(self, behind: layers) else { return .failed(ECONNRESET) }
    }
    if !wasEstablished, layers.isEstablished {
      worker.server.metrics.handshakes.add()
      if layers.isResumed { worker.server.metrics.resumedHandshakes.add() }
    }
    return result
  }

  /// Passes the result of the last read to the parser.
  @inline(never)
  func receivePlaintext() {
    var plaintext = ByteQueue()
    swap(&plaintext, &worker.plaintext)
    http.receive(plaintext.bytes)
    swap(&plaintext, &worker.plaintext)
  }

  /// Whether the kernel has yet to accept some of the output.
  var hasUnsent: Bool {
    if !pending.isEmpty { return true }
    guard let layers else { return false }
    return layers.pendingBytes > 0
  }

  /// A position that advances by the bytes that the kernel accepts during a flush of `pending`.
  var sentPosition: Int {
    guard let layers, layers.isSecure else { return -pending.count }
    return layers.sentBytes
  }

  /// Memory of the output that the kernel has not accepted, in bytes.
  var unsentBytes: Int { pending.memoryBytes + (layers?.pendingBytes ?? 0) }

  @inline(never)
  func flush(_ queue: inout OutputQueue, through layers: ConnectionLayers) -> OutputQueue.FlushResult {
    layers.flush(&queue, to: channel, &worker.plaintext)
  }

  /// Like `sendDeferred`. Bytes that the kernel does not accept stay in `layers`, encrypted, and a task sends
  /// them.
  func sendDeferred(_ bytes: Span<UInt8>, through layers: ConnectionLayers) {
    switch layers.send(bytes, to: channel) {
    case .done: if access != nil, deferredParts == 0 { reportSent() }
    case .blocked, .paused:
      worker.noteResponder(of: self)
      isIdleWait = false
      channel.wake()
    case .failed: channel.close()
    }
  }

  /// Sends close_notify after the last response. If the client does not read, waits as long as for the output of a
  /// response: without close_notify, the client would treat a complete response as truncated. Returns false when the
  /// connection is over.
  func closeLayers() async -> Bool {
    guard let layers, layers.sendClose(to: channel) == .blocked else { return true }
    return await flushPending()
  }

  /// Closes the connection; with TLS, after close_notify.
  func close() {
    layers?.sendClose(to: channel)
    channel.close()
  }

  /// Counts and logs the failure of a layer, once. Called after the failure and at the end of the connection.
  func reportLayers(_ layers: ConnectionLayers) {
    guard !layers.isReported else { return }
    layers.isReported = true
    let metrics = worker.server.metrics
    let what: StaticString
    switch layers.failure {
    case .proxyHeader(let error):
      metrics.refusedProxyHeaders.add()
      what = "connection without a valid header of the PROXY protocol"
      if logMismatch(what, error.description, worker.server.noProxyHeaderLog) { return }
    case .tls, .handshakeTooLong, .unavailable, nil:
      guard layers.isHandshaking || layers.failure != nil && !layers.isEstablished else { return }
      metrics.failedHandshakes.add()
      what = "TLS handshake failed"
      if let other = layers.otherProtocol {
        let limiter = other == .http ? worker.server.plainOnTLSLog : worker.server.proxyHeaderLog
        if logMismatch("a connection does not speak TLS", other.description, limiter) { return }
      }
    }
    guard worker.server.logger.level <= .debug,
      let suppressed = worker.server.handshakeLog.admit(at: worker.loop.now)
    else { return }
    var fields: [LogField] = [.text("reason", layers.failure?.description ?? "it ended, or took too long")]
    if let client = connectionAddress { fields.append(.text("client", client.description)) }
    if suppressed > 0 { fields.append(.number("suppressed", suppressed)) }
    worker.server.logger.log(.debug, what, fields)
  }

  // MARK: The client

  /// The client's address according to the connection; nil if it is no longer known.
  var connectionAddress: SocketAddress? { layers?.client ?? layers?.peer ?? (channel.isClosed ? nil : peerAddress) }

  private var peerAddress: SocketAddress? { try? Sockets.peerAddress(of: channel.descriptor) }

  /// The client of the current request. Behind a trusted proxy, this is the client that the proxy names.
  @inline(never)
  func identifiedClient() -> ClientConnection {
    if let layers, layers.client == nil, !isBehindProxy {
      return ClientConnection(
        origin: origin, socket: channel.descriptor, certificate: layers.clientCertificate, isSecure: layers.isSecure)
    }
    let peer = connectionAddress?.ip
    var (address, origin) = (peer, self.origin)
    var isSecure = layers?.isSecure ?? false
    if isBehindProxy {
      let proxies = worker.server.settings.trustedProxies
      address = proxies.client(behind: peer, http.request.fields)
      // The connection's origin is known even if its peer's address is not, so that limits apply.
      if address != peer { origin = ClientOrigin(address) }
      isSecure = proxies.isSecure(http.request.fields) ?? isSecure
    }
    return ClientConnection(
      origin: origin, address: address, certificate: layers?.clientCertificate, isSecure: isSecure)
  }

  /// The client of the current request, for logs, with its port if the connection has it.
  var clientText: String? {
    let peer = connectionAddress
    guard isBehindProxy, http.hasRequest, http.request.fields.contains(.xForwardedFor),
      let address = worker.server.settings.trustedProxies.client(behind: peer?.ip, http.request.fields),
      address != peer?.ip
    else { return peer?.description }
    return SocketAddress.ip(address, port: 0).host
  }
}
