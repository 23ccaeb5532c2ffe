import ByteStreams
import HTTPServer
import Inbox

/// A cache of the latest responses to polls. A compressed response is kept after its first use, since a copy of it is
/// cheap compared with another compression.
struct PreparedPolls {
  /// Everything that the content of a response depends on.
  struct Key: Equatable {
    /// The epoch of the inbox. It may differ from the epoch in `start`, since a cursor of another inbox or of an
    /// earlier epoch is also accepted. The address of the inbox could not be used instead, since it may be reused after
    /// a session was removed.
    let inbox: Epoch
    let start: ReadStart
    let options: PollOptions
    /// The revision of the inbox (`ConcurrentInbox.revision`), read before its messages.
    let revision: UInt64
  }

  struct Entry {
    let response: PreparedResponse
    /// Number of messages in the response.
    let messages: Int
    /// When the first of these messages arrived.
    let arrival: MonotonicTime?
  }

  /// Larger responses are not kept, since they consist of slices of the log, which are not copied anyway.
  private static var largest: Int { 256 * 1024 }

  /// A small capacity suffices, since polls that wait for the same pushes differ in little more than the format.
  private var recent = RecentContents<Key, Entry>(capacity: 4)

  func find(_ wanted: Key) -> Entry? { recent.find(wanted) }

  /// Records that `response` is the response for the key `asked`. Returns the copy that is kept; nil if no copy is
  /// kept.
  @discardableResult
  mutating func note(
    _ asked: Key, _ response: borrowing Response, messages: Int, arrival: MonotonicTime?, isCompressed: Bool = false
  ) -> PreparedResponse? {
    let size = response.content.count
    guard size <= Self.largest else { return nil }
    return recent.note(asked, atOnce: isCompressed) {
      Entry(response: PreparedResponse(copying: response), messages: messages, arrival: arrival)
    }?.response
  }
}
