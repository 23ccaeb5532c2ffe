import ByteStreams

/// HTTP dates (RFC 9110 §5.6.7), as seconds since 1970 in UTC.
package enum HTTPDate {
  /// Length in bytes of a formatted date.
  package static let byteCount = 29

  private static let days: StaticString = "SunMonTueWedThuFriSat"
  private static let months: StaticString = "JanFebMarAprMayJunJulAugSepOctNovDec"

  /// Appends `Sun, 06 Nov 1994 08:49:37 GMT`. Times outside the years 1 to 9999 are clamped.
  package static func append(_ secondsSince1970: Int64, to output: inout ByteQueue) {
    let time = UTCTime(secondsSince1970: secondsSince1970)
    output.reserve(byteCount)
    appendName(days, time.weekday, to: &output)
    output.append(", ")
    output.append(decimal: time.day, digits: 2)
    output.append(" ")
    appendName(months, time.month - 1, to: &output)
    output.append(" ")
    output.append(decimal: time.year, digits: 4)
    output.append(" ")
    output.append(decimal: time.hour, digits: 2)
    output.append(":")
    output.append(decimal: time.minute, digits: 2)
    output.append(":")
    output.append(decimal: time.second, digits: 2)
    output.append(" GMT")
  }

  /// Parses the three formats IMF-fixdate, RFC 850 and asctime. Returns nil for other formats and for dates that do not
  /// exist. The day name is not compared with the date.
  ///
  /// - Parameter now: seconds since 1970. It decides the century of RFC 850's two-digit years: a year that would be
  ///   more than 50 years in the future is taken as the latest past year with these digits.
  package static func parse(_ text: Span<UInt8>, now: Int64) -> Int64? {
    if text.count == 24 { return parseAsctime(text) }
    guard let comma = text.firstIndex(of: UInt8(ascii: ",")), comma &+ 2 <= text.count, text[comma &+ 1] == 0x20 else {
      return nil
    }
    let dayName = text.extracting(first: comma)
    let rest = text.extracting((comma &+ 2)..<text.count)
    if rest.count == 24, rest[2] == 0x20, rest[6] == 0x20, rest[11] == 0x20, rest[20] == 0x20 {
      guard isDayName(dayName, long: false), rest.extracting(21..<24).equals("GMT"), let day = number(rest, 0, 2),
        let month = month(rest, 3), let year = number(rest, 7, 4), let time = time(rest, 12)
      else { return nil }
      return seconds(year, month, day, time)
    }
    guard rest.count == 22, rest[2] == 0x2D, rest[6] == 0x2D, rest[9] == 0x20, rest[18] == 0x20,
      isDayName(dayName, long: true), rest.extracting(19..<22).equals("GMT"), let day = number(rest, 0, 2),
      let month = month(rest, 3), let short = number(rest, 7, 2), let time = time(rest, 10)
    else { return nil }
    let thisYear = UTCTime(secondsSince1970: now).year
    var year = thisYear / 100 * 100 + short
    if year > thisYear + 50 { year -= 100 }
    return seconds(year, month, day, time)
  }

  /// `Sun Nov  6 08:49:37 1994`
  private static func parseAsctime(_ text: Span<UInt8>) -> Int64? {
    guard isDayName(text.extracting(first: 3), long: false), text[3] == 0x20, text[7] == 0x20, text[10] == 0x20,
      text[19] == 0x20, let month = month(text, 4), let time = time(text, 11), let year = number(text, 20, 4),
      let day = text[8] == 0x20 ? number(text, 9, 1) : number(text, 8, 2)
    else { return nil }
    return seconds(year, month, day, time)
  }

  // MARK: Parts

  private static func number(_ text: Span<UInt8>, _ start: Int, _ size: Int) -> Int? {
    text.extracting(start..<start &+ size).decimalValue()
  }

  /// `08:49:37` as seconds. Second 60 is a leap second.
  private static func time(_ text: Span<UInt8>, _ start: Int) -> Int64? {
    guard text[start &+ 2] == 0x3A, text[start &+ 5] == 0x3A, let hour = number(text, start, 2),
      let minute = number(text, start &+ 3, 2), let second = number(text, start &+ 6, 2), hour < 24, minute < 60,
      second <= 60
    else { return nil }
    return Int64(hour * 3600 + minute * 60 + second)
  }

  private static func month(_ text: Span<UInt8>, _ start: Int) -> Int? {
    for month in 0..<12 where matches(text, start, months, month) { return month + 1 }
    return nil
  }

  private static func isDayName(_ text: Span<UInt8>, long: Bool) -> Bool {
    if long {
      return text.equals("Sunday") || text.equals("Monday") || text.equals("Tuesday") || text.equals("Wednesday")
        || text.equals("Thursday") || text.equals("Friday") || text.equals("Saturday")
    }
    guard text.count == 3 else { return false }
    for day in 0..<7 where matches(text, 0, days, day) { return true }
    return false
  }

  private static func matches(_ text: Span<UInt8>, _ start: Int, _ names: StaticString, _ name: Int) -> Bool {
    for index in 0..<3 where unsafe names.utf8Start[name * 3 + index] != text[start &+ index] { return false }
    return true
  }

  private static func appendName(_ names: StaticString, _ name: Int, to output: inout ByteQueue) {
    for index in 0..<3 { unsafe output.append(names.utf8Start[name * 3 + index]) }
  }

  private static func seconds(_ year: Int, _ month: Int, _ day: Int, _ time: Int64) -> Int64? {
    UTCTime.secondsSince1970(year: year, month: month, day: day).map { $0 + time }
  }
}
