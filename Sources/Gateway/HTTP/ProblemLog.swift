import ByteStreams
import HTTPCodec
import Logging
import Reactor
import Threading

/// Decides which problems with a 5xx status are logged at `info`: a bounded number a second, so that an outage of the upstream
/// does not fill the log. At `debug` every problem is logged.
struct ProblemLog {
  /// Lines a second, of all loops together. Enough to see what fails, and few enough to keep for a day.
  static let linesPerSecond = 5

  private var windowStart: MonotonicTime?
  private var lines = 0
  private var suppressed = 0

  /// The number of problems suppressed since the last line where this one gets a line, else nil.
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

extension HTTPConnection {
  /// Logs a problem under the `request_id` of its response.
  func log(_ problem: Problem, requestID: String) {
    let isServerError = problem.status.rawValue >= 500
    let suppressed = isServerError ? shared.problemLog.withLock { $0.admit(at: worker.loop.now) } : nil
    shared.logger.log(suppressed == nil ? .debug : .info, "request refused", fields(of: problem, requestID, suppressed))
  }

  private func fields(of problem: Problem, _ requestID: String, _ suppressed: Int?) -> [LogField] {
    var fields: [LogField] = [
      .text("request_id", requestID), .text("type", problem.kind.name.description),
      .number("status", Int(problem.status.rawValue)), .text("detail", problem.detail),
    ]
    if http.hasRequest {
      // The query may hold what is nobody's business, and the path is as long as the client likes.
      fields.append(.text("method", http.request.methodBytes.excerpt()))
      fields.append(.text("path", http.request.path.excerpt()))
    }
    if let client = try? Sockets.peerAddress(of: channel.descriptor) {
      fields.append(.text("client", client.description))
    }
    if let suppressed, suppressed > 0 { fields.append(.number("suppressed", suppressed)) }
    return fields
  }
}
