import Inbox
import Upstream
import Webhooks

/// The configuration of one session: its upstream, and which pushes are kept for clients.
///
/// A named session starts from the built-in defaults and not from the values of the default session, since credentials
/// and conventions of one upstream must never be used for another upstream.
package struct SessionConfiguration: Equatable, Sendable {
  package var upstream = UpstreamSettings()
  package var retention = Retention()
  /// The webhooks of the session. Always empty in a profile, since only the operator may choose the URLs of webhooks.
  package var webhooks: [WebhookSettings] = []

  package init() {}
}

/// Names of sessions, as used in the file and in paths of the API.
package enum SessionName {
  /// The name of the session that `upstream` at the top level of the file describes.
  package static let `default` = "default"
  /// Maximum length of a name in bytes. Names are part of paths, log lines and labels of metrics.
  static let maximumLength = 64
  /// Maximum number of named sessions. Each session reserves three descriptors, makes the start a millisecond longer,
  /// and adds 2.6 KB to a page of metrics, which a loop renders without a pause.
  static let maximumCount = 1_000

  package static let expectation = "1 to \(maximumLength) letters, digits, '.', '_' and '-', not beginning with '.'"

  /// A name may have only unreserved characters except `~`, so that it needs no escapes in a path. It must not begin
  /// with a dot, so that `.` and `..` are not names.
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

/// Names of profiles, as used in the file and by clients. A name has no dots, so that the paths of the profile's
/// settings are unambiguous.
enum ProfileName {
  static let maximumLength = 64
  /// Maximum number of profiles. Each profile adds some hundred settings, which are checked at the start and in each
  /// reload.
  static let maximumCount = 100

  static let expectation = "1 to \(maximumLength) letters, digits, '_' and '-'"

  static func isValid(_ name: String) -> Bool {
    name.utf8.count <= maximumLength && SessionName.isValid(name) && !name.utf8.contains(UInt8(ascii: "."))
  }
}
