import ByteStreams
import COpenSSL

/// One TLS connection, the client's end, as a machine over bytes: no socket, no waiting, no clock but OpenSSL's for dates.
///
/// The driver carries ciphertext both ways: `receive` what the socket gave, then `advanceHandshake()` until it is complete,
/// then `read` until it needs ciphertext; and after every call whatever `takeCiphertext` has goes to the socket — after a
/// failure too, for it may be the alert that tells the peer why.
///
///     handshaking ──advanceHandshake──▶ established ──close_notify received──▶ closedByPeer
///          └───────────────┬─────────────────┘
///                          ▼ any TLSError
///                       failed (final; every later call throws the same error)
///
/// Not Sendable: a connection belongs to one event loop.
@safe
package final class TLSConnection {
  package enum HandshakeStatus: Equatable, Sendable {
    case complete
    case needsCiphertext
  }

  package enum ReadResult: Equatable, Sendable {
    /// So many bytes were appended; there may be more.
    case bytes(Int)
    case needsCiphertext
    /// The peer said close_notify: this is all there will ever be.
    case closed
  }

  private enum Phase {
    case handshaking
    case established
    case closedByPeer
    case failed(TLSError)
  }

  let context: TLSContext
  let peerName: PeerName
  /// Set by the verification while the handshake runs.
  var verificationFailure: TLSError?
  var wasAskedForCertificate = false

  let raw: OpaquePointer
  private var phase = Phase.handshaking
  private var hasReceivedEnd = false
  private var hasSentCloseNotify = false
  private var input = ByteQueue()
  private var output = ByteQueue()

  /// A connection to `host`, written as in a URL: a name, an IPv4 address, or an IPv6 address with or without brackets.
  /// The context's `serverName` goes before it. The first bytes of the handshake come with the first `advanceHandshake()`.
  package init(to host: String, context: TLSContext) throws(TLSSettingsError) {
    let name = try PeerName(context.settings.serverName ?? host)
    ErrorQueue.clear()
    guard let raw = unsafe context.makeConnection() else { throw .library(reason: ErrorQueue.drainText()) }
    unsafe self.raw = raw
    self.context = context
    peerName = name
    guard let bio = unsafe CiphertextBIO.make(for: self) else { throw .library(reason: ErrorQueue.drainText()) }
    // For both directions; the connection owns it from here.
    unsafe SSL_set_bio(raw, bio, bio)
    unsafe SSL_set_connect_state(raw)
    guard setPeerName() else { throw .badServerName(name.text) }
  }

  deinit { unsafe SSL_free(raw) }

  private func setPeerName() -> Bool {
    guard let parameters = unsafe SSL_get0_param(raw) else { return false }
    if peerName.isAddress { return unsafe X509_VERIFY_PARAM_set1_ip_asc(parameters, peerName.text) == 1 }
    // `w*.example.com` is legal and nobody needs it; a host in the subject's common name went out with RFC 9525 §2.
    unsafe X509_VERIFY_PARAM_set_hostflags(
      parameters, UInt32(X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT))
    guard unsafe X509_VERIFY_PARAM_set1_host(parameters, peerName.text, peerName.text.utf8.count) == 1 else {
      return false
    }
    return unsafe copenssl_set_server_name(raw, peerName.text) == 1
  }

  // MARK: Ciphertext

  /// Takes bytes from the socket.
  package func receive(ciphertext: Span<UInt8>) { input.append(ciphertext) }

  /// The same without a copy: `body` appends to the queue that records are read from. It must not call this connection.
  package func receiveCiphertext<Result>(_ body: (inout ByteQueue) -> Result) -> Result { body(&input) }

  /// The peer will send no more. Without its close_notify before, reading ends in `.truncated`.
  package func receiveEndOfCiphertext() { hasReceivedEnd = true }

  /// Bytes received that OpenSSL has not taken yet (it takes up to a record ahead, some 16 KiB): what the driver bounds by
  /// not receiving while it does not read.
  package var receivedCiphertextCount: Int { input.count }

  package var hasPendingCiphertext: Bool { !output.isEmpty }
  package var pendingCiphertextCount: Int { output.count }

  /// Appends to `destination` all that is to be sent. Without a copy when `destination` is empty.
  package func takeCiphertext(into destination: inout ByteQueue) {
    if destination.isEmpty {
      swap(&destination, &output)
    } else {
      output.move(into: &destination)
    }
  }

  /// The same in place: `body` consumes from the queue what the socket took. It must not call this connection.
  package func sendCiphertext<Result>(_ body: (inout ByteQueue) -> Result) -> Result { body(&output) }

  /// Gives back the memory of empty queues and buffers: for a connection that will now wait. Some 19 KiB remain.
  package func releaseIdleStorage() {
    // By itself OpenSSL does so only after application data, not after the tickets that follow a handshake. Declines when
    // there is something in them.
    _ = unsafe SSL_free_buffers(raw)
    if input.isEmpty { input.releaseStorage() }
    if output.isEmpty { output.releaseStorage() }
  }

  /// For OpenSSL: fills `room` from what was received.
  func supplyCiphertext(_ room: UnsafeMutableRawBufferPointer) -> Int {
    unsafe input.move(into: room)
  }

  /// For OpenSSL: a record, or a flight of the handshake, to be sent.
  func acceptCiphertext(_ bytes: UnsafeRawBufferPointer) {
    _ = unsafe output.withWritableBytes(minimum: bytes.count) { room in
      unsafe room.copyMemory(from: bytes)
      return bytes.count
    }
  }

  /// The connection that drives `raw`. Nil for one that is not ours.
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

  /// Goes on with the handshake as far as the received bytes allow.
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

  // MARK: Plaintext

  /// Appends to `plaintext` what the received records hold, up to `limit` bytes.
  ///
  /// `.bytes` may be followed by more: call until `.needsCiphertext`, or hold back and call later. What was decrypted before
  /// a failure is handed out first; the next call throws.
  package func read(into plaintext: inout ByteQueue, atMost limit: Int) throws(TLSError) -> ReadResult {
    switch phase {
    case .handshaking: preconditionFailure("read in state handshaking")
    case .failed(let error): throw error
    case .closedByPeer: return .closed
    case .established: break
    }
    var total = 0
    reading: while total < limit {
      // OpenSSL reads ahead: records, or a part of one, may lie with it while our own queue is empty.
      if input.isEmpty, unsafe SSL_has_pending(raw) == 0 { break }
      let decrypted = unsafe Int(SSL_pending(raw))
      // Room for what is there, not for the largest record: a heartbeat must not cost 16 KiB.
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
    if hasReceivedEnd { throw fail(.truncated) }
    return .needsCiphertext
  }

  /// Encrypts all of `plaintext`, in records of at most 16 KiB. Gather small messages before: each call is a record at least.
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

  /// Says that nothing more will be written. The peer may go on (half-closed), and what it sends can still be read.
  /// Does nothing before the handshake is complete, after a failure, and the second time.
  package func sendCloseNotify() {
    guard isHandshakeComplete, !hasSentCloseNotify else { return }
    hasSentCloseNotify = true
    ErrorQueue.clear()
    // The outcome tells whether the peer's close_notify has come, which reading tells better.
    _ = unsafe SSL_shutdown(raw)
  }

  // MARK: Failure

  /// Plaintext of one record (RFC 8446 §5.1), and what a record adds to it at most: header, explicit nonce, MAC, padding.
  private static var recordSize: Int { 16_384 }
  private static var recordOverhead: Int { 128 }

  private func fail(_ error: TLSError) -> TLSError {
    phase = .failed(error)
    input.releaseStorage()
    return error
  }
}
