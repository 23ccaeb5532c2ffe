import COpenSSL

/// The certificates that the operating system trusts.
enum SystemTrustStore {
  /// The paths at which distributions have these certificates in one file. They are used if OpenSSL was built with
  /// other paths, as in a static build.
  private static let bundles: [String] = [
    "/etc/ssl/certs/ca-certificates.crt",  // Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",  // Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  // openSUSE
    "/etc/ssl/cert.pem",  // Alpine
  ]

  /// Adds these certificates to `context`. Returns false if no certificates were found.
  static func load(into context: OpaquePointer) -> Bool {
    defer { ErrorQueue.clear() }
    // These are OpenSSL's own paths, or the paths in SSL_CERT_FILE and SSL_CERT_DIR. A directory is searched only when
    // a chain is verified, so the success of this call does not mean that there is a certificate.
    unsafe SSL_CTX_set_default_verify_paths(context)
    if unsafe hasCertificates(context) { return true }
    for bundle in bundles where unsafe SSL_CTX_load_verify_file(context, bundle) == 1 { return true }
    return false
  }

  private static func hasCertificates(_ context: OpaquePointer) -> Bool {
    guard let store = unsafe SSL_CTX_get_cert_store(context) else { return false }
    return unsafe copenssl_store_count(store) > 0
  }
}
