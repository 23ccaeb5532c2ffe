import ByteStreams
import Glibc
import HTTPCodec
import Host
import ProxyCodec
import Reactor
import TLSEngine

/// The layers of a connection below HTTP: the header of the PROXY protocol, and above it TLS. A plain connection has no
/// such object, and costs one branch.
///
/// The deadline of the first request head also applies to the layers: the header, the handshake and the head must be
/// complete before this deadline. This class never waits. It buffers input of up to one read of the socket. It encrypts
/// output only when the kernel has accepted all earlier ciphertext, so a slow reader costs at most `sealedBytes` here,
/// in addition to its responses.
final class ConnectionLayers {
  /// Why a connection ended before its first HTTP request.
  enum Failure {
    case proxyHeader(ProxyHeaderError)
    case tls(TLSError)
    /// More than `handshakeBytes` of handshake messages arrived.
    case handshakeTooLong
    case unavailable(TLSSettingsError)

    var description: String {
      switch self {
      case .proxyHeader(let error): error.description
      case .tls(let error): error.description
      case .handshakeTooLong: "the handshake has more than \(ConnectionLayers.handshakeBytes) bytes"
      case .unavailable(let error): error.description
      }
    }
  }

  /// The protocol that a client uses on an HTTPS listener instead of TLS.
  enum OtherProtocol {
    case http
    case proxyHeader

    /// - Parameter bytes: the first bytes of the connection.
    init?(_ bytes: Span<UInt8>) {
      if bytes.starts(with: "PROXY ") || bytes.starts(with: "\r\n\r\n\0") {
        self = .proxyHeader
      } else if !bytes.isEmpty, UInt8(ascii: "A")...UInt8(ascii: "Z") ~= bytes[0] {
        // An HTTP method begins with an upper-case letter. The first byte of a TLS record is its type, which is a
        // smaller number.
        self = .http
      } else {
        return nil
      }
    }

    var description: String {
      switch self {
      case .http:
        "plain HTTP arrived on a port for HTTPS: use https:// for this port, or http:// with a port without TLS"
      case .proxyHeader:
        "a header of the PROXY protocol arrived where a TLS handshake was expected: configure the proxy to send no such header, or set http.proxy_protocol"
      }
    }
  }

  /// Maximum ciphertext received before the handshake is complete, in bytes. The largest usual handshake, with a
  /// client's certificate chain, has some 10 KB. OpenSSL limits each message to about 130 KB.
  static var handshakeBytes: Int { 256 * 1024 }
  /// Maximum plaintext that is encrypted and sent at once, in bytes: four records. A larger value would need more
  /// memory for each slow reader, but fewer system calls for a large response.
  private static var sealedBytes: Int { 64 * 1024 }
  /// The maximum number of bytes by which a record is larger than its plaintext. A read with this additional room
  /// returns a whole record.
  private static var recordOverhead: Int { 512 }

  private let certificate: CurrentCertificate?
  private let handshakes: LoopParts<Channel>
  /// The handshake in progress.
  private var handshake: LoopPart?
  /// The peer, as it was when the connection was accepted. When the peer resets the connection, the kernel forgets its
  /// address, although received bytes can still be read.
  let peer: SocketAddress
  /// The received bytes of the header. Once the header is complete, the bytes that have arrived after it.
  private var header: ByteQueue
  private(set) var expectsHeader: Bool
  /// The client that the header names. nil as long as the header is not complete, and if the header names no client.
  private(set) var client: SocketAddress?
  /// The TLS connection. It is created when the first byte arrives, so that a silent connection costs little.
  private var tls: TLSConnection?
  private(set) var isEstablished = false
  private(set) var clientCertificate: ClientCertificate?
  private(set) var failure: Failure?
  /// The other protocol that the first bytes belong to, if they are not TLS.
  private(set) var otherProtocol: OtherProtocol?
  /// Whether a failure of this connection was already counted and logged.
  var isReported = false
  private var received = 0
  /// Ciphertext that the kernel has accepted, in bytes.
  private(set) var sentBytes = 0

  /// - Parameter certificate: the certificate of the listener; nil without TLS.
  init(
    from peer: SocketAddress, expectsHeader: Bool, certificate: CurrentCertificate?, handshakes: LoopParts<Channel>
  ) {
    self.peer = peer
    self.expectsHeader = expectsHeader
    self.certificate = certificate
    self.handshakes = handshakes
    header = ByteQueue()
  }

  deinit { endHandshake() }

  var isSecure: Bool { certificate != nil }

  var isResumed: Bool { tls?.isResumed ?? false }

  /// Whether the client has begun a handshake that is not complete.
  var isHandshaking: Bool { tls != nil && !isEstablished }

  // MARK: Input

  /// Reads plaintext into `plaintext`, at most `limit` bytes. If a layer fails, sends an alert or a response to the
  /// client, sets `failure`, and returns `.failed`.
  func receive(_ channel: Channel, atMost limit: Int, into plaintext: inout ByteQueue) -> IOResult {
    plaintext.removeAll()
    if expectsHeader {
      if let end = receiveHeader(channel) { return end }
    }
    if certificate != nil { return receiveSecure(channel, atMost: limit, into: &plaintext) }
    guard header.isEmpty else {
      let count = min(limit, header.count)
      plaintext.append(header.bytes.extracting(first: count))
      header.consume(count)
      return .bytes(count)
    }
    return channel.receive(into: &plaintext, atMost: limit)
  }

  /// Returns nil when the header is complete. From then on, `header` has the bytes that have arrived after the header.
  private func receiveHeader(_ channel: Channel) -> IOResult? {
    while true {
      // A read may also return bytes of the request, which the proxy may send together with the header.
      switch channel.receive(into: &header, atMost: ProxyHeader.maximumLength) {
      case .bytes: break
      case let end: return end
      }
      do throws(ProxyHeaderError) {
        guard let complete = try ProxyHeader.read(header.bytes) else { continue }
        expectsHeader = false
        if let address = complete.address { client = .ip(address, port: complete.port) }
        header.consume(complete.length)
        return nil
      } catch {
        failure = .proxyHeader(error)
        return .failed(EPROTO)
      }
    }
  }

  private func receiveSecure(_ channel: Channel, atMost limit: Int, into plaintext: inout ByteQueue) -> IOResult {
    while true {
      if let tls {
        do throws(TLSError) {
          if !isEstablished {
            if try tls.advanceHandshake() == .complete { establish(tls) }
            if case .failed(let code) = send(tls, channel) { return .failed(code) }
          }
          if isEstablished {
            switch try tls.read(into: &plaintext, atMost: limit) {
            case .bytes(let count): return .bytes(count)
            case .closed: return .endOfStream
            case .needsCiphertext: break
            }
          }
        } catch {
          // The end without close_notify is treated as a normal end, since the framing of HTTP shows whether the
          // request is complete.
          if error == .truncated { return .endOfStream }
          failure = .tls(error)
          refuse(tls, channel, plain: otherProtocol == .http)
          return .failed(EPROTO)
        }
        // TLS may have to send replies of its own, for example to key updates. As long as a client does not read these
        // replies, no more input is read from it.
        if case .failed(let code) = send(tls, channel) { return .failed(code) }
        if tls.hasPendingCiphertext { return .wouldBlock }
      }
      if let end = receiveCiphertext(channel, atMost: limit) { return end }
    }
  }

  /// Returns nil if OpenSSL has input to process.
  private func receiveCiphertext(_ channel: Channel, atMost limit: Int) -> IOResult? {
    guard header.isEmpty else {
      // These bytes have arrived together with the header of the PROXY protocol.
      guard let tls = connection(channel) else { return .failed(EPROTO) }
      if received == 0 { otherProtocol = OtherProtocol(header.bytes) }
      tls.receive(ciphertext: header.bytes)
      received += header.count
      header.releaseStorage()
      return nil
    }
    switch channel.receive(atMost: limit + Self.recordOverhead) {
    case .bytes(let count):
      guard let tls = connection(channel) else { return .failed(EPROTO) }
      if received == 0 { otherProtocol = OtherProtocol(channel.received) }
      received &+= count
      guard isEstablished || received <= Self.handshakeBytes else {
        failure = .handshakeTooLong
        return .failed(EPROTO)
      }
      tls.receive(ciphertext: channel.received)
      return nil
    case .endOfStream:
      // The peer has sent no byte, as in a probe of a load balancer, so this is not a failure.
      guard let tls else { return .endOfStream }
      tls.receiveEndOfCiphertext()
      return nil
    case let other: return other
    }
  }

  private func connection(_ channel: Channel) -> TLSConnection? {
    if let tls { return tls }
    guard let certificate else { return nil }
    guard case .admitted(let part) = handshakes.add(channel, 1, by: ClientOrigin(client ?? peer)) else { return nil }
    handshake = part
    do throws(TLSSettingsError) {
      tls = try TLSConnection(accepting: certificate.current)
    } catch {
      failure = .unavailable(error)
    }
    return tls
  }

  private func establish(_ tls: TLSConnection) {
    isEstablished = true
    clientCertificate = tls.clientCertificate
    endHandshake()
  }

  private func endHandshake() {
    if let handshake { handshakes.remove(handshake) }
    handshake = nil
  }

  /// Sends the TLS alert about the error. If the client has sent a request in plain HTTP, sends an HTTP response
  /// instead, which a browser shows.
  private func refuse(_ tls: TLSConnection, _ channel: Channel, plain: Bool) {
    guard plain else {
      _ = send(tls, channel)
      return
    }
    var response = ByteQueue()
    response.append(
      "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
    )
    response.append("Content-Length: 49\r\n\r\nThis port accepts HTTPS only: use an https:// URL")
    _ = channel.send(response.bytes)
  }

  /// Whether a read may return data although the socket has none.
  var hasBufferedInput: Bool {
    if let tls { return isEstablished && tls.hasBufferedInput }
    return !header.isEmpty
  }

  /// Whether the client has ended its output with close_notify. It may still read.
  var isClosedByPeer: Bool { tls?.isClosedByPeer ?? false }

  // MARK: Output

  /// Ciphertext that the kernel has not accepted, in bytes.
  var pendingBytes: Int { tls?.pendingCiphertextCount ?? 0 }

  /// Encrypts and sends `queue`, up to `Channel.bytesPerFlush`. `scratch` may be any buffer.
  func flush(
    _ queue: inout OutputQueue, to channel: Channel, _ scratch: inout ByteQueue
  ) -> OutputQueue.FlushResult {
    guard let tls else { return isSecure ? .failed(EPROTO) : queue.flush(to: channel) }
    // Before the handshake is complete, the output is at most the ciphertext of a handshake message or an alert.
    guard isEstablished else { return queue.isEmpty ? send(tls, channel) : .failed(EPROTO) }
    let rest = queue.count - Channel.bytesPerFlush
    while true {
      let result = send(tls, channel)
      guard result == .done, !queue.isEmpty else { return result }
      guard queue.count > rest else { return .paused }
      do throws(TLSError) {
        try queue.takeFirst(Self.sealedBytes, gatheringIn: &scratch) { bytes throws(TLSError) in try tls.write(bytes) }
      } catch {
        return .failed(EPROTO)
      }
    }
  }

  /// Encrypts `bytes` and sends as much as the kernel accepts. No ciphertext may be pending.
  func send(_ bytes: Span<UInt8>, to channel: Channel) -> OutputQueue.FlushResult {
    guard let tls, isEstablished else { return .failed(EPROTO) }
    do throws(TLSError) {
      try tls.write(bytes)
    } catch {
      return .failed(EPROTO)
    }
    return send(tls, channel)
  }

  func sendPending(to channel: Channel) -> OutputQueue.FlushResult { tls.map { send($0, channel) } ?? .done }

  private func send(_ tls: TLSConnection, _ channel: Channel) -> OutputQueue.FlushResult {
    guard tls.hasPendingCiphertext else { return .done }
    var taken = 0
    let result = tls.sendCiphertext { queue -> OutputQueue.FlushResult in
      while !queue.isEmpty {
        switch channel.send(queue.bytes) {
        case .bytes(let count):
          queue.consume(count)
          taken += count
        case .wouldBlock: return .blocked
        case .failed(let code): return .failed(code)
        case .endOfStream: return .failed(EPIPE)
        }
      }
      return .done
    }
    sentBytes &+= taken
    return result
  }

  // MARK: Idle and end

  /// Releases the buffers of a connection that waits.
  func releaseIdleStorage() {
    if isEstablished { tls?.releaseIdleStorage() }
    if header.isEmpty { header.releaseStorage() }
  }

  /// Sends close_notify, unless a response is incomplete: the client must not take such a response for complete.
  /// Returns `.blocked` if close_notify remains pending because the client reads slowly.
  @discardableResult
  func sendClose(to channel: Channel) -> OutputQueue.FlushResult {
    guard let tls, isEstablished, !channel.isClosed, !tls.hasPendingCiphertext else { return .done }
    tls.sendCloseNotify()
    return send(tls, channel)
  }
}
