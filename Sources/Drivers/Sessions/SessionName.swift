/// Names of sessions, as used in the file and in paths of the API.
package enum SessionName {
  /// The name of the session that `upstream` at the top level of the file describes.
  package static let `default` = "default"
  /// Maximum length of a name in bytes. Names are part of paths, log lines and labels of metrics.
  package static let maximumLength = 64
  /// Maximum number of named sessions. Each session reserves three descriptors, makes the start a millisecond longer,
  /// and adds 2.6 KB to a page of metrics, which a loop renders without a pause.
  package static let maximumCount = 1_000

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
