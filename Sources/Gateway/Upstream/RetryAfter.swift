import ByteStreams

/// The Retry-After field: seconds, or a date (RFC 9110 §10.2.3).
enum RetryAfter {
  private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

  /// `now`: seconds since 1970. nil for what is neither; a date that has passed is zero.
  static func read(_ value: String, now: Int64) -> TimeSpan? {
    if let seconds = Int64(value), seconds >= 0 { return .seconds(min(seconds, 1 << 30)) }
    return httpDate(value).map { .seconds(min(max(0, $0 - now), 1 << 30)) }
  }

  /// An IMF-fixdate, `Sun, 06 Nov 1994 08:49:37 GMT`, in seconds since 1970. The two obsolete forms are not read: nobody has
  /// sent one in this field for decades, and without them the least wait applies.
  static func httpDate(_ text: String) -> Int64? {
    let parts = text.split(separator: " ")
    guard parts.count == 6, parts[0].hasSuffix(","), parts[5] == "GMT", let day = Int64(parts[1]),
      let month = months.firstIndex(of: String(parts[2])), let year = Int64(parts[3]), (1...31).contains(day),
      (1970...9999).contains(year)
    else { return nil }
    let clock = parts[4].split(separator: ":").map { Int64($0) }
    guard clock.count == 3, let hour = clock[0], let minute = clock[1], let second = clock[2], (0..<24).contains(hour),
      (0..<60).contains(minute), (0...60).contains(second)
    else { return nil }
    // Days from civil: years begin in March, so that the leap day is the last of its year.
    let shifted = year - (month < 2 ? 1 : 0)
    let era = shifted / 400
    let yearOfEra = shifted - era * 400
    let dayOfYear = (153 * (Int64(month) + (month < 2 ? 10 : -2)) + 2) / 5 + day - 1
    let days = era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    return ((days * 24 + hour) * 60 + minute) * 60 + second
  }
}
