import ByteStreams
import COpenSSL
import Digests

/// A PEM text in memory. It is read from the file only once, so that the fingerprint is made from exactly the bytes
/// that are parsed.
struct PEMFile {
  let path: String
  let role: TLSSettingsError.Role
  private let contents: [UInt8]

  init(_ contents: [UInt8], named path: String, for role: TLSSettingsError.Role) throws(TLSSettingsError) {
    guard contents.count <= TLSClientSettings.fileSizeLimit else {
      throw .unreadable(role, file: path, reason: "it is larger than 16 MiB")
    }
    self.path = path
    self.role = role
    self.contents = contents
  }

  var fingerprint: [UInt8] { Digest.sha256(contents.span) }

  /// Calls `body` with each certificate, in order. A certificate is freed after the call, unless `body` takes a
  /// reference. Throws if there is no certificate.
  func forEachCertificate(_ body: (OpaquePointer) throws(TLSSettingsError) -> Void) throws(TLSSettingsError) {
    let memory = try unsafe openMemory()
    defer { unsafe BIO_free(memory) }
    var index = 0
    while true {
      ErrorQueue.clear()
      guard let certificate = unsafe PEM_read_bio_X509(memory, nil, nil, nil) else { break }
      index += 1
      defer { unsafe X509_free(certificate) }
      try unsafe body(certificate)
    }
    let end = ErrorQueue.drain()
    // OpenSSL reports the end of the text as 'no start line'.
    guard let end, !end.isFrom(Int32(ERR_LIB_PEM), PEM_R_NO_START_LINE) else {
      if index == 0 { throw .noCertificate(role, file: path) }
      return
    }
    throw .malformedCertificate(role, file: path, index: index + 1, reason: end.text)
  }

  /// Returns the private key, which the caller frees.
  func readPrivateKey() throws(TLSSettingsError) -> OpaquePointer {
    let memory = try unsafe openMemory()
    defer { unsafe BIO_free(memory) }
    ErrorQueue.clear()
    var isEncrypted: Int32 = 0
    let key = unsafe copenssl_read_private_key(memory, &isEncrypted)
    ErrorQueue.clear()
    guard let key = unsafe key else {
      throw isEncrypted != 0 ? .encryptedPrivateKey(file: path) : .noPrivateKey(file: path)
    }
    return unsafe key
  }

  private func openMemory() throws(TLSSettingsError) -> OpaquePointer {
    // The memory BIO gets its own copy of the bytes, since a BIO over borrowed bytes could be used only inside a
    // closure.
    guard let memory = unsafe BIO_new(BIO_s_mem()) else { throw .library(reason: ErrorQueue.drainText()) }
    if !contents.isEmpty { unsafe BIO_write(memory, contents, Int32(contents.count)) }
    return unsafe memory
  }
}
