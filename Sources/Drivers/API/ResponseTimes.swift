import ByteStreams
import Host

/// Writes the times of one response, as JSON strings in the format of RFC 3339.
struct ResponseTimes {
  private var writer = TimestampWriter()
  private let offset: ClockOffset
  private let wallClock = ProcessInformation.wallClockMilliseconds()
  /// Read at the same moment as the wall clock. The time of the loop's turn is older. If it were used, a lease would
  /// seem to last longer than it does.
  let now = ProcessInformation.monotonicTime()

  init(_ offset: ClockOffset) { self.offset = offset }

  mutating func write(_ time: MonotonicTime, into output: inout ByteQueue) {
    write(milliseconds: offset.wallClock(of: time, wallClock: wallClock, now: now), into: &output)
  }

  /// - Parameter time: in milliseconds of UNIX time.
  mutating func write(milliseconds time: Int64, into output: inout ByteQueue) {
    output.append("\"" as StaticString)
    writer.write(milliseconds: time, into: &output)
    output.append("\"" as StaticString)
  }
}
