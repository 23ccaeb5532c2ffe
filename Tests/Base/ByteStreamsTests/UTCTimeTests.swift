import ByteStreams
import Testing

@Suite struct UTCTimeTests {
  /// Every day of eight centuries in order: two whole cycles of the calendar.
  @Test func everyDayFollowsThePreviousDayAndIsReadBack() throws {
    var expected = (year: 1599, month: 12, day: 31)
    let first = try #require(UTCTime.secondsSince1970(year: 1600, month: 1, day: 1))
    var weekday = UTCTime(secondsSince1970: first - 86_400).weekday
    let last = try #require(UTCTime.secondsSince1970(year: 2399, month: 12, day: 31))
    for second in stride(from: first, through: last, by: 86_400) {
      let time = UTCTime(secondsSince1970: second + 3 * 3600 + 2 * 60 + 1)
      expected = Self.next(expected)
      weekday = (weekday + 1) % 7
      guard (time.year, time.month, time.day) == expected, time.weekday == weekday,
        (time.hour, time.minute, time.second) == (3, 2, 1),
        UTCTime.secondsSince1970(year: time.year, month: time.month, day: time.day) == second
      else {
        Issue.record("\(second) is \(time)")
        return
      }
    }
    #expect(expected == (2399, 12, 31))
  }

  private static func next(_ date: (year: Int, month: Int, day: Int)) -> (year: Int, month: Int, day: Int) {
    let isLeap = date.year % 4 == 0 && (date.year % 100 != 0 || date.year % 400 == 0)
    let days = [31, isLeap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    if date.day < days[date.month - 1] { return (date.year, date.month, date.day + 1) }
    return date.month < 12 ? (date.year, date.month + 1, 1) : (date.year + 1, 1, 1)
  }

  @Test(arguments: [(0, 1, 1), (10_000, 1, 1), (2026, 0, 1), (2026, 13, 1), (2026, 1, 0), (2026, 4, 31), (2026, 2, 29)])
  func aDateThatDoesNotExistIsNil(year: Int, month: Int, day: Int) {
    #expect(UTCTime.secondsSince1970(year: year, month: month, day: day) == nil)
  }
}
