import HTTPServer
import Inbox

/// A cache of the latest responses to polls. The thousands of polls that one push wakes share them in memory.
///
/// One per loop. A response is kept when a second poll has the same key, so that polls that all differ cost a few comparisons each. A
/// compressed response is kept at once: the copy costs little in comparison.
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

  /// Number of keys, and so the most responses kept. Clients that wait for the same pushes differ in little more than the coding and
  /// the representation.
  private static var capacity: Int { 4 }

  private var slots: [(key: Key, entry: Entry?)] = []
  /// The slot that the next new key replaces: the oldest.
  private var oldest = 0

  func find(_ wanted: Key) -> Entry? { index(of: wanted).flatMap { slots[$0].entry } }

  private func index(of key: Key) -> Int? {
    for index in slots.indices where slots[index].key == key { return index }
    return nil
  }

  /// Notes that `response` is the response for `asked`. Returns the kept copy, if there is one.
  @discardableResult
  mutating func note(
    _ asked: Key, _ response: borrowing Response, messages: Int, isCompressed: Bool = false
  ) -> PreparedResponse? {
    let known = index(of: asked)
    let slot = known ?? replaceOldest(by: asked)
    if slots[slot].entry == nil, known != nil || isCompressed, response.content.count <= Self.largest {
      slots[slot].entry = Entry(response: PreparedResponse(copying: response), messages: messages)
    }
    return slots[slot].entry?.response
  }

  private mutating func replaceOldest(by key: Key) -> Int {
    if slots.count < Self.capacity {
      slots.append((key, nil))
      return slots.count - 1
    }
    let slot = oldest
    slots[slot] = (key, nil)
    oldest = (oldest + 1) % Self.capacity
    return slot
  }
}
