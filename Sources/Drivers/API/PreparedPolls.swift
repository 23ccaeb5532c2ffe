import HTTPServer
import Inbox

/// The last response to a poll, for the next poll that asks the same: the thousands that one push wakes get it from the same memory.
///
/// One a loop. A response is kept only once it has been asked for twice, so that polls which all ask for something else pay
/// a comparison and nothing more.
struct PreparedPolls {
  /// All that the content of a response depends on.
  struct Key: Equatable {
    /// The inbox. A cursor does not name it: one of another inbox, or of an earlier life, is a start too.
    let inbox: ObjectIdentifier
    let start: ReadStart
    let limit: Int
    let maxBytes: Int
    /// The state of the inbox (`SharedInbox.revision`), asked for before it was read.
    let revision: UInt64
  }

  struct Entry {
    let response: PreparedResponse
    /// How many messages are in it.
    let messages: Int
  }

  /// Larger responses are not kept: they are made of slices of the log, which need no copy.
  private static var largest: Int { 256 * 1024 }

  private var key: Key?
  private var entry: Entry?

  func find(_ wanted: Key) -> Entry? { key == wanted ? entry : nil }

  /// `response` is the one to `asked`. Returns what is kept of it.
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
