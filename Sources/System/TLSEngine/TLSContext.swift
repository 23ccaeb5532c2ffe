import ByteStreams
import COpenSSL

/// Settings made ready for use: certificates parsed, keys checked. One serves any number of connections on any thread.
///
/// Building one parses certificates and, for the system's store, reads some 150 from the disk: do it before the event loop
/// starts, or off it. The files of the settings are read by the caller, who decides how long that may take.
@safe
package final class TLSContext: Sendable {
  package let settings: TLSClientSettings
  // Sendable without a lock because nothing here changes after `init`: an SSL_CTX counts its references atomically and
  // locks its certificate store itself, and no session is cached in it.
  private nonisolated(unsafe) let raw: OpaquePointer
  private let fingerprints: [[UInt8]]

  /// `contents`: of each of `settings.files`, by path; up to a byte more than `TLSClientSettings.fileSizeLimit`.
  package init(_ settings: TLSClientSettings, contents: [String: [UInt8]] = [:]) throws(TLSSettingsError) {
    guard settings.minimumVersion <= settings.maximumVersion else {
      throw .invertedVersionRange(minimum: settings.minimumVersion, maximum: settings.maximumVersion)
    }
    if let name = settings.serverName { _ = try PeerName(name) }
    let files = try Files(settings, contents)
    ErrorQueue.clear()
    guard let raw = unsafe SSL_CTX_new(TLS_client_method()) else { throw .library(reason: ErrorQueue.drainText()) }
    unsafe self.raw = raw
    self.settings = settings
    fingerprints = files.fingerprints
    try setProtocol()
    if settings.verification == .full { try setTrust(files) }
    unsafe CertificateVerification.install(in: raw)
    if let certificate = files.certificate, let key = files.key { try setCertificate(certificate, key: key) }
  }

  deinit { unsafe SSL_CTX_free(raw) }

  /// A context of the same settings where a file has changed since this one was built; nil where none has.
  ///
  /// Compares contents, not dates: a secret that is mounted anew under the same name is noticed, and one that was only
  /// touched is not.
  package func rebuiltIfChanged(contents: [String: [UInt8]]) throws(TLSSettingsError) -> TLSContext? {
    guard try Files(settings, contents).fingerprints != fingerprints else { return nil }
    return try TLSContext(settings, contents: contents)
  }

  /// A new connection object of OpenSSL, owned by the caller.
  func makeConnection() -> OpaquePointer? { unsafe SSL_new(raw) }

  /// What was read from the disk.
  private struct Files {
    var authorities: PEMFile?
    var certificate: PEMFile?
    var key: PEMFile?

    init(_ settings: TLSClientSettings, _ contents: [String: [UInt8]]) throws(TLSSettingsError) {
      for (role, path) in settings.files {
        guard let bytes = contents[path] else { throw .unreadable(role, file: path, reason: "it was not read") }
        let file = try PEMFile(bytes, named: path, for: role)
        switch role {
        case .authorities: authorities = file
        case .certificate: certificate = file
        case .key: key = file
        }
      }
    }

    var fingerprints: [[UInt8]] { [authorities, certificate, key].map { $0?.fingerprint ?? [] } }
  }

  private func setProtocol() throws(TLSSettingsError) {
    guard unsafe copenssl_set_minimum_version(raw, settings.minimumVersion.wireNumber) == 1,
      unsafe copenssl_set_maximum_version(raw, settings.maximumVersion.wireNumber) == 1
    else { throw .library(reason: ErrorQueue.drainText()) }
    // A session lasts as long as its connection: every dial verifies the peer anew. Renegotiation is how TLS 1.2 let a peer
    // make us compute (CVE-2011-1473), compression how it told secrets by their length (CRIME).
    unsafe SSL_CTX_set_options(raw, copenssl_no_renegotiation | copenssl_no_ticket | copenssl_no_compression)
    unsafe copenssl_disable_session_cache(raw)
    // Some 34 KiB less a connection that is idle.
    unsafe copenssl_set_mode(raw, Int(SSL_MODE_RELEASE_BUFFERS))
    // Takes as many records at once as its buffer holds. One by one, that buffer would be freed and allocated for each.
    unsafe copenssl_enable_read_ahead(raw)
    var list: [UInt8] = []
    for name in settings.applicationProtocols {
      guard (1...255).contains(name.utf8.count) else { throw .badApplicationProtocol(name) }
      list.append(UInt8(name.utf8.count))
      list += name.utf8
    }
    guard !list.isEmpty else { return }
    // Zero is success here.
    guard unsafe SSL_CTX_set_alpn_protos(raw, list, UInt32(list.count)) == 0 else {
      throw .library(reason: ErrorQueue.drainText())
    }
  }

  private func setTrust(_ files: Files) throws(TLSSettingsError) {
    let trust = settings.trust
    guard trust.systemStore || files.authorities != nil || trust.caPEM != nil else { throw .nothingTrusted }
    guard let store = unsafe SSL_CTX_get_cert_store(raw) else { throw .library(reason: ErrorQueue.drainText()) }
    if trust.systemStore {
      let isLoaded = unsafe SystemTrustStore.load(into: raw)
      // With a CA file besides, a system without a store is no obstacle.
      guard isLoaded || files.authorities != nil || trust.caPEM != nil else { throw .noSystemStore }
    }
    var sources: [PEMFile] = []
    if let file = files.authorities { sources.append(file) }
    if let text = trust.caPEM {
      sources.append(try PEMFile(Array(text.utf8), named: "given as text", for: .authorities))
    }
    for source in sources {
      try unsafe source.forEachCertificate { certificate throws(TLSSettingsError) in
        // The store takes a reference of its own; one that it has already is no error.
        guard unsafe X509_STORE_add_cert(store, certificate) == 1 else {
          throw .library(reason: ErrorQueue.drainText())
        }
      }
    }
    // A trusted certificate need not be a root: who names an intermediate, or a self-signed leaf, means it.
    unsafe X509_STORE_set_flags(store, UInt(X509_V_FLAG_PARTIAL_CHAIN))
  }

  private func setCertificate(_ file: PEMFile, key keyFile: PEMFile) throws(TLSSettingsError) {
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
    // Setting a key compares it with the certificate that is there.
    guard unsafe SSL_CTX_use_PrivateKey(raw, key) == 1, unsafe SSL_CTX_check_private_key(raw) == 1 else {
      ErrorQueue.clear()
      throw .keyDoesNotMatchCertificate(keyFile: keyFile.path, certificateFile: file.path)
    }
  }
}
