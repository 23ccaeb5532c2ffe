/// Writes moments as RFC 3339 in UTC with milliseconds: `2026-11-21T09:30:00.125Z`. All but these are written once a second.
package struct TimestampWriter {
  private var second = Int64.min
  /// Up to the dot.
  private var text: [UInt8] = []

  package init() {}

  /// Seconds of UNIX time whose year has four digits, 1 to 9999: what RFC 3339 and HTTP can write. A clock beyond them is shown as the
  /// nearest of them.
  package static let writableSeconds: ClosedRange<Int64> = -62_135_596_800...253_402_300_799

  package mutating func write(milliseconds: Int64, into output: inout ByteQueue) {
    let range = Self.writableSeconds
    let milliseconds = min(max(milliseconds, range.lowerBound * 1000), range.upperBound * 1000 + 999)
    let whole = Self.floorDivide(milliseconds, 1000)
    if whole != second { split(whole) }
    output.append(text)
    append(Int(milliseconds - whole * 1000), digits: 3, then: UInt8(ascii: "Z"), to: &output)
  }

  private func append(_ value: Int, digits: Int, then separator: UInt8, to output: inout ByteQueue) {
    var divisor = digits == 4 ? 1000 : digits == 3 ? 100 : 10
    while divisor > 0 {
      output.append(UInt8(truncatingIfNeeded: 48 + value / divisor % 10))
      divisor /= 10
    }
    output.append(separator)
  }

  /// Days to a civil date, by counting eras of 400 years from 1 March of year 0.
  private mutating func split(_ seconds: Int64) {
    second = seconds
    let days = Self.floorDivide(seconds, 86_400)
    let time = Int(seconds - days * 86_400)
    let shifted = days + 719_468
    let era = Self.floorDivide(shifted, 146_097)
    let dayOfEra = shifted - era * 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153
    let day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
    let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
    let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    var output = ByteQueue()
    append(Int(year), digits: 4, then: UInt8(ascii: "-"), to: &output)
    append(Int(month), digits: 2, then: UInt8(ascii: "-"), to: &output)
    append(Int(day), digits: 2, then: UInt8(ascii: "T"), to: &output)
    append(time / 3600, digits: 2, then: UInt8(ascii: ":"), to: &output)
    append(time / 60 % 60, digits: 2, then: UInt8(ascii: ":"), to: &output)
    append(time % 60, digits: 2, then: UInt8(ascii: "."), to: &output)
    text = output.copyBytes()
  }

  private static func floorDivide(_ value: Int64, _ divisor: Int64) -> Int64 {
    let quotient = value / divisor
    return value % divisor < 0 ? quotient - 1 : quotient
  }
}
