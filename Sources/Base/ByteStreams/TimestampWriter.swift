/// Writes UTC timestamps of RFC 3339 with milliseconds: `2026-11-21T09:30:00.125Z`. The part before the dot is cached
/// per second.
package struct TimestampWriter {
  private var second = Int64.min
  /// Date and time of `second`, up to and including the dot.
  private var text: [UInt8] = []

  package init() {}

  /// Appends the time `milliseconds` after 1970-01-01, clamped to the range that RFC 3339 can express.
  package mutating func write(milliseconds: Int64, into output: inout ByteQueue) {
    let range = UTCTime.representableSeconds
    let milliseconds = min(max(milliseconds, range.lowerBound * 1000), range.upperBound * 1000 + 999)
    let whole = Int64(UTCTime.floorDivide(Int(milliseconds), 1000))
    if whole != second {
      second = whole
      text = Self.text(UTCTime(secondsSince1970: whole))
    }
    output.append(text)
    output.append(decimal: Int(milliseconds - whole * 1000), digits: 3)
    output.append(UInt8(ascii: "Z"))
  }

  private static func text(_ time: UTCTime) -> [UInt8] {
    var output = ByteQueue()
    output.append(decimal: time.year, digits: 4)
    for (separator, value) in zip("--T::".utf8, [time.month, time.day, time.hour, time.minute, time.second]) {
      output.append(separator)
      output.append(decimal: value, digits: 2)
    }
    output.append(UInt8(ascii: "."))
    return output.copyBytes()
  }
}
