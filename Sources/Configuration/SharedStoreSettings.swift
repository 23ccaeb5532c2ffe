import ByteStreams
import RedisProtocol
import TLSEngine

/// The Redis that stores the sessions of several gateways (`store.engine: redis`).
package struct SharedStoreSettings: Equatable, Sendable {
  /// A URL as it was written, with its credentials.
  package struct Location: Equatable, Sendable {
    package let url: RedisURL
    let text: String
  }

  /// The server. If there are Sentinels, the host of this URL is ignored, but the user, password, database and scheme
  /// are used.
  package var location: Location?
  /// The Sentinels. If empty, `location` is the server.
  package var sentinels: [Location] = []
  /// The name of the primary at the Sentinels.
  package var sentinelName = "main"
  /// The password, which replaces the URL's password; empty to use the URL's password.
  package var password = ""
  package var tls = TLSClientSettings()
  /// The prefix of all keys. Gateways with the same prefix share their sessions.
  package var prefix = ""
  /// Number of Redis replicas that must have a change before the change is treated as stored. nil means 1 with
  /// Sentinels, and 0 without.
  package var waitReplicas: Int?
  /// How long a gateway remains the holder of its sessions after its last heartbeat.
  package var lease = TimeSpan.seconds(5)

  package init() {}

  /// The server with the password. If there are Sentinels and no URL, the host is a placeholder.
  package var server: RedisURL? {
    var url = location?.url
    if url == nil, !sentinels.isEmpty { url = try? RedisURL("redis://sentinel") }
    if !password.isEmpty { url?.credentials.password = password }
    return url
  }

  package var replicas: Int { waitReplicas ?? (sentinels.isEmpty ? 0 : 1) }
}

extension ValueFormat where Value == SharedStoreSettings.Location? {
  /// A URL. An empty text means that there is no URL (nil).
  static var redisURL: ValueFormat {
    ValueFormat(
      expectation: "a URL such as redis://127.0.0.1:6379 or rediss://user@redis.example.org/0", isURL: true,
      reader: .scalar { text throws(InvalidValue) in text.isEmpty ? nil : try readRedisURL(text, defaultPort: 6379) },
      format: { PrintableText.quoted($0?.text ?? "") })
  }
}

extension ValueFormat where Value == [SharedStoreSettings.Location] {
  /// `host:port`, or URLs.
  static var sentinels: ValueFormat {
    let scheme = "redis"
    return .list(
      "Sentinels as host:port, such as 10.0.0.5:26379, or as URLs", isURL: true, impliedScheme: scheme
    ) { text throws(InvalidValue) in
      try readRedisURL(text.contains("://") ? text : "\(scheme)://\(text)", as: text, defaultPort: 26379)
    } format: {
      $0.text
    }
  }
}

private func readRedisURL(
  _ url: String, as text: String? = nil, defaultPort: UInt16
) throws(InvalidValue) -> SharedStoreSettings.Location {
  do throws(RedisURLError) {
    return SharedStoreSettings.Location(url: try RedisURL(url, defaultPort: defaultPort), text: text ?? url)
  } catch {
    if case .scheme = error { throw InvalidValue() }
    throw InvalidValue(reason: error.description)
  }
}

extension ValueFormat where Value == Int? {
  /// A count; `auto` is nil.
  static func countOrAutomatic(_ range: ClosedRange<Int>) -> ValueFormat {
    .scalar(
      "'auto' or a number from \(range.lowerBound) to \(range.upperBound)", schema: .integer(range, orWord: "auto"),
      read: { text in text == "auto" ? .some(nil) : Int(text).flatMap { range.contains($0) ? .some($0) : nil } },
      format: { $0.map { String($0) } ?? "auto" })
  }
}
