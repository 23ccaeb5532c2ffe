/// Limits how many sessions are loaded, or have their state replaced, at the same time, because each of these sessions
/// needs memory during that time. All other sessions wait in the order of their requests.
struct LimitedTurns {
  private let limit: Int
  private var active: Set<String> = []
  private var waiting = PendingSessions()

  init(limit: Int) { self.limit = limit }

  var hasRoom: Bool { active.count < limit }

  /// Returns false if the session must wait. `next` returns it later.
  mutating func begin(_ name: String) -> Bool {
    guard hasRoom || active.contains(name) else {
      wait(name)
      return false
    }
    active.insert(name)
    return true
  }

  mutating func wait(_ name: String) { waiting.insert(name) }

  mutating func end(_ name: String) { active.remove(name) }

  mutating func endAll() { active = [] }

  /// Removes and returns the next waiting sessions, as many as there is room for.
  mutating func next() -> [String] {
    var names: [String] = []
    while names.count < limit - active.count, let name = waiting.takeFirst() { names.append(name) }
    return names
  }
}
