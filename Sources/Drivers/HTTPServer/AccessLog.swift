import ByteStreams
import Logging
import Synchronization

/// The access log of all event loops: one line per request of a client.
///
/// Of the requests on management listeners, only requests to the API have lines. If all had lines, most lines would be
/// about probes.
package final class AccessLog: Sendable {
  /// The requests of clients for which a line is written.
  package enum Mode: String, CaseIterable, Sendable { case off, errors, all }

  private let logger: Logger
  private let index: Atomic<Int>

  init(_ mode: Mode, _ logger: Logger) {
    self.logger = logger
    index = Atomic(Self.index(of: mode))
  }

  /// Which requests have a line. May be changed at any time, from any thread.
  package var mode: Mode {
    get {
      switch index.load(ordering: .relaxed) {
      case 0: .off
      case 1: .errors
      default: .all
      }
    }
    set { index.store(Self.index(of: newValue), ordering: .relaxed) }
  }

  /// Whether the log is on. This is checked for every read, and costs one load.
  @inline(__always)
  var isOn: Bool { index.load(ordering: .relaxed) != 0 }

  /// The index of a mode. Zero means off.
  private static func index(of mode: Mode) -> Int {
    switch mode {
    case .off: 0
    case .errors: 1
    case .all: 2
    }
  }

  var format: LogFieldFormat { logger.fieldFormat }

  /// Whether the mode includes `request`.
  func includes(_ request: AccessLine) -> Bool {
    switch mode {
    case .off: false
    case .errors: request.isError
    case .all: true
    }
  }

  /// Writes a line with these fields.
  func write(_ fields: borrowing ByteQueue) { logger.logRequest("request", fields) }
}
