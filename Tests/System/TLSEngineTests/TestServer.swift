import COpenSSL
import TLSSupport

/// The server side, implemented by OpenSSL with its own memory BIOs, without the code under test.
final class TestServer {
  struct Options {
    var versions: ClosedRange<Int32> = TLS1_2_VERSION...TLS1_3_VERSION
    /// Whether the server selects `http/1.1` by ALPN.
    var selectsProtocol = true
    /// The authority whose client certificates the server requires; nil if it requests none.
    var clientAuthority: TestAuthority?
    /// The intermediate certificate, sent after the leaf.
    var intermediate: TestAuthority?
    var tls12Cipher: String?
  }

  private let context: OpaquePointer
  private let connection: OpaquePointer
  private let incoming: OpaquePointer
  private let outgoing: OpaquePointer
  private(set) var isComplete = false
  private(set) var hasFailed = false
  private(set) var isClosed = false
  private(set) var failureText = ""
  private(set) var received: [UInt8] = []

  init(_ identity: TestIdentity, _ options: Options = Options()) {
    context = SSL_CTX_new(TLS_server_method())!
    SSL_CTX_use_certificate(context, identity.certificate)
    SSL_CTX_use_PrivateKey(context, identity.key)
    _ = copenssl_set_minimum_version(context, options.versions.lowerBound)
    _ = copenssl_set_maximum_version(context, options.versions.upperBound)
    if let cipher = options.tls12Cipher { SSL_CTX_set_cipher_list(context, cipher) }
    if let intermediate = options.intermediate {
      X509_up_ref(intermediate.identity.certificate)
      _ = copenssl_add_chain_certificate(context, intermediate.identity.certificate)
    }
    if let authority = options.clientAuthority {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.identity.certificate)
      SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nil)
    }
    if options.selectsProtocol {
      SSL_CTX_set_alpn_select_cb(
        context,
        { _, selected, length, offered, count, _ in
          guard let offered, count >= 9 else { return SSL_TLSEXT_ERR_NOACK }
          selected?.pointee = offered + 1
          length?.pointee = offered[0]
          return SSL_TLSEXT_ERR_OK
        }, nil)
    }
    connection = SSL_new(context)!
    incoming = BIO_new(BIO_s_mem())!
    outgoing = BIO_new(BIO_s_mem())!
    SSL_set_bio(connection, incoming, outgoing)
    SSL_set_accept_state(connection)
  }

  deinit {
    SSL_free(connection)
    SSL_CTX_free(context)
  }

  /// The host name that the client sent by SNI.
  var requestedName: String? {
    SSL_get_servername(connection, TLSEXT_NAMETYPE_host_name).map { String(cString: $0) }
  }

  /// The agreed version: `TLS1_2_VERSION` or `TLS1_3_VERSION`.
  var version: Int32 { SSL_version(connection) }

  /// The protocol that ALPN has selected.
  var applicationProtocol: String? {
    var selected: UnsafePointer<UInt8>?
    var count: UInt32 = 0
    SSL_get0_alpn_selected(connection, &selected, &count)
    return count == 0
      ? nil : String(decoding: UnsafeBufferPointer(start: selected, count: Int(count)), as: UTF8.self)
  }

  var hasClientCertificate: Bool { SSL_get0_peer_certificate(connection) != nil }

  /// Takes the client's output and makes as much progress as possible.
  func receive(_ bytes: [UInt8]) {
    if !bytes.isEmpty { BIO_write(incoming, bytes, Int32(bytes.count)) }
    ERR_clear_error()
    if hasFailed { return }
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
    if !bytes.isEmpty { precondition(SSL_write(connection, bytes, Int32(bytes.count)) == Int32(bytes.count)) }
  }

  func sendCloseNotify() { SSL_shutdown(connection) }

  /// Requests new keys for both directions (RFC 8446 §4.6.3).
  func updateKeys() {
    precondition(SSL_key_update(connection, SSL_KEY_UPDATE_REQUESTED) == 1)
    precondition(SSL_do_handshake(connection) == 1)
  }

  /// Requests a renegotiation of a TLS 1.2 client.
  func requestRenegotiation() {
    precondition(SSL_renegotiate(connection) == 1)
    SSL_do_handshake(connection)
  }

  /// Returns the output for the client.
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
    default:
      hasFailed = true
      failureText = ERR_reason_error_string(ERR_get_error()).map { String(cString: $0) } ?? "no reason"
    }
  }
}
