import COpenSSL
import TLSEngine
import TLSSupport

/// The client side, implemented by OpenSSL with its own memory BIOs, without the code under test. It verifies nothing.
final class TestClient {
  struct Options {
    var versions: ClosedRange<Int32> = TLS1_2_VERSION...TLS1_3_VERSION
    /// The protocols offered by ALPN; none if empty.
    var protocols: [String] = []
    var identity: TestIdentity?
    /// The TLS session to resume.
    var session: TLSSession?
    var tls12Cipher: String?
  }

  /// A TLS session of an earlier connection.
  final class TLSSession {
    let raw: OpaquePointer
    init(_ raw: OpaquePointer) { self.raw = raw }
    deinit { SSL_SESSION_free(raw) }
  }

  private let context: OpaquePointer
  private let connection: OpaquePointer
  private let incoming: OpaquePointer
  private let outgoing: OpaquePointer
  private(set) var isComplete = false
  private(set) var isClosed = false
  private(set) var failureText: String?
  private(set) var received: [UInt8] = []

  init(_ options: Options = Options()) {
    context = SSL_CTX_new(TLS_client_method())!
    _ = copenssl_set_minimum_version(context, options.versions.lowerBound)
    _ = copenssl_set_maximum_version(context, options.versions.upperBound)
    if let identity = options.identity {
      SSL_CTX_use_certificate(context, identity.certificate)
      SSL_CTX_use_PrivateKey(context, identity.key)
    }
    if let cipher = options.tls12Cipher { SSL_CTX_set_cipher_list(context, cipher) }
    connection = SSL_new(context)!
    let offered = options.protocols.flatMap { [UInt8($0.utf8.count)] + Array($0.utf8) }
    if !offered.isEmpty { SSL_set_alpn_protos(connection, offered, UInt32(offered.count)) }
    if let session = options.session { SSL_set_session(connection, session.raw) }
    incoming = BIO_new(BIO_s_mem())!
    outgoing = BIO_new(BIO_s_mem())!
    SSL_set_bio(connection, incoming, outgoing)
    SSL_set_connect_state(connection)
  }

  deinit {
    SSL_free(connection)
    SSL_CTX_free(context)
  }

  var version: Int32 { SSL_version(connection) }
  var isResumed: Bool { SSL_session_reused(connection) == 1 }
  var session: TLSSession? { SSL_get1_session(connection).map(TLSSession.init) }
  var canResume: Bool { session.map { SSL_SESSION_is_resumable($0.raw) == 1 } ?? false }

  var applicationProtocol: String? {
    var selected: UnsafePointer<UInt8>?
    var count: UInt32 = 0
    SSL_get0_alpn_selected(connection, &selected, &count)
    return count == 0
      ? nil : String(decoding: UnsafeBufferPointer(start: selected, count: Int(count)), as: UTF8.self)
  }

  /// Takes the server's output and makes as much progress as possible.
  func receive(_ bytes: [UInt8] = []) {
    if !bytes.isEmpty { BIO_write(incoming, bytes, Int32(bytes.count)) }
    ERR_clear_error()
    if failureText != nil { return }
    if !isComplete {
      let result = SSL_do_handshake(connection)
      if result != 1 { return note(result) }
      isComplete = true
    }
    var buffer = [UInt8](repeating: 0, count: 16 << 10)
    while true {
      let count = SSL_read(connection, &buffer, Int32(buffer.count))
      if count <= 0 { return note(count) }
      received += buffer.prefix(Int(count))
    }
  }

  func send(_ bytes: [UInt8]) {
    ERR_clear_error()
    precondition(SSL_write(connection, bytes, Int32(bytes.count)) == Int32(bytes.count))
  }

  func sendCloseNotify() { SSL_shutdown(connection) }

  /// Returns the output for the server.
  func takeOutput() -> [UInt8] {
    var output: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      let count = BIO_read(outgoing, &buffer, Int32(buffer.count))
      if count <= 0 { return output }
      output += buffer.prefix(Int(count))
    }
  }

  private func note(_ result: Int32) {
    switch SSL_get_error(connection, result) {
    case SSL_ERROR_WANT_READ: break
    case SSL_ERROR_ZERO_RETURN: isClosed = true
    default: failureText = ERR_reason_error_string(ERR_get_error()).map { String(cString: $0) } ?? "no reason"
    }
  }
}
