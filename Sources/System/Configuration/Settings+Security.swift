import ByteStreams
import TLSEngine
import WebSocketCodec

/// TLS, and compression.
extension SettingSection {
  static func security(_ upstream: SettingScope<UpstreamSettings>) -> SettingSection {
    let tls = upstream.section("tls", \.tls)
    let compression = upstream.section("compression", \.compressionOffer)
    return SettingSection(
      settings: [
        tls("ca_file", \.trust.caFile, .optionalText, "certificates to trust (PEM)", flag: "ca-file"),
        tls("system_ca", \.trust.systemStore, .flag, "whether to trust the system's certificates too"),
        tls(
          "verify", \.verification, .verification, "whether the upstream must prove who it is; false is for tests only"),
        tls("server_name", \.serverName, .optionalText, "name to expect instead of the URL's host"),
        tls("pins", \.pins, .pins, "SHA-256 of public keys accepted, base64; none: any"),
        tls("client_certificate", \.certificateFile, .text, "our own certificate (PEM file)"),
        tls("client_key", \.keyFile, .text, "its private key (PEM file)"),
        tls("minimum_version", \.minimumVersion, .tlsVersion, "oldest TLS version accepted"),
        upstream("compression.offer", \.offersCompression, .flag, "whether to offer permessage-deflate"),
        compression("level", \.level, .count(1...9), "effort, 1 fast to 9 small"),
        compression("window_bits", \.windowBits, .count(9...15), "history, 2^n bytes"),
        compression("memory_level", \.memoryLevel, .count(1...9), "zlib's memory level"),
        compression("threshold", \.threshold, .size(0...(1 << 20)), "messages smaller than this go uncompressed"),
      ], rules: [tls.rule(pairProblems)])
  }

  private static func pairProblems(_ tls: TLSClientSettings) -> [SettingProblem] {
    guard tls.certificateFile.isEmpty != tls.keyFile.isEmpty else { return [] }
    return [
      SettingProblem(
        tls.keyFile.isEmpty ? "client_certificate" : "client_key", .none,
        "a certificate and its key belong together: give both or none")
    ]
  }
}
