import ByteStreams
import COpenSSL
import Digests

/// Validates the peer's certificate. OpenSSL validates the chain and the name. After that, the pins are compared.
enum CertificateVerification {
  /// - Parameter mode: the verification mode of OpenSSL. For a server, it also decides whether a client without a
  ///   certificate is refused.
  static func install(in context: OpaquePointer, mode: Int32) {
    // OpenSSL calls one callback for the whole chain instead of one per certificate. The callback decides, so OpenSSL's
    // verification is enabled even if the settings disable verification. After a failure, OpenSSL sends the matching
    // alert before this end sends data of its own, such as a client certificate.
    unsafe SSL_CTX_set_verify(context, mode, nil)
    unsafe SSL_CTX_set_cert_verify_callback(
      context,
      { store, _ in
        guard let store = unsafe store,
          let raw = unsafe X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()),
          let connection = unsafe TLSConnection.owner(of: OpaquePointer(raw))
        else { return 0 }
        guard let failure = unsafe CertificateVerification.verify(store, connection) else { return 1 }
        connection.verificationFailure = failure
        return 0
      }, nil)
    // Called when the peer requests the certificate of this end. If there is no certificate, the peer decides whether
    // that is a failure.
    unsafe SSL_CTX_set_cert_cb(
      context,
      { raw, _ in
        if let raw = unsafe raw { unsafe TLSConnection.owner(of: raw)?.wasCertificateRequested = true }
        return 1
      }, nil)
  }

  private static func verify(_ store: OpaquePointer, _ connection: TLSConnection) -> TLSError? {
    guard let leaf = unsafe X509_STORE_CTX_get0_cert(store) else {
      return .protocolViolation(reason: "it sent no certificate")
    }
    guard case .client(let context, let peerName) = connection.role else {
      return unsafe chainFailure(store, leaf, expected: "")
    }
    let settings = context.settings
    var keys: [PublicKeyPin] = []
    switch settings.verification {
    case .full:
      if let failure = unsafe chainFailure(store, leaf, expected: peerName.text) { return failure }
      guard !settings.pins.isEmpty else { return nil }
      let chain = unsafe X509_STORE_CTX_get0_chain(store)
      for index in 0..<(unsafe copenssl_chain_count(chain)) {
        if let certificate = unsafe copenssl_chain_certificate(chain, index) {
          unsafe keys.append(publicKeyPin(of: certificate))
        }
      }
    case .offForTestsOnly:
      guard !settings.pins.isEmpty else { return nil }
      // The handshake proves only that the peer has the key of the leaf. The other certificates are not verified here,
      // so their keys are not compared.
      keys = [unsafe publicKeyPin(of: leaf)]
    }
    if keys.contains(where: settings.pins.contains) { return nil }
    unsafe X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION)
    return unsafe .pinMismatch(presented: publicKeyPin(of: leaf))
  }

  /// - Parameter expected: the host that the certificate must name; empty for a client's certificate.
  private static func chainFailure(_ store: OpaquePointer, _ leaf: OpaquePointer, expected: String) -> TLSError? {
    if unsafe X509_verify_cert(store) == 1 { return nil }
    let code = unsafe X509_STORE_CTX_get_error(store)
    return unsafe failure(code, at: X509_STORE_CTX_get_current_cert(store) ?? leaf, leaf: leaf, expected)
  }

  private static func failure(
    _ code: Int32, at certificate: OpaquePointer, leaf: OpaquePointer, _ expected: String
  ) -> TLSError {
    switch code {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return unsafe .certificateExpired(subject: subject(of: certificate), at: expiry(of: certificate))
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return unsafe .certificateNotYetValid(
        subject: subject(of: certificate), from: copenssl_unix_seconds(X509_get0_notBefore(certificate)))
    case X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH:
      return unsafe .wrongHost(expected: expected, covers: names(in: leaf))
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      return unsafe .selfSignedCertificate(subject: subject(of: certificate))
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT,
      X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return unsafe .unknownIssuer(issuer: issuer(of: certificate))
    default:
      let reason = unsafe X509_verify_cert_error_string(Int(code)).map { unsafe String(cString: $0) }
      return unsafe .certificateRejected(subject: subject(of: certificate), reason: reason ?? "error \(code)")
    }
  }

  // MARK: Contents of a certificate

  static func subject(of certificate: OpaquePointer) -> String { unsafe text(X509_get_subject_name(certificate)) }

  static func issuer(of certificate: OpaquePointer) -> String { unsafe text(X509_get_issuer_name(certificate)) }

  static func expiry(of certificate: OpaquePointer) -> Int64 {
    unsafe copenssl_unix_seconds(X509_get0_notAfter(certificate))
  }

  static func publicKeyPin(of certificate: OpaquePointer) -> PublicKeyPin {
    var encoded: UnsafeMutablePointer<UInt8>?
    let length = unsafe Int(i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &encoded))
    defer { unsafe CRYPTO_free(encoded, #fileID, #line) }
    let bytes = unsafe UnsafeBufferPointer(start: encoded, count: max(length, 0))
    return unsafe PublicKeyPin(digest: Digest.sha256(Span(_unsafeElements: bytes)))
  }

  /// The first few host names that the certificate covers.
  private static func names(in certificate: OpaquePointer) -> [String] {
    var names: [String] = []
    var buffer = [CChar](repeating: 0, count: 256)
    for index in 0..<16 {
      let length = unsafe copenssl_alternative_name(certificate, Int32(index), &buffer, Int32(buffer.count))
      if length < 0 { break }
      if length > 0 { names.append(printable(buffer.prefix(Int(length)))) }
    }
    return names
  }

  private static func text(_ name: OpaquePointer?) -> String {
    var buffer = [CChar](repeating: 0, count: 512)
    let length = unsafe copenssl_name_text(name, &buffer, Int32(buffer.count))
    return length == 0 ? "(no subject)" : printable(buffer.prefix(Int(length)))
  }

  /// Replaces all characters that are not printable ASCII. The text of the peer is logged, and must not contain line
  /// ends or terminal escapes.
  static func printable(_ characters: ArraySlice<CChar>) -> String {
    String(decoding: characters.map { $0 > 0x1F && $0 < 0x7F ? UInt8($0) : UInt8(ascii: "?") }, as: UTF8.self)
  }
}
