import API
import Access

/// Limits of each client.
extension SettingSection {
  static func limits(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let limits = gateway.section("limits", \.api.limits)
    let principal = limits.section("principal", \.principal)
    let address = limits.section("address", \.address)
    return SettingSection(settings: [
      principal("requests", \.requests, .rateLimit, "requests of each principal; above it 429"),
      principal("messages", \.messages, .rateLimit, "messages that each principal sends; above it 429"),
      principal(
        "held", \.held, .countOrNone(0...1_000_000),
        "concurrent requests of each principal that may wait, and streams; above it 429; 0: no limit"),
      address("requests", \.requests, .rateLimit, "requests of each IPv4 address or IPv6 /64; above it 429"),
      address("messages", \.messages, .rateLimit, "messages from each IPv4 address or IPv6 /64; above it 429"),
      address(
        "held", \.held, .countOrNone(0...1_000_000),
        "concurrent requests of each address that may wait, and streams; above it 429; 0: no limit"),
      limits(
        "failed_authentications", \.address.failures, .rateLimit,
        "invalid credentials from each address, after which signatures are not checked; above it 429"),
    ])
  }
}

extension ValueFormat where Value == RateLimit? {
  static var rateLimit: ValueFormat {
    .scalar(
      "'none', or a rate such as 100/s, 600/m or 10/h, followed by 'burst' and a number if more or fewer are allowed at once, as in 100/s burst 200; numbers from 1 to \(RateLimit.maximum)",
      read: { text in text == "none" ? .some(nil) : RateLimit(text).map { .some($0) } },
      format: { $0?.text ?? "none" })
  }
}
