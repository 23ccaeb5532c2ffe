/// A cache of the latest contents that clients have asked for, so that the thousands that one push wakes share them in memory.
///
/// One per loop. A content is usually kept when a second client asks for it, so that clients that all differ cost a few comparisons each.
struct RecentContents<Key: Equatable, Content> {
  /// Number of keys, and so the most contents kept.
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

  /// Notes that a client has asked for `key`, and keeps the content if a client has asked for it before.
  ///
  /// - Parameters:
  ///   - atOnce: keep it in any case.
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
