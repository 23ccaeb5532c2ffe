import COpenSSL

/// The settings that the contexts of clients and servers have in common.
enum ContextSetup {
  static func setOptions(of raw: OpaquePointer) {
    // Both features are disabled because of attacks. By renegotiation, a TLS 1.2 peer could force expensive
    // computations (CVE-2011-1473). Compression revealed secrets by the length of the ciphertext (CRIME).
    unsafe SSL_CTX_set_options(raw, copenssl_no_renegotiation | copenssl_no_compression)
    // TLS sessions are not stored in this process. A server passes them to its clients, as tickets.
    unsafe copenssl_disable_session_cache(raw)
    // OpenSSL releases unused buffers, which saves about 34 KiB per idle connection.
    unsafe copenssl_set_mode(raw, Int(SSL_MODE_RELEASE_BUFFERS))
    // OpenSSL reads as many records at once as fit into the buffer. If it read records one by one, the buffer would be
    // freed and allocated again for each record.
    unsafe copenssl_enable_read_ahead(raw)
  }

  /// Adds the certificates of `file` to the trusted certificates, and calls `body` with each of them.
  static func trust(
    _ file: PEMFile, in raw: OpaquePointer, _ body: (OpaquePointer) -> Void = { _ in }
  ) throws(TLSSettingsError) {
    guard let store = unsafe SSL_CTX_get_cert_store(raw) else { throw .library(reason: ErrorQueue.drainText()) }
    try unsafe file.forEachCertificate { certificate throws(TLSSettingsError) in
      // The store takes its own reference. It is no error to add a certificate a second time.
      guard unsafe X509_STORE_add_cert(store, certificate) == 1 else {
        throw .library(reason: ErrorQueue.drainText())
      }
      unsafe body(certificate)
    }
  }

  /// Allows trusted certificates that are not roots. If an operator trusts an intermediate or a leaf, that is on
  /// purpose.
  static func allowPartialChains(in raw: OpaquePointer) {
    guard let store = unsafe SSL_CTX_get_cert_store(raw) else { return }
    unsafe X509_STORE_set_flags(store, UInt(X509_V_FLAG_PARTIAL_CHAIN))
  }

  /// Sets the certificate of this end with its intermediates, and its key.
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
    // OpenSSL compares the key with the certificate when the key is set.
    guard unsafe SSL_CTX_use_PrivateKey(raw, key) == 1, unsafe SSL_CTX_check_private_key(raw) == 1 else {
      ErrorQueue.clear()
      throw .keyDoesNotMatchCertificate(keyFile: keyFile.path, certificateFile: file.path)
    }
  }
}
