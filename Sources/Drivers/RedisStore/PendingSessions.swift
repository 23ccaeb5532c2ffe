import ByteStreams

/// Names of sessions for which there may be something to do: first noted, first served. So a session that is noted again after each flight does not
/// keep others from the next one.
struct PendingSessions {
  private var queue = RingDeque(filler: "")
  private var names: Set<String> = []

  var count: Int { queue.count }

  /// Does nothing if the name waits.
  mutating func insert(_ name: String) {
    if names.insert(name).inserted { queue.append(name) }
  }

  mutating func insert(_ names: some Sequence<String>) {
    for name in names { insert(name) }
  }

  /// Removes the name that was noted first; nil if there is none.
  mutating func takeFirst() -> String? {
    guard !queue.isEmpty else { return nil }
    let name = queue[queue.front]
    queue.removeFirst()
    names.remove(name)
    return name
  }
}
