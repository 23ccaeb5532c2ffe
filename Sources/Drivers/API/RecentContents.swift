/// A cache of the latest contents that clients have requested. One push may cause thousands of responses, which use one
/// copy in memory.
///
/// Each loop has its own cache. A content is usually kept when a second client requests it. If the requests of all
/// clients differ, the cache costs each request a few comparisons.
struct RecentContents<Key: Equatable, Content> {
  /// Maximum number of keys, and thus of contents.
  private let capacity: Int

  private var slots: [(key: Key, content: Content?)] = []
  /// The slot with the oldest key, which the next new key replaces.
  private var oldest = 0

  init(capacity: Int) { self.capacity = capacity }

  func find(_ wanted: Key) -> Content? { index(of: wanted).flatMap { slots[$0].content } }

  private func index(of key: Key) -> Int? {
    for index in slots.indices where slots[index].key == key { return index }
    return nil
  }

  /// Records that a client has requested `key`. Keeps the content if this is not the first request for it.
  ///
  /// - Parameters:
  ///   - atOnce: keep the content even if this is the first request.
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
