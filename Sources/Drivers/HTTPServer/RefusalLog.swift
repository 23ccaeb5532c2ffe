import ByteStreams

/// Rate-limits the log lines at `info` for refusals with status 429 or 5xx, so that an outage of the upstream does not fill the log. At
/// `debug` every refusal is logged.
struct RefusalLog {
  /// Lines per second, for all loops together. Enough to see what fails, and few enough to keep a day's log.
  static let linesPerSecond = 5

  private var windowStart: MonotonicTime?
  private var lines = 0
  private var suppressed = 0

  /// Returns nil if this refusal is suppressed. Otherwise returns the number of refusals suppressed since the last line.
  mutating func admit(at now: MonotonicTime) -> Int? {
    if windowStart.map({ now - $0 >= .seconds(1) }) ?? true {
      windowStart = now
      lines = 0
    }
    guard lines < Self.linesPerSecond else {
      suppressed += 1
      return nil
    }
    lines += 1
    defer { suppressed = 0 }
    return suppressed
  }
}
