import Inbox
import Webhooks

/// The configuration of one session: its upstream, and which pushes are kept for clients.
///
/// A named session starts from the built-in defaults, not from the default session's values: credentials and
/// conventions of one upstream must never reach another.
package struct SessionConfiguration: Equatable, Sendable {
  package var upstream = UpstreamSettings()
  package var retention = Retention()
  /// Empty in a profile: only the operator chooses the URLs of webhooks.
  package var webhooks: [WebhookSettings] = []

  package init() {}
}

/// Names of sessions, as used in the file and in paths of the API.
package enum SessionName {
  /// The session that `upstream` at the top of the file describes.
  package static let `default` = "default"
  /// Maximum length of a name in bytes. Names are part of paths, log lines and labels of metrics.
  static let maximumLength = 64
  /// Maximum number of named sessions. Each reserves three descriptors, takes a millisecond of the start, and adds 2.6
  /// KB to a page of metrics, which a loop renders without a pause.
  static let maximumCount = 1_000

  package static let expectation = "1 to \(maximumLength) letters, digits, '.', '_' and '-', not beginning with '.'"

  /// Allows unreserved characters except `~`, so that a name needs no escapes in a path. A leading dot would allow `.`
  /// and `..`.
  package static func isValid(_ name: String) -> Bool {
    guard (1...maximumLength).contains(name.utf8.count), !name.hasPrefix(".") else { return false }
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

/// Names of profiles, as used in the file and by clients. They have no dots, so that the paths of their settings are
/// unambiguous.
enum ProfileName {
  static let maximumLength = 64
  /// Maximum number of profiles. Each adds some hundred settings that a start and a reload check.
  static let maximumCount = 100

  static let expectation = "1 to \(maximumLength) letters, digits, '_' and '-'"

  static func isValid(_ name: String) -> Bool {
    name.utf8.count <= maximumLength && SessionName.isValid(name) && !name.utf8.contains(UInt8(ascii: "."))
  }
}
