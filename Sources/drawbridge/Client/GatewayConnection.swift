import ByteStreams
import Glibc
import HTTPCodec
import Host
import TLSEngine

/// Why a request to a gateway got no response.
struct ConnectionFailure: Error {
  let reason: String
  /// Advice for a person; nil if there is none.
  let hint: String?

  init(_ reason: String, hint: String? = nil) {
    self.reason = reason
    self.hint = hint
  }

  init(code: Int32) { self.init(SystemError.reason(of: code)) }

  init(_ error: TLSError) {
    switch error {
    case .selfSignedCertificate(let subject):
      self.init(
        "TLS: the certificate of '\(subject)' is self-signed", hint: "to trust it, give its file with --ca-file")
    case .unknownIssuer(let issuer):
      self.init(
        "TLS: the certificate's issuer '\(issuer)' is not trusted",
        hint: "give the file of its certificate with --ca-file, or DRAWBRIDGE_CA_FILE")
    case .clientCertificateRequired:
      self.init("TLS: the gateway requires a client certificate", hint: "give its file with --certificate")
    case .notTLS: self.init("TLS: \(error)", hint: "use http:// for a port without TLS")
    default: self.init("TLS: \(error)")
    }
  }
}

/// One request of a command to a gateway, over TCP, TLS or a Unix-domain socket. The calls block. Each step blocks for
/// at most `timeoutSeconds`.
///
/// The request is HTTP/1.0. Its response ends with the connection, so the content needs no framing.
final class GatewayConnection {
  static let timeoutSeconds = 10
  private static let pieceBytes = 64 << 10

  /// The socket. When it is readable, `receive` does not block.
  let descriptor: Int32
  private var tls: TLSConnection?
  /// Whether the whole response was received.
  private(set) var isAtEnd = false

  deinit { close(descriptor) }

  /// Connects to the first of `addresses` that accepts the connection.
  ///
  /// - Parameter context: the TLS settings for `https`.
  init(to url: GatewayURL, at addresses: [SocketAddress], _ context: TLSContext?) throws(ConnectionFailure) {
    var failure = ConnectionFailure("no address")
    var connected: Int32?
    for address in addresses where connected == nil {
      do throws(ConnectionFailure) {
        connected = try Self.connect(to: address)
      } catch {
        failure = ConnectionFailure(
          "connect \(address): \(error.reason)",
          hint: "is the gateway running? Name another address with --url, or DRAWBRIDGE_URL")
      }
    }
    guard let connected else { throw failure }
    descriptor = connected
    if let context, case .network(let host, _) = url.place { try negotiate(host, context) }
  }

  private static func connect(to address: SocketAddress) throws(ConnectionFailure) -> Int32 {
    let descriptor = socket(address.family, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { throw ConnectionFailure(code: errno) }
    // The timeouts of the socket also limit connect(2).
    var timeout = timeval(tv_sec: timeoutSeconds, tv_usec: 0)
    let size = socklen_t(MemoryLayout<timeval>.size)
    unsafe setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &timeout, size)
    unsafe setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &timeout, size)
    guard unsafe address.withKernelAddress({ unsafe Glibc.connect(descriptor, $0, $1) }) == 0 else {
      let code = errno == EINPROGRESS ? ETIMEDOUT : errno
      close(descriptor)
      throw ConnectionFailure(code: code)
    }
    return descriptor
  }

  // MARK: TLS

  private func negotiate(_ host: String, _ context: TLSContext) throws(ConnectionFailure) {
    do throws(TLSSettingsError) {
      tls = try TLSConnection(to: host, context: context)
    } catch {
      throw ConnectionFailure("\(error)")
    }
    while true {
      let status = try withTLS { tls throws(TLSError) in try tls.advanceHandshake() }
      try sendCiphertext()
      if status == .complete { return }
      guard try receiveCiphertext() else { throw ConnectionFailure("the connection was closed in the TLS handshake") }
    }
  }

  private func withTLS<Result>(_ body: (TLSConnection) throws(TLSError) -> Result) throws(ConnectionFailure) -> Result {
    guard let tls else { preconditionFailure("the connection has no TLS") }
    do throws(TLSError) {
      return try body(tls)
    } catch {
      // The ciphertext is the alert with the reason.
      try? sendCiphertext()
      throw ConnectionFailure(error)
    }
  }

  private func sendCiphertext() throws(ConnectionFailure) {
    var bytes = ByteQueue()
    tls?.takeCiphertext(into: &bytes)
    try sendPlain(bytes.bytes)
  }

  /// Returns false at the end of the stream.
  private func receiveCiphertext() throws(ConnectionFailure) -> Bool {
    var bytes = ByteQueue()
    let hasMore = try receivePlain(into: &bytes)
    if hasMore { tls?.receive(ciphertext: bytes.bytes) } else { tls?.receiveEndOfCiphertext() }
    return hasMore
  }

  // MARK: Bytes

  func send(_ bytes: [UInt8]) throws(ConnectionFailure) {
    guard tls != nil else { return try sendPlain(bytes.span) }
    try withTLS { tls throws(TLSError) in try tls.write(bytes.span) }
    try sendCiphertext()
  }

  /// Waits for bytes and appends them to `input`. Returns false at the end of the response, even if the call has
  /// appended the last bytes.
  func receive(into input: inout ByteQueue) throws(ConnectionFailure) -> Bool {
    if !isAtEnd { isAtEnd = try !receiveNext(into: &input) }
    return !isAtEnd
  }

  private func receiveNext(into input: inout ByteQueue) throws(ConnectionFailure) -> Bool {
    guard tls != nil else { return try receivePlain(into: &input) }
    _ = try receiveCiphertext()
    // All bytes that TLS has buffered are read now, since buffered bytes do not make `descriptor` readable.
    while true {
      switch try withTLS({ tls throws(TLSError) in try tls.read(into: &input, atMost: Self.pieceBytes) }) {
      case .bytes: break
      case .needsCiphertext:
        try sendCiphertext()
        return true
      case .closed: return false
      }
    }
  }

  /// Ends the output of the client, so that the gateway responds to a held request at once.
  func finishSending() {
    guard let tls else {
      shutdown(descriptor, Int32(SHUT_WR))
      return
    }
    tls.sendCloseNotify()
    // An error is ignored. If the connection has ended, the next `receive` reports that.
    try? sendCiphertext()
  }

  private func sendPlain(_ bytes: Span<UInt8>) throws(ConnectionFailure) {
    var sent = 0
    while sent < bytes.count {
      let rest = bytes.extracting(sent..<bytes.count)
      let count = unsafe rest.withUnsafeBytes {
        unsafe Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
      }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { throw failure() }
      sent += count
    }
  }

  /// Returns false at the end of the stream.
  private func receivePlain(into input: inout ByteQueue) throws(ConnectionFailure) -> Bool {
    while true {
      var count = 0
      _ = unsafe input.withWritableBytes(minimum: Self.pieceBytes) { buffer in
        count = unsafe recv(descriptor, buffer.baseAddress, buffer.count, 0)
        return max(0, count)
      }
      if count < 0, errno == EINTR { continue }
      guard count >= 0 else { throw failure() }
      return count > 0
    }
  }

  private func failure() -> ConnectionFailure {
    errno == EAGAIN || errno == EWOULDBLOCK
      ? ConnectionFailure("no response within \(Self.timeoutSeconds) s") : ConnectionFailure(code: errno)
  }
}
