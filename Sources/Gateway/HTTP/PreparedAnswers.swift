import ByteStreams
import Inbox
import Reactor

/// The last answer to a poll, whole, for the next poll that asks the same: the thousands that one push wakes are owed the same
/// bytes, and are sent them from the same memory.
///
/// One a loop. An answer is kept only once it has been asked for twice, so that polls which all ask for something else pay
/// a comparison and nothing more.
struct PreparedAnswers {
  /// All that the bytes of an answer depend on, given a request that `HTTPServerConnection.takesPreparedResponse`.
  struct Key: Equatable {
    let start: ReadStart
    let limit: Int
    let maxBytes: Int
    /// The state of the store (`SharedInbox.revision`), asked for before it was read.
    let revision: UInt64
    /// Of the Date field: seconds of UNIX time.
    let second: Int64
  }

  struct Answer {
    /// From the status line to the last byte of the body.
    let bytes: SharedBytes
    /// How many messages are in it.
    let messages: Int
  }

  /// Larger answers are not kept: they are made of slices of the log, which need no copy.
  private static var largest: Int { 256 * 1024 }

  private var key: Key?
  private var answer: Answer?

  func find(_ wanted: Key) -> Answer? { key == wanted ? answer : nil }

  /// `output` holds the answer to `asked`, and nothing else.
  mutating func note(_ asked: Key, _ output: borrowing OutputQueue, messages: Int) {
    guard key == asked else {
      key = asked
      answer = nil
      return
    }
    if answer == nil, output.count <= Self.largest { answer = Answer(bytes: output.copy(), messages: messages) }
  }
}
