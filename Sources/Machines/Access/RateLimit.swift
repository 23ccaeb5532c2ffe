import ByteStreams

/// A rate at which a client may do something: `count` times per `interval`, and up to `burst` times at once after a
/// pause.
package struct RateLimit: Equatable, Sendable {
  /// Maximum of `count` and `burst`. Up to this value, the rounding of `spacing` makes a limit at most 0.1 % lower than
  /// configured.
  package static var maximum: Int { 1_000_000 }

  package let count: Int
  /// A second, a minute or an hour.
  package let interval: TimeSpan
  package let burst: Int
  /// The time after which one more use is allowed, in nanoseconds. Rounded up, since the rate is an upper limit.
  let spacing: UInt64

  /// - Parameter burst: nil means `count`.
  package init(_ count: Int, per interval: TimeSpan, burst: Int? = nil) {
    let burst = burst ?? count
    precondition(
      (1...Self.maximum).contains(count) && (1...Self.maximum).contains(burst) && interval > .zero
        && interval <= .hours(1), "a rate limit is out of range")
    self.count = count
    self.interval = interval
    self.burst = burst
    let (whole, rest) = UInt64(interval.nanoseconds).quotientAndRemainder(dividingBy: UInt64(count))
    spacing = whole + (rest > 0 ? 1 : 0)
  }

  /// The time in which `burst` uses become available again. At most 114 years, so adding it to a time does not
  /// overflow.
  package var recovery: TimeSpan { TimeSpan(nanoseconds: Int64(depth)) }

  var depth: UInt64 { spacing * UInt64(burst) }

  // MARK: Text

  private static let units: [(name: Substring, interval: TimeSpan)] = [
    ("s", .seconds(1)), ("m", .minutes(1)), ("h", .hours(1)),
  ]

  /// Parses `100/s`, `100/m` or `100/h`, which may be followed by ` burst 200`.
  package init?(_ text: String) {
    let words = text.split(separator: " ", omittingEmptySubsequences: false)
    guard words.count == 1 || words.count == 3 && words[1] == "burst" else { return nil }
    let rate = words[0].split(separator: "/", omittingEmptySubsequences: false)
    guard rate.count == 2, let count = Self.number(rate[0]),
      let unit = Self.units.first(where: { $0.name == rate[1] })
    else { return nil }
    guard words.count == 3 else {
      self.init(count, per: unit.interval)
      return
    }
    guard let burst = Self.number(words[2]) else { return nil }
    self.init(count, per: unit.interval, burst: burst)
  }

  private static func number(_ text: Substring) -> Int? {
    guard text.utf8.allSatisfy({ ASCII.isDigit($0) }), let number = Int(text), (1...maximum).contains(number) else {
      return nil
    }
    return number
  }

  /// The text form that `init(_:)` accepts.
  package var text: String {
    let unit = Self.units.first { $0.interval == interval }?.name ?? "s"
    return "\(count)/\(unit)" + (burst == count ? "" : " burst \(burst)")
  }
}
