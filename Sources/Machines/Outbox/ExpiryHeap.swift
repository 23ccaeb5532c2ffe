import ByteStreams

/// A heap of deadlines, the earliest first. Entries are not removed when their messages end: the caller checks whether the first
/// one still applies.
///
/// Most messages have the same time to live, so they are added in the order of their deadlines. Then an insertion moves nothing.
struct ExpiryHeap: Sendable {
  struct Entry: Sendable {
    let deadline: MonotonicTime
    let position: Int
  }

  private var entries: [Entry] = []

  var count: Int { entries.count }
  var first: Entry? { entries.first }

  mutating func insert(_ entry: Entry) {
    entries.append(entry)
    var child = entries.count - 1
    while child > 0 {
      let parent = (child - 1) / 2
      guard entries[child].deadline < entries[parent].deadline else { return }
      entries.swapAt(child, parent)
      child = parent
    }
  }

  mutating func removeFirst() {
    guard let last = entries.popLast(), !entries.isEmpty else { return }
    entries[0] = last
    var parent = 0
    while true {
      var least = parent
      for child in [2 * parent + 1, 2 * parent + 2]
      where child < entries.count && entries[child].deadline < entries[least].deadline { least = child }
      guard least != parent else { return }
      entries.swapAt(least, parent)
      parent = least
    }
  }

  mutating func removeAll() { entries.removeAll(keepingCapacity: true) }
}
