import COpenSSL

/// The settings that the contexts of clients and servers have in common.
enum ContextSetup {
  static func setOptions(of raw: OpaquePointer) {
    // Renegotiation let a TLS 1.2 peer force expensive computations (CVE-2011-1473). Compression revealed secrets
    // through their length (CRIME).
    unsafe SSL_CTX_set_options(raw, copenssl_no_renegotiation | copenssl_no_compression)
    // TLS sessions are not stored here. A server passes them to its clients, as tickets.
    unsafe copenssl_disable_session_cache(raw)
    // Saves about 34 KiB per idle connection.
    unsafe copenssl_set_mode(raw, Int(SSL_MODE_RELEASE_BUFFERS))
    // Reads as many records at once as the buffer holds. If records were read one by one, the buffer would be freed and
    // allocated again for each record.
    unsafe copenssl_enable_read_ahead(raw)
  }

  /// Trusts the certificates of `file`, and calls `body` with each.
  static func trust(
    _ file: PEMFile, in raw: OpaquePointer, _ body: (OpaquePointer) -> Void = { _ in }
  ) throws(TLSSettingsError) {
    guard let store = unsafe SSL_CTX_get_cert_store(raw) else { throw .library(reason: ErrorQueue.drainText()) }
    try unsafe file.forEachCertificate { certificate throws(TLSSettingsError) in
      // The store takes its own reference. Adding a certificate again is not an error.
      guard unsafe X509_STORE_add_cert(store, certificate) == 1 else {
        throw .library(reason: ErrorQueue.drainText())
      }
      unsafe body(certificate)
    }
  }

  /// A trusted certificate need not be a root: an intermediate or a self-signed leaf is trusted on purpose.
  static func allowPartialChains(in raw: OpaquePointer) {
    guard let store = unsafe SSL_CTX_get_cert_store(raw) else { return }
    unsafe X509_STORE_set_flags(store, UInt(X509_V_FLAG_PARTIAL_CHAIN))
  }

  /// Sets our own certificate with its intermediates, and its key.
  static func setCertificate(
    _ file: PEMFile, key keyFile: PEMFile, in raw: OpaquePointer
  ) throws(TLSSettingsError) {
    var isFirst = true
    try unsafe file.forEachCertificate { certificate throws(TLSSettingsError) in
      if isFirst {
        isFirst = false
        guard unsafe SSL_CTX_use_certificate(raw, certificate) == 1 else {
          throw .unusableCertificate(file: file.path, reason: ErrorQueue.drainText())
        }
      } else {
        unsafe X509_up_ref(certificate)
        guard unsafe copenssl_add_chain_certificate(raw, certificate) == 1 else {
          unsafe X509_free(certificate)
          throw .unusableCertificate(file: file.path, reason: ErrorQueue.drainText())
        }
      }
    }
    let key = try unsafe keyFile.readPrivateKey()
    defer { unsafe EVP_PKEY_free(key) }
    // Setting a key compares it with the current certificate.
    guard unsafe SSL_CTX_use_PrivateKey(raw, key) == 1, unsafe SSL_CTX_check_private_key(raw) == 1 else {
      ErrorQueue.clear()
      throw .keyDoesNotMatchCertificate(keyFile: keyFile.path, certificateFile: file.path)
    }
  }
}
