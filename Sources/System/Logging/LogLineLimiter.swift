import ByteStreams
import Threading

/// Limits the rate of log lines that clients or the upstream can cause as often as they like: refusals with status 429 or 5xx, TLS handshakes
/// that fail, and the sessions that clients create. At `debug` each of them is logged. Thread-safe.
package final class LogLineLimiter: Sendable {
  /// Lines per second, for all loops together. Enough to see what fails, and few enough to keep a day's log.
  package static let linesPerSecond = 5

  private struct Window {
    var start: MonotonicTime?
    var lines = 0
    var suppressed = 0
  }

  private let window = Locked(Window())

  package init() {}

  /// Returns nil if this line is suppressed. Otherwise returns the number of lines suppressed since the last one.
  package func admit(at now: MonotonicTime) -> Int? {
    window.withLock { window in
      if window.start.map({ now - $0 >= .seconds(1) }) ?? true {
        window.start = now
        window.lines = 0
      }
      guard window.lines < Self.linesPerSecond else {
        window.suppressed += 1
        return nil
      }
      window.lines += 1
      defer { window.suppressed = 0 }
      return window.suppressed
    }
  }
}
