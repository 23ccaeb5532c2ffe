import ByteStreams
import TLSEngine
import Upstream
import WebSocketCodec

/// TLS, and compression.
extension SettingSection {
  static func security(_ upstream: SettingScope<UpstreamSettings>) -> SettingSection {
    let tls = upstream.section("tls", \.tls)
    let compression = upstream.section("compression", \.compressionOffer)
    return SettingSection(
      settings: [
        tls("ca_file", \.trust.caFile, .optionalPath, "PEM file of certificates to trust", flag: "ca-file"),
        tls("system_ca", \.trust.systemStore, .boolean, "trust the system's certificates"),
        tls(
          "verify", \.verification, .verification, "verify the upstream's certificate; false is for tests only"),
        tls(
          "server_name", \.serverName, .optionalText, "name to send (SNI) and to verify instead of the host of the URL"),
        tls("pins", \.pins, .pins, "accepted public keys: base64 of their SHA-256; empty: any"),
        tls("client_certificate", \.certificateFile, .path, "PEM file of the client certificate"),
        tls("client_key", \.keyFile, .path, "PEM file of the private key"),
        tls("minimum_version", \.minimumVersion, .tlsVersion, "minimum TLS version"),
        upstream("compression.offer", \.offersCompression, .boolean, "offer permessage-deflate"),
        compression("level", \.level, .count(1...9), "compression level, 1 (fast) to 9 (small)"),
        compression("window_bits", \.windowBits, .count(9...15), "window for outgoing messages, 2^n bytes"),
        compression("memory_level", \.memoryLevel, .count(1...9), "zlib's memLevel"),
        compression("threshold", \.threshold, .size(0...(1 << 20)), "messages below this size are sent uncompressed"),
      ], rules: [tls.rule(pairProblems)])
  }

  private static func pairProblems(_ tls: TLSClientSettings) -> [SettingProblem] {
    guard tls.certificateFile.isEmpty != tls.keyFile.isEmpty else { return [] }
    return [
      SettingProblem(
        tls.keyFile.isEmpty ? "client_certificate" : "client_key", .none,
        "client_certificate and client_key belong together: set both or none")
    ]
  }
}

extension TLSClientSettings {
  /// The files of the client certificate. A path is empty if it is not set. A rule requires that both are set or
  /// neither is.
  var certificateFile: String {
    get { clientCertificate?.certificateFile ?? "" }
    set { setClientCertificate(newValue, keyFile) }
  }
  var keyFile: String {
    get { clientCertificate?.keyFile ?? "" }
    set { setClientCertificate(certificateFile, newValue) }
  }

  private mutating func setClientCertificate(_ certificate: String, _ key: String) {
    let isSet = !certificate.isEmpty || !key.isEmpty
    clientCertificate = isSet ? ClientCertificate(certificateFile: certificate, keyFile: key) : nil
  }
}
