/// The severity of a log line, lowest first.
package enum LogLevel: Int, Comparable, CaseIterable, Sendable {
  case trace, debug, info, warning, error

  package init?(name: String) {
    guard let level = Self.allCases.first(where: { $0.name == name }) else { return nil }
    self = level
  }

  package var name: String {
    switch self {
    case .trace: "trace"
    case .debug: "debug"
    case .info: "info"
    case .warning: "warning"
    case .error: "error"
    }
  }

  package static func < (left: LogLevel, right: LogLevel) -> Bool { left.rawValue < right.rawValue }
}

extension LogLevel {
  var color: String {
    switch self {
    case .trace, .debug: "\u{1B}[2m"
    case .info: "\u{1B}[32m"
    case .warning: "\u{1B}[33m"
    case .error: "\u{1B}[31m"
    }
  }
}
