import COpenSSL
import TLSEngine

/// A certificate with its private key, made for one test.
package final class TestIdentity {
  package let certificate: OpaquePointer
  package let key: OpaquePointer

  init(certificate: OpaquePointer, key: OpaquePointer) {
    self.certificate = certificate
    self.key = key
  }

  deinit {
    X509_free(certificate)
    EVP_PKEY_free(key)
  }

  package var certificatePEM: String { Self.text { PEM_write_bio_X509($0, certificate) } }
  package var keyPEM: String { Self.text { PEM_write_bio_PrivateKey($0, key, nil, nil, 0, nil, nil) } }

  /// The pin of its public key, computed by OpenSSL alone.
  package var pin: PublicKeyPin {
    var encoded: UnsafeMutablePointer<UInt8>?
    let count = Int(i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &encoded))
    defer { CRYPTO_free(encoded, #fileID, #line) }
    var digest = [UInt8](repeating: 0, count: 32)
    precondition(EVP_Digest(encoded, count, &digest, nil, EVP_sha256(), nil) == 1)
    var base64 = [UInt8](repeating: 0, count: 45)
    precondition(EVP_EncodeBlock(&base64, digest, 32) == 44)
    return PublicKeyPin(String(decoding: base64.prefix(44), as: UTF8.self))!
  }

  /// The key, encrypted with a passphrase.
  package var encryptedKeyPEM: String {
    let phrase: [UInt8] = Array("secret".utf8)
    return Self.text { PEM_write_bio_PrivateKey($0, key, EVP_aes_128_cbc(), phrase, Int32(phrase.count), nil, nil) }
  }

  private static func text(_ write: (OpaquePointer?) -> Int32) -> String {
    let memory = BIO_new(BIO_s_mem())
    defer { BIO_free(memory) }
    precondition(write(memory) == 1)
    var buffer = [UInt8](repeating: 0, count: 16 << 10)
    let count = BIO_read(memory, &buffer, Int32(buffer.count))
    return String(decoding: buffer.prefix(Int(count)), as: UTF8.self)
  }
}

/// A certification authority that issues valid and invalid certificates for tests.
package final class TestAuthority {
  package let identity: TestIdentity

  package init(name: String = "Test CA") {
    identity = Self.issue(name, extensions: [(NID_basic_constraints, "critical,CA:TRUE")], by: nil)
  }

  /// Creates an intermediate authority, certified by `parent`.
  package init(name: String, under parent: TestAuthority) {
    identity = Self.issue(name, extensions: [(NID_basic_constraints, "critical,CA:TRUE")], by: parent.identity)
  }

  package var certificatePEM: String { identity.certificatePEM }

  /// A certificate for `names` (`DNS:…`, `IP:…`), valid between two moments given in seconds from now.
  package func issue(_ names: String?, from start: Int = -3600, to end: Int = 86_400, usage: String = "serverAuth")
    -> TestIdentity
  {
    Self.issue("Test leaf", extensions: Self.extensions(names, usage), from: start, to: end, by: identity)
  }

  package static func selfSigned(_ names: String) -> TestIdentity {
    issue("Lonely leaf", extensions: extensions(names, "serverAuth"), by: nil)
  }

  private static func extensions(_ names: String?, _ usage: String) -> [(Int32, String)] {
    [(NID_basic_constraints, "critical,CA:FALSE"), (NID_ext_key_usage, usage)]
      + (names.map { [(NID_subject_alt_name, $0)] } ?? [])
  }

  private static func issue(
    _ name: String, extensions: [(Int32, String)], from start: Int = -3600, to end: Int = 86_400,
    by issuer: TestIdentity?
  ) -> TestIdentity {
    let key = makeKey()
    let certificate = X509_new()!
    X509_set_version(certificate, 2)
    ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), UInt64.random(in: 1...(.max >> 1)))
    X509_gmtime_adj(X509_getm_notBefore(certificate), start)
    X509_gmtime_adj(X509_getm_notAfter(certificate), end)
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8, name, -1, -1, 0)
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer?.certificate ?? certificate))
    X509_set_pubkey(certificate, key)
    for (kind, value) in extensions {
      let made = X509V3_EXT_conf_nid(nil, nil, kind, value)
      precondition(made != nil, "bad extension in a test: \(value)")
      X509_add_ext(certificate, made, -1)
      X509_EXTENSION_free(made)
    }
    precondition(X509_sign(certificate, issuer?.key ?? key, EVP_sha256()) > 0)
    return TestIdentity(certificate: certificate, key: key)
  }

  private static func makeKey() -> OpaquePointer {
    let context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nil)
    defer { EVP_PKEY_CTX_free(context) }
    var key: OpaquePointer?
    EVP_PKEY_keygen_init(context)
    EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1)
    precondition(EVP_PKEY_keygen(context, &key) == 1)
    return key!
  }
}
