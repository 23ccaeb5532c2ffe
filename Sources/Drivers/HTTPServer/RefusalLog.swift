import ByteStreams

/// Decides which refusals with a 5xx status are logged at `info`: a bounded number a second, so that an outage of the upstream
/// does not fill the log. At `debug` every refusal is logged.
struct RefusalLog {
  /// Lines a second, of all loops together. Enough to see what fails, and few enough to keep for a day.
  static let linesPerSecond = 5

  private var windowStart: MonotonicTime?
  private var lines = 0
  private var suppressed = 0

  /// The number of refusals suppressed since the last line where this one gets a line, else nil.
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
