/// A cache of the latest contents that clients have requested. So the thousands of responses that one push causes have
/// one copy in memory.
///
/// One per loop. A content is usually kept when a second client requests it. If all clients differ, the cache costs
/// each of them a few comparisons.
struct RecentContents<Key: Equatable, Content> {
  /// Maximum number of keys, and thus of contents.
  private let capacity: Int

  private var slots: [(key: Key, content: Content?)] = []
  /// The slot that the next new key replaces: the oldest.
  private var oldest = 0

  init(capacity: Int) { self.capacity = capacity }

  func find(_ wanted: Key) -> Content? { index(of: wanted).flatMap { slots[$0].content } }

  private func index(of key: Key) -> Int? {
    for index in slots.indices where slots[index].key == key { return index }
    return nil
  }

  /// Notes that a client has requested `key`, and keeps the content if this is not the first request for it.
  ///
  /// - Parameters:
  ///   - atOnce: keep it after the first request.
  ///   - copy: returns a copy of the content, or nil if it is not worth keeping.
  /// - Returns: the kept content.
  @discardableResult
  mutating func note(_ key: Key, atOnce: Bool = false, _ copy: () -> Content?) -> Content? {
    let known = index(of: key)
    let slot = known ?? replaceOldest(by: key)
    if slots[slot].content == nil, known != nil || atOnce { slots[slot].content = copy() }
    return slots[slot].content
  }

  private mutating func replaceOldest(by key: Key) -> Int {
    if slots.count < capacity {
      slots.append((key, nil))
      return slots.count - 1
    }
    let slot = oldest
    slots[slot] = (key, nil)
    oldest = (oldest + 1) % capacity
    return slot
  }
}
