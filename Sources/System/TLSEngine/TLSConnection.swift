import ByteStreams
import COpenSSL

/// One end of a TLS connection, as a state machine over bytes. It has no socket and never waits. Only OpenSSL reads the
/// clock, for the dates of certificates.
///
/// The driver moves ciphertext in both directions. It passes received bytes to `receive`. It calls `advanceHandshake()`
/// until the handshake is complete, and after that `read` until more ciphertext is needed. After every call, the driver
/// sends the bytes that `takeCiphertext` returns. It does so even after a failure, since the ciphertext may be the
/// alert that reports the reason to the peer.
///
///     handshaking ──advanceHandshake──▶ established ──close_notify received──▶ closedByPeer
///          └───────────────┬─────────────────┘
///                          ▼ any TLSError but .truncated
///                       failed (final; every later call throws the same error)
///
/// Not Sendable: a connection belongs to one event loop.
@safe
@usableFromInline
package final class TLSConnection {
  package enum HandshakeStatus: Equatable, Sendable {
    case complete
    case needsCiphertext
  }

  package enum ReadResult: Equatable, Sendable {
    /// Number of bytes that were appended. There may be more bytes to read.
    case bytes(Int)
    case needsCiphertext
    /// The peer has sent close_notify, so there will be no more bytes.
    case closed
  }

  private enum Phase {
    case handshaking
    case established
    case closedByPeer
    case failed(TLSError)
  }

  /// The end of the connection that this object implements, with its settings.
  enum Role {
    case client(TLSContext, PeerName)
    case server(TLSServerContext)
  }

  let role: Role
  /// The failure that the verification of the certificate has found; nil if it has found none.
  var verificationFailure: TLSError?
  var wasCertificateRequested = false

  let raw: OpaquePointer
  private var phase = Phase.handshaking
  private var hasReceivedEnd = false
  private var hasSentCloseNotify = false
  private var input = ByteQueue()
  private var output = ByteQueue()

  /// Creates a connection to `host`, written as in a URL: a name, an IPv4 address, or an IPv6 address with or without
  /// brackets. If the context has a `serverName`, that name replaces `host`. The first `advanceHandshake()` produces
  /// the first bytes of the handshake.
  package convenience init(to host: String, context: TLSContext) throws(TLSSettingsError) {
    let name = try PeerName(context.settings.serverName ?? host)
    unsafe try self.init(.client(context, name)) { unsafe context.makeConnection() }
    unsafe SSL_set_connect_state(raw)
    guard set(name) else { throw .badServerName(name.text) }
  }

  /// Creates the server's end. The client begins the handshake.
  package convenience init(accepting context: TLSServerContext) throws(TLSSettingsError) {
    unsafe try self.init(.server(context)) { unsafe context.makeConnection() }
    unsafe SSL_set_accept_state(raw)
  }

  private init(_ role: Role, _ make: () -> OpaquePointer?) throws(TLSSettingsError) {
    ErrorQueue.clear()
    guard let raw = unsafe make() else { throw .library(reason: ErrorQueue.drainText()) }
    unsafe self.raw = raw
    self.role = role
    guard let bio = unsafe CiphertextBIO.make(for: self) else { throw .library(reason: ErrorQueue.drainText()) }
    // One BIO is used for both directions. From here on, the OpenSSL connection owns it.
    unsafe SSL_set_bio(raw, bio, bio)
  }

  deinit { unsafe SSL_free(raw) }

  private func set(_ peerName: PeerName) -> Bool {
    guard let parameters = unsafe SSL_get0_param(raw) else { return false }
    if peerName.isAddress { return unsafe X509_VERIFY_PARAM_set1_ip_asc(parameters, peerName.text) == 1 }
    // RFC 9525 allows a wildcard only as a whole label (§6.3), so not `w*.example.com`. It does not allow a host in the
    // subject's common name (§2).
    unsafe X509_VERIFY_PARAM_set_hostflags(
      parameters, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT))
    guard unsafe X509_VERIFY_PARAM_set1_host(parameters, peerName.text, peerName.text.utf8.count) == 1 else {
      return false
    }
    return unsafe copenssl_set_server_name(raw, peerName.text) == 1
  }

  // MARK: Ciphertext

  /// Takes bytes that were received from the socket.
  package func receive(ciphertext: Span<UInt8>) { input.append(ciphertext) }

  /// Like `receive`, but without a copy: `body` appends to the queue from which records are read. `body` must not call
  /// this connection.
  package func receiveCiphertext<Result>(_ body: (inout ByteQueue) -> Result) -> Result { body(&input) }

  /// Reports that the peer will send no more bytes. If it has not sent close_notify, `read` throws `.truncated` from
  /// now on.
  package func receiveEndOfCiphertext() { hasReceivedEnd = true }

  /// The number of received bytes that OpenSSL has not read yet. (OpenSSL reads up to a record ahead, about 16 KiB.)
  /// As long as a driver does not call `read`, it receives no bytes, so that this number stays small.
  package var receivedCiphertextCount: Int { input.count }

  package var hasPendingCiphertext: Bool { !output.isEmpty }
  @usableFromInline package var pendingCiphertextCount: Int { output.count }

  /// Appends to `destination` all bytes that must be sent. Moves them without a copy if `destination` is empty.
  package func takeCiphertext(into destination: inout ByteQueue) {
    if destination.isEmpty {
      swap(&destination, &output)
    } else {
      output.move(into: &destination)
    }
  }

  /// Like `takeCiphertext`, but in place: `body` removes from the queue the bytes that the socket has accepted. `body`
  /// must not call this connection.
  package func sendCiphertext<Result>(_ body: (inout ByteQueue) -> Result) -> Result { body(&output) }

  /// Releases the memory of empty queues and buffers, for a connection that becomes idle. About 19 KiB remain.
  package func releaseIdleStorage() {
    // OpenSSL frees its buffers by itself only after application data, and not after the tickets that follow a
    // handshake. This call has no effect if the buffers are in use.
    _ = unsafe SSL_free_buffers(raw)
    if input.isEmpty { input.releaseStorage() }
    if output.isEmpty { output.releaseStorage() }
  }

  /// Called by OpenSSL. Fills `room` with received bytes, and returns their number.
  func readCiphertext(_ room: UnsafeMutableRawBufferPointer) -> Int {
    unsafe input.move(into: room)
  }

  /// Called by OpenSSL. Queues a record, or several records of the handshake, which must be sent.
  func writeCiphertext(_ bytes: UnsafeRawBufferPointer) {
    _ = unsafe output.withWritableBytes(minimum: bytes.count) { room in
      unsafe room.copyMemory(from: bytes)
      return bytes.count
    }
  }

  /// The connection that owns `raw`; nil if `TLSConnection` did not create it.
  static func owner(of raw: OpaquePointer) -> TLSConnection? {
    guard let bio = unsafe SSL_get_rbio(raw), let data = unsafe BIO_get_data(bio) else { return nil }
    return unsafe Unmanaged<TLSConnection>.fromOpaque(data).takeUnretainedValue()
  }

  // MARK: Handshake

  package var isHandshakeComplete: Bool {
    switch phase {
    case .established, .closedByPeer: true
    case .handshaking, .failed: false
    }
  }

  /// Continues the handshake as far as it can with the bytes received so far.
  package func advanceHandshake() throws(TLSError) -> HandshakeStatus {
    switch phase {
    case .failed(let error): throw error
    case .established, .closedByPeer: return .complete
    case .handshaking: break
    }
    ErrorQueue.clear()
    let result = unsafe SSL_do_handshake(raw)
    if result == 1 {
      phase = .established
      return .complete
    }
    switch unsafe SSL_get_error(raw, result) {
    case SSL_ERROR_WANT_READ:
      if hasReceivedEnd { throw fail(.closedDuringHandshake) }
      return .needsCiphertext
    case SSL_ERROR_ZERO_RETURN: throw fail(.closedDuringHandshake)
    default: throw fail(classifiedFailure())
    }
  }

  /// Whether the handshake has resumed an earlier TLS session.
  package var isResumed: Bool { unsafe SSL_session_reused(raw) == 1 }

  /// The client's verified certificate; nil if the client has sent no certificate. Valid at a server, after the
  /// handshake.
  package var clientCertificate: ClientCertificate? {
    guard case .server = role, isHandshakeComplete, unsafe SSL_get_verify_result(raw) == Int(X509_V_OK),
      let certificate = unsafe SSL_get0_peer_certificate(raw)
    else { return nil }
    return unsafe ClientCertificate(certificate)
  }

  // MARK: Plaintext

  /// Whether `read` may return bytes, or the end of the stream, without further ciphertext.
  package var hasBufferedInput: Bool {
    unsafe isClosedByPeer || hasReceivedEnd || !input.isEmpty || SSL_has_pending(raw) == 1
  }

  /// Whether the peer has sent close_notify and everything before it has been read.
  package var isClosedByPeer: Bool { if case .closedByPeer = phase { true } else { false } }

  /// Decrypts received records and appends up to `limit` bytes to `plaintext`.
  ///
  /// After `.bytes` there may be more bytes. The driver must call `read` again until it returns `.needsCiphertext`. To
  /// slow the peer down, the driver may delay the next call. If a failure follows bytes that were decrypted, these
  /// bytes are returned first, and the next call throws.
  package func read(into plaintext: inout ByteQueue, atMost limit: Int) throws(TLSError) -> ReadResult {
    switch phase {
    case .handshaking: preconditionFailure("read in state handshaking")
    case .failed(let error): throw error
    case .closedByPeer: return .closed
    case .established: break
    }
    var total = 0
    reading: while total < limit {
      // OpenSSL reads ahead, so it may have records or a part of a record even if `input` is empty.
      if input.isEmpty, unsafe SSL_has_pending(raw) == 0 { break }
      let decrypted = unsafe Int(SSL_pending(raw))
      // The room is for the available bytes and not for the largest record, so that a heartbeat does not cost 16 KiB.
      let room = min(limit - total, max(decrypted, min(input.count, Self.recordSize), 64))
      ErrorQueue.clear()
      var result: Int32 = 0
      total += unsafe plaintext.withWritableBytes(minimum: room) { buffer in
        var count = 0
        result = unsafe SSL_read_ex(raw, buffer.baseAddress, min(buffer.count, limit - total), &count)
        return result == 1 ? count : 0
      }
      if result == 1 { continue }
      switch unsafe SSL_get_error(raw, result) {
      case SSL_ERROR_WANT_READ: break reading
      case SSL_ERROR_ZERO_RETURN:
        phase = .closedByPeer
        input.releaseStorage()
        break reading
      default:
        let error = fail(classifiedFailure())
        if total == 0 { throw error }
        break reading
      }
    }
    if total > 0 || limit <= 0 { return .bytes(total) }
    if case .closedByPeer = phase { return .closed }
    // The peer may have closed only its sending side. So `read` throws this error, and the connection can still write.
    if hasReceivedEnd { throw .truncated }
    return .needsCiphertext
  }

  /// Encrypts all of `plaintext`, in records of at most 16 KiB. Each call makes at least one record, so callers should
  /// combine small messages. Must not be called before the handshake is complete or after `sendCloseNotify()`.
  package func write(_ plaintext: Span<UInt8>) throws(TLSError) {
    switch phase {
    case .handshaking: preconditionFailure("write in state handshaking")
    case .failed(let error): throw error
    case .established, .closedByPeer: break
    }
    precondition(!hasSentCloseNotify, "write after close_notify was sent")
    guard !plaintext.isEmpty else { return }
    output.reserve(plaintext.count + (plaintext.count / Self.recordSize + 1) * Self.recordOverhead)
    ErrorQueue.clear()
    var count = 0
    let result = unsafe plaintext.withUnsafeBytes { unsafe SSL_write_ex(raw, $0.baseAddress, $0.count, &count) }
    guard result == 1, count == plaintext.count else { throw fail(classifiedFailure()) }
  }

  /// Sends close_notify, after which nothing can be written. The peer may continue to send, and `read` still works.
  /// Does nothing before the handshake is complete, after a failure, and on repeated calls.
  package func sendCloseNotify() {
    guard isHandshakeComplete, !hasSentCloseNotify else { return }
    hasSentCloseNotify = true
    ErrorQueue.clear()
    // The result is ignored: it says whether the peer's close_notify has arrived, which `read` reports.
    _ = unsafe SSL_shutdown(raw)
  }

  // MARK: Failure

  /// Maximum plaintext of one record (RFC 8446 §5.1), and the maximum number of bytes that a record adds to its
  /// plaintext: header, explicit nonce, MAC and padding.
  private static var recordSize: Int { 16_384 }
  private static var recordOverhead: Int { 128 }

  private func fail(_ error: TLSError) -> TLSError {
    phase = .failed(error)
    input.releaseStorage()
    return error
  }
}
