import ByteStreams
import RedisProtocol
import RedisStore

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
    return SharedStoreSettings.Location(try RedisURL(url, defaultPort: defaultPort), text: text ?? url)
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
