import ByteStreams
import Threading

/// Limits the rate of log lines that clients or the upstream could otherwise cause without limit: refusals with status
/// 429 or 5xx, TLS handshakes that fail, connections of other protocols, and the sessions that clients create. At the
/// level `debug`, all these lines are logged. Thread-safe.
package final class LogLineLimiter: Sendable {
  /// Lines per second, for all loops together. They are enough to see failures, and few enough that the log of a day
  /// can be kept.
  package static let linesPerSecond = 5

  private let lines: Int
  private let interval: TimeSpan

  private struct Window {
    var start: MonotonicTime?
    var lines = 0
    var suppressed = 0
  }

  private let window = Locked(Window())

  package init(lines: Int = LogLineLimiter.linesPerSecond, per interval: TimeSpan = .seconds(1)) {
    self.lines = lines
    self.interval = interval
  }

  /// Returns nil if this line is suppressed. Otherwise returns the number of lines suppressed since the last line that
  /// was not suppressed.
  package func admit(at now: MonotonicTime) -> Int? {
    window.withLock { window in
      if window.start.map({ now - $0 >= interval }) ?? true {
        window.start = now
        window.lines = 0
      }
      guard window.lines < lines else {
        window.suppressed += 1
        return nil
      }
      window.lines += 1
      defer { window.suppressed = 0 }
      return window.suppressed
    }
  }
}
