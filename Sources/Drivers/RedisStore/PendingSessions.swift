import ByteStreams

/// A queue of the names of sessions that may have work to do, without duplicates. A session that is inserted again
/// after each flight goes to the end, so it does not delay other sessions.
struct PendingSessions {
  private var queue = RingDeque(filler: "")
  private var names: Set<String> = []

  var count: Int { queue.count }

  /// Does nothing if the queue contains the name.
  mutating func insert(_ name: String) {
    if names.insert(name).inserted { queue.append(name) }
  }

  mutating func insert(_ names: some Sequence<String>) {
    for name in names { insert(name) }
  }

  /// Removes and returns the oldest name; nil if there is none.
  mutating func takeFirst() -> String? {
    guard !queue.isEmpty else { return nil }
    let name = queue[queue.front]
    queue.removeFirst()
    names.remove(name)
    return name
  }
}
