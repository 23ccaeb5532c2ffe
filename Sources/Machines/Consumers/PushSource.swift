import Inbox

/// The pushes that consumers read, by number.
package protocol PushSource {
  /// The number of the oldest push that is kept, or of the next push if none is kept.
  var firstRetained: UInt64 { get }
  /// The position after the newest push or gap.
  var latest: Cursor { get }
  func read(after start: ReadStart, limit: Int, maxBytes: Int, matching filter: TopicFilter?) -> ReadResult
  /// Returns nil if the push is no longer kept, or does not exist yet.
  func message(_ number: UInt64) -> RetainedMessage?
}

extension PushLog: PushSource {
  package var latest: Cursor { last }
}
