import HTTPServer
import Inbox

/// A cache of the last response to a poll. The thousands of polls that one push wakes share it in memory.
///
/// One per loop. A response is kept only after two consecutive polls with the same key. So polls that all differ cost one
/// comparison each.
struct PreparedPolls {
  /// Everything that the content of a response depends on.
  struct Key: Equatable {
    /// The inbox. A cursor does not identify it: a cursor of another inbox, or of an earlier epoch, is accepted as a start too.
    let inbox: ObjectIdentifier
    let start: ReadStart
    let options: PollOptions
    /// The revision of the inbox (`SharedInbox.revision`), read before its messages.
    let revision: UInt64
  }

  struct Entry {
    let response: PreparedResponse
    /// Number of messages in the response.
    let messages: Int
  }

  /// Larger responses are not kept: they consist of slices of the log, which are shared already.
  private static var largest: Int { 256 * 1024 }

  private var key: Key?
  private var entry: Entry?

  func find(_ wanted: Key) -> Entry? { key == wanted ? entry : nil }

  /// Notes that `response` is the response for `asked`. Returns the kept copy, if there is one.
  @discardableResult
  mutating func note(_ asked: Key, _ response: borrowing Response, messages: Int) -> PreparedResponse? {
    guard key == asked else {
      key = asked
      entry = nil
      return nil
    }
    if entry == nil, response.content.count <= Self.largest {
      entry = Entry(response: PreparedResponse(copying: response), messages: messages)
    }
    return entry?.response
  }
}
