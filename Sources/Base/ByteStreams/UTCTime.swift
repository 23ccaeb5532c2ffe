/// UNIX time converted to date and time of day in UTC, in the proleptic Gregorian calendar.
package struct UTCTime: Equatable, Sendable {
  package let year: Int
  /// 1 to 12.
  package let month: Int
  /// 1 to 31.
  package let day: Int
  package let hour: Int
  package let minute: Int
  package let second: Int
  /// 0 is Sunday.
  package let weekday: Int

  /// The UNIX times of the years 1 to 9999, which RFC 3339 and HTTP can express.
  package static let representableSeconds: ClosedRange<Int64> = -62_135_596_800...253_402_300_799

  /// A value outside `representableSeconds` is clamped.
  package init(secondsSince1970: Int64) {
    let range = Self.representableSeconds
    let seconds = Int(min(max(secondsSince1970, range.lowerBound), range.upperBound))
    let dayNumber = Self.floorDivide(seconds, 86_400)
    let time = seconds - dayNumber * 86_400
    (year, month, day) = Self.date(dayNumber)
    hour = time / 3600
    minute = time / 60 % 60
    second = time % 60
    // 1970-01-01 was a Thursday.
    weekday = (dayNumber % 7 + 11) % 7
  }

  /// The first second of a date, or nil if the date does not exist. The year must be 1 to 9999.
  package static func secondsSince1970(year: Int, month: Int, day: Int) -> Int64? {
    guard (1...9999).contains(year), (1...12).contains(month), (1...31).contains(day) else { return nil }
    let number = dayNumber(year, month, day)
    // A day that does not exist, such as 30 February, converts back to another date.
    return date(number) == (year, month, day) ? Int64(number) * 86_400 : nil
  }

  // MARK: Days since 1970-01-01. Years start on 1 March, counted from year 0, so that the leap day is the last day of
  // its year.

  private static func dayNumber(_ year: Int, _ month: Int, _ day: Int) -> Int {
    let shifted = month <= 2 ? year - 1 : year
    let era = shifted / 400
    let yearOfEra = shifted - era * 400
    let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    return era * 146_097 + dayOfEra - 719_468
  }

  private static func date(_ dayNumber: Int) -> (year: Int, month: Int, day: Int) {
    let shifted = dayNumber + 719_468
    let era = floorDivide(shifted, 146_097)
    let dayOfEra = shifted - era * 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let monthFromMarch = (5 * dayOfYear + 2) / 153
    let month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
    let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    return (year, month, dayOfYear - (153 * monthFromMarch + 2) / 5 + 1)
  }

  static func floorDivide(_ value: Int, _ divisor: Int) -> Int {
    let quotient = value / divisor
    return value % divisor < 0 ? quotient - 1 : quotient
  }
}
