import ByteStreams

/// A heap of deadlines, the earliest first. Entries are not removed when their messages end: the caller checks whether
/// the first entry still applies.
///
/// Most messages have the same time to live, so they are added in the order of their deadlines. Such an insertion moves
/// no other entry. Messages that are queued in a row with the same deadline, such as the messages of a batch, have one
/// entry.
struct ExpiryHeap: Sendable {
  struct Entry: Sendable {
    let deadline: MonotonicTime
    /// The positions of the messages.
    fileprivate(set) var positions: Range<Int>
  }

  private var entries: [Entry] = []

  var count: Int { entries.count }
  var first: Entry? { entries.first }

  mutating func insert(_ position: Int, at deadline: MonotonicTime) {
    var child = entries.count
    if child > 0, entries[child - 1].deadline == deadline, entries[child - 1].positions.upperBound == position {
      entries[child - 1].positions = entries[child - 1].positions.lowerBound..<position + 1
      return
    }
    entries.append(Entry(deadline: deadline, positions: position..<position + 1))
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

  /// Removes the positions before `position` from the first entry.
  mutating func trimFirst(to position: Int) { entries[0].positions = position..<entries[0].positions.upperBound }

  mutating func removeAll() { entries.removeAll(keepingCapacity: true) }
}
