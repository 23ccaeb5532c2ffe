import ByteStreams
import COpenSSL

/// The certificate and key of a TLS server, ready for use. One context serves any number of connections on any thread.
///
/// A context has its own keys for session tickets. A new context rejects the tickets of the previous context, so the
/// clients that have these tickets make a full handshake. The keys are rotated by the creation of a new context at
/// intervals (RFC 8446 §8.1, RFC 9325 §4.6).
///
/// There are no tickets if client certificates are used. When a TLS session is resumed, the certificate is not verified
/// again, so an expired or distrusted certificate would be accepted as long as its ticket is valid.
@safe
package final class TLSServerContext: Sendable {
  package let settings: TLSServerSettings
  /// When the first certificate of the chain expires: seconds since 1970 UTC.
  package let expiry: Int64
  // Sendable without a lock, for the reasons given in `TLSContext`. The keys of the tickets are made together with the
  // SSL_CTX and never change.
  private nonisolated(unsafe) let raw: OpaquePointer
  private let fingerprints: [[UInt8]]

  /// AEAD ciphers with forward secrecy only (RFC 9325 §4.2). TLS 1.3 has no other ciphers.
  private static var ciphers: String {
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384"
      + ":ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
  }
  private static var groups: String { "X25519:P-256:P-384" }
  /// How long a client may resume a TLS session, in seconds.
  private static var ticketLifetime: Int { 7200 }
  /// Maximum number of certificates between a client's certificate and its authority.
  private static var chainDepth: Int32 { 8 }
  /// Maximum size of a client's chain, in bytes. OpenSSL allocates the size that a client announces, by default up to
  /// 100 KB. A usual chain has less than 10 KB.
  private static var chainBytes: Int { 32 * 1024 }
  /// Maximum number of authorities named to clients. A longer list would enlarge every handshake. With more
  /// authorities, no list is sent, and clients choose a certificate by themselves.
  private static var namedAuthorities: Int { 100 }

  /// - Parameter contents: the bytes of each of `settings.files`, by path, as for `TLSContext`.
  package init(_ settings: TLSServerSettings, contents: [String: [UInt8]]) throws(TLSSettingsError) {
    let files = try Self.read(settings, contents)
    expiry = try Self.firstExpiry(in: files[0])
    ErrorQueue.clear()
    guard let raw = unsafe SSL_CTX_new(TLS_server_method()) else { throw .library(reason: ErrorQueue.drainText()) }
    unsafe self.raw = raw
    self.settings = settings
    fingerprints = files.map(\.fingerprint)
    try setProtocol()
    unsafe try ContextSetup.setCertificate(files[0], key: files[1], in: raw)
    if files.count > 2 { try requestCertificates(of: files[2]) }
  }

  deinit { unsafe SSL_CTX_free(raw) }

  /// Whether a file has changed since this context was built. Compares contents, as `TLSContext.rebuiltIfChanged`.
  package func differs(from contents: [String: [UInt8]]) throws(TLSSettingsError) -> Bool {
    try Self.read(settings, contents).map(\.fingerprint) != fingerprints
  }

  /// Creates an OpenSSL connection, owned by the caller.
  func makeConnection() -> OpaquePointer? { unsafe SSL_new(raw) }

  private static func read(
    _ settings: TLSServerSettings, _ contents: [String: [UInt8]]
  ) throws(TLSSettingsError) -> [PEMFile] {
    var files: [PEMFile] = []
    for (role, path) in settings.files {
      guard let bytes = contents[path] else { throw .unreadable(role, file: path, reason: "it was not read") }
      files.append(try PEMFile(bytes, named: path, for: role))
    }
    return files
  }

  private static func firstExpiry(in file: PEMFile) throws(TLSSettingsError) -> Int64 {
    var expiry = Int64.max
    try unsafe file.forEachCertificate { certificate throws(TLSSettingsError) in
      expiry = min(expiry, unsafe CertificateVerification.expiry(of: certificate))
    }
    return expiry
  }

  private func setProtocol() throws(TLSSettingsError) {
    unsafe ContextSetup.setOptions(of: raw)
    unsafe SSL_CTX_set_options(raw, copenssl_server_preference)
    guard unsafe copenssl_set_minimum_version(raw, settings.minimumVersion.wireNumber) == 1,
      unsafe copenssl_set_maximum_version(raw, TLSVersion.v1_3.wireNumber) == 1,
      unsafe SSL_CTX_set_cipher_list(raw, Self.ciphers) == 1, unsafe copenssl_set_groups(raw, Self.groups) == 1
    else { throw .library(reason: ErrorQueue.drainText()) }
    _ = unsafe SSL_CTX_set_timeout(raw, Self.ticketLifetime)
    if settings.clientCertificates != .none {
      unsafe SSL_CTX_set_options(raw, copenssl_no_ticket)
      unsafe SSL_CTX_set_num_tickets(raw, 0)
    }
    unsafe SSL_CTX_set_alpn_select_cb(
      raw,
      { _, selected, length, offered, count, _ in
        guard let selected = unsafe selected, let length = unsafe length, let offered = unsafe offered else {
          return SSL_TLSEXT_ERR_NOACK
        }
        guard let found = unsafe TLSServerContext.select(offered, Int(count)) else { return SSL_TLSEXT_ERR_ALERT_FATAL }
        unsafe selected.pointee = offered + found + 1
        unsafe length.pointee = offered[found]
        return SSL_TLSEXT_ERR_OK
      }, nil)
  }

  /// Returns the position of `http/1.1`, or else of `http/1.0`, in a client's list. If the list contains neither, for
  /// example only `h2`, the handshake fails (RFC 7301 §3.2).
  private static func select(_ offered: UnsafePointer<UInt8>, _ count: Int) -> Int? {
    let bytes = unsafe Span(_unsafeStart: offered, count: count)
    var result: Int?
    var position = 0
    while position < count {
      let length = Int(bytes[position])
      guard position + 1 + length <= count else { return nil }
      let name = bytes.extracting(position + 1..<position + 1 + length)
      if name.equals("http/1.1") { return position }
      if name.equals("http/1.0") { result = position }
      position += 1 + length
    }
    return result
  }

  private func requestCertificates(of authorities: PEMFile) throws(TLSSettingsError) {
    var names = 0
    unsafe try ContextSetup.trust(authorities, in: raw) { certificate in
      names += 1
      if names <= Self.namedAuthorities { unsafe SSL_CTX_add_client_CA(raw, certificate) }
    }
    unsafe ContextSetup.allowPartialChains(in: raw)
    if names > Self.namedAuthorities { unsafe SSL_CTX_set_client_CA_list(raw, nil) }
    unsafe SSL_CTX_set_verify_depth(raw, Self.chainDepth)
    _ = unsafe SSL_CTX_ctrl(raw, SSL_CTRL_SET_MAX_CERT_LIST, Self.chainBytes, nil)
    unsafe CertificateVerification.install(
      in: raw, mode: SSL_VERIFY_PEER | (settings.clientCertificates == .required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0))
  }
}
