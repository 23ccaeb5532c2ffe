import ByteStreams
import COpenSSL

/// Validated settings that are ready for use: certificates are parsed, and keys are checked. One context serves any
/// number of connections on any thread.
///
/// The creation of a context parses certificates, and reads about 150 certificates from disk if the system's store is
/// used. So a context must be created before the event loop starts, or on another thread. The caller reads the files of
/// the settings, with its own timeout.
@safe
package final class TLSContext: Sendable {
  package let settings: TLSClientSettings
  // Sendable without a lock, since nothing changes after `init`. An SSL_CTX counts its references atomically, and locks
  // its certificate store itself. It caches no TLS sessions.
  private nonisolated(unsafe) let raw: OpaquePointer
  private let fingerprints: [[UInt8]]

  /// - Parameter contents: the bytes of each of `settings.files`, by path. The caller must read one byte more than
  ///   `TLSClientSettings.fileSizeLimit`, so that a larger file is refused and not truncated.
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
    unsafe CertificateVerification.install(in: raw, mode: SSL_VERIFY_PEER)
    if let certificate = files.certificate, let key = files.key {
      unsafe try ContextSetup.setCertificate(certificate, key: key, in: raw)
    }
  }

  deinit { unsafe SSL_CTX_free(raw) }

  /// Returns a new context with the same settings if a file has changed since this context was built; otherwise nil.
  ///
  /// Compares the contents of files and not their dates. So a secret that was mounted again under the same name is
  /// detected, and a new date without a new content is ignored.
  package func rebuiltIfChanged(contents: [String: [UInt8]]) throws(TLSSettingsError) -> TLSContext? {
    guard try Files(settings, contents).fingerprints != fingerprints else { return nil }
    return try TLSContext(settings, contents: contents)
  }

  /// Creates an OpenSSL connection, owned by the caller.
  func makeConnection() -> OpaquePointer? { unsafe SSL_new(raw) }

  /// The files of the settings.
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
        case .serverCertificate, .serverKey, .clientAuthorities: break
        }
      }
    }

    var fingerprints: [[UInt8]] { [authorities, certificate, key].map { $0?.fingerprint ?? [] } }
  }

  private func setProtocol() throws(TLSSettingsError) {
    guard unsafe copenssl_set_minimum_version(raw, settings.minimumVersion.wireNumber) == 1,
      unsafe copenssl_set_maximum_version(raw, settings.maximumVersion.wireNumber) == 1
    else { throw .library(reason: ErrorQueue.drainText()) }
    unsafe ContextSetup.setOptions(of: raw)
    // TLS sessions are not resumed, so every connection attempt verifies the peer again.
    unsafe SSL_CTX_set_options(raw, copenssl_no_ticket)
    var list: [UInt8] = []
    for name in settings.applicationProtocols {
      guard (1...255).contains(name.utf8.count) else { throw .badApplicationProtocol(name) }
      list.append(UInt8(name.utf8.count))
      list += name.utf8
    }
    guard !list.isEmpty else { return }
    // 0 means success here.
    guard unsafe SSL_CTX_set_alpn_protos(raw, list, UInt32(list.count)) == 0 else {
      throw .library(reason: ErrorQueue.drainText())
    }
  }

  private func setTrust(_ files: Files) throws(TLSSettingsError) {
    let trust = settings.trust
    guard trust.systemStore || files.authorities != nil || trust.caPEM != nil else { throw .noTrustedCertificate }
    if trust.systemStore {
      let isLoaded = unsafe SystemTrustStore.load(into: raw)
      // If there are other trusted certificates, a missing system store is not an error.
      guard isLoaded || files.authorities != nil || trust.caPEM != nil else { throw .noSystemStore }
    }
    var sources: [PEMFile] = []
    if let file = files.authorities { sources.append(file) }
    if let text = trust.caPEM {
      sources.append(try PEMFile(Array(text.utf8), named: "given as text", for: .authorities))
    }
    for source in sources { unsafe try ContextSetup.trust(source, in: raw) }
    unsafe ContextSetup.allowPartialChains(in: raw)
  }
}
