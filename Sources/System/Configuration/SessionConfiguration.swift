import Inbox

/// What one session is made of: its upstream, and the pushes that are kept for clients.
///
/// A named session starts from the built-in defaults, not from the default session's values: credentials and conventions of one
/// upstream must never reach another.
package struct SessionConfiguration: Equatable, Sendable {
  package var upstream = UpstreamSettings()
  package var retention = Retention()

  package init() {}
}

/// Names of sessions, as they stand in the file and in paths of the API.
package enum SessionName {
  /// The session that `upstream` at the top of the file describes.
  package static let `default` = "default"
  /// Bytes of a name: it is in paths, log lines and labels of metrics.
  static let longest = 64
  /// Named sessions of a process. Each has a connection, a queue and pushes of its own, and a time series for each of its metrics.
  static let limit = 256

  static let expectation = "a name of 1 to \(longest) letters, digits, '.', '_' and '-', not beginning with '.'"

  /// Unreserved characters but `~`: a name needs no escapes in a path. A dot in front would make `.` and `..`.
  static func isValid(_ name: String) -> Bool {
    guard (1...longest).contains(name.utf8.count), !name.hasPrefix(".") else { return false }
    return name.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
      case UInt8(ascii: "0")...UInt8(ascii: "9"): true
      case UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-"): true
      default: false
      }
    }
  }
}
