/// The lookups of a resolver, in the order in which they will be done, and the requests that wait for each lookup.
///
/// Owners take turns, and each owner may use a limited number of threads. So if the name server for the names of one
/// owner hangs, the other owners are not delayed. Requests of one owner for the same name use one lookup.
struct LookupQueue<Waiter> {
  /// The lookup of one name for one owner.
  struct Key: Hashable {
    let owner: String
    let host: String
  }

  private struct Lookup {
    var waiters: [UInt64: Waiter] = [:]
    var isRunning = false
  }

  private struct Owner {
    /// The names of the queued lookups of an owner, in the order of the requests.
    var queued: [String] = []
    var running = 0
  }

  private let limit: Int
  private let limitOfOwner: Int
  private let threadsPerOwner: Int
  private var lookups: [Key: Lookup] = [:]
  private var keys: [UInt64: Key] = [:]
  private var owners: [String: Owner] = [:]
  /// The owners that have queued lookups, in the order of their turns. Each owner occurs once.
  private var turns: [String] = []
  /// Number of queued lookups.
  private(set) var count = 0

  init(limit: Int, limitOfOwner: Int, threadsPerOwner: Int) {
    self.limit = limit
    self.limitOfOwner = limitOfOwner
    self.threadsPerOwner = threadsPerOwner
  }

  /// Adds a request and returns nil. If too many lookups are queued, returns their number instead.
  ///
  /// - Parameter id: identifies this request among all requests.
  mutating func add(_ waiter: Waiter, _ id: UInt64, _ key: Key) -> Int? {
    if lookups[key] == nil {
      guard count < limit else { return count }
      var owner = owners[key.owner] ?? Owner()
      guard owner.queued.count < limitOfOwner else { return owner.queued.count }
      if owner.queued.isEmpty { turns.append(key.owner) }
      owner.queued.append(key.host)
      owners[key.owner] = owner
      count += 1
    }
    lookups[key, default: Lookup()].waiters[id] = waiter
    keys[id] = key
    return nil
  }

  /// The next lookup that a thread may do; nil if there is none. The thread must call `finish` after the lookup.
  mutating func next() -> Key? {
    // Only few owners are skipped, since an owner is skipped only if it has used up its threads.
    for (turn, name) in turns.enumerated() {
      guard var owner = owners[name], owner.running < threadsPerOwner else { continue }
      let key = Key(owner: name, host: owner.queued.removeFirst())
      owner.running += 1
      owners[name] = owner
      turns.remove(at: turn)
      if !owner.queued.isEmpty { turns.append(name) }
      lookups[key]?.isRunning = true
      count -= 1
      return key
    }
    return nil
  }

  /// Removes a completed lookup, and returns its waiters.
  mutating func finish(_ key: Key) -> [Waiter] {
    let waiters = lookups.removeValue(forKey: key)?.waiters ?? [:]
    for id in waiters.keys { keys[id] = nil }
    change(key.owner) { $0.running -= 1 }
    return Array(waiters.values)
  }

  /// Removes a request and returns its waiter; nil if there is no such request. A queued lookup without requests is
  /// removed, too.
  mutating func cancel(_ id: UInt64) -> Waiter? {
    guard let key = keys.removeValue(forKey: id), var lookup = lookups[key] else { return nil }
    let waiter = lookup.waiters.removeValue(forKey: id)
    lookups[key] = lookup
    if lookup.waiters.isEmpty, !lookup.isRunning { withdraw(key) }
    return waiter
  }

  /// Removes all queued lookups, and returns their waiters.
  mutating func removeQueued() -> [(host: String, waiter: Waiter)] {
    var removed: [(host: String, waiter: Waiter)] = []
    for (key, lookup) in lookups where !lookup.isRunning {
      for id in lookup.waiters.keys { keys[id] = nil }
      removed += lookup.waiters.values.map { (key.host, $0) }
      withdraw(key)
    }
    return removed
  }

  private mutating func withdraw(_ key: Key) {
    lookups[key] = nil
    count -= 1
    change(key.owner) { $0.queued.removeAll { $0 == key.host } }
    if owners[key.owner]?.queued.isEmpty ?? true { turns.removeAll { $0 == key.owner } }
  }

  private mutating func change(_ name: String, _ body: (inout Owner) -> Void) {
    guard var owner = owners[name] else { return }
    body(&owner)
    owners[name] = owner.queued.isEmpty && owner.running == 0 ? nil : owner
  }

  /// Whether no lookup is queued or running, and no other state is left.
  var isEmpty: Bool { lookups.isEmpty && keys.isEmpty && owners.isEmpty && turns.isEmpty && count == 0 }
}
