import ByteStreams

/// Counts the uses of each client by its key, and decides whether another use is within the limits. The table is one of
/// several shards; each key belongs to one shard.
///
/// A rate is limited by the generic cell rate algorithm (ITU-T I.371). Per key and rate, the table stores only the time
/// at which all earlier uses are *paid off*, which means that the whole burst is available again. So a limit is exact
/// over every interval: at most `burst` uses plus the uses that the rate allows. A refused use costs nothing.
///
/// `maximumKeys` limits the memory. A key whose uses are all paid off is like a new key, and its place is reused. If
/// all keys of a shard are in use, new keys have one common place with one set of limits. So active clients keep
/// exactly their limits, and all new clients together get little.
package struct RateTable: Sendable {
  /// Maximum number of keys with a place of their own. 64 shards together have 98,304.
  package static var maximumKeys: Int { maximumSlots / 4 * 3 }
  private static var maximumSlots: Int { 2_048 }
  private static var minimumSlots: Int { 16 }
  /// Minimum time between two searches for unused places. Without it, each request of a new client could cause a
  /// search.
  private static var sweepInterval: TimeSpan { .milliseconds(100) }

  /// The limits to enforce. A limit of nil does not apply.
  package struct Limits: Equatable, Sendable {
    package var requests: RateLimit?
    package var messages: RateLimit?
    package var failures: RateLimit?
    /// Maximum number of concurrent held requests.
    package var held: Int?

    package init() {}

    package var isEmpty: Bool { self == Limits() }

    package subscript(rate: Rate) -> RateLimit? {
      switch rate {
      case .requests: requests
      case .messages: messages
      case .failures: failures
      }
    }
  }

  package enum Rate: CaseIterable, Sendable {
    case requests, messages
    /// Failed attempts at authentication.
    case failures
  }

  /// The key of a client: a hash that is keyed with a secret of this process, so that clients cannot choose the shard
  /// or the place. Two of 98,304 clients have the same hash with a probability of 3 in 10¹⁰.
  package struct Key: Equatable, Sendable {
    let hash: UInt64

    package init(_ client: some Hashable) {
      var hasher = Hasher()
      hasher.combine(client)
      // Zero marks a free place.
      hash = max(1, UInt64(bitPattern: Int64(hasher.finalize())))
    }

    init(hash: UInt64) { self.hash = hash }

    /// The number of the key's shard among `count` shards; `count` must be a power of two. Uses the bits from bit 40
    /// on, since the lowest bits select the place.
    package func shard(of count: Int) -> Int { Int(truncatingIfNeeded: hash >> 40) & (count - 1) }
  }

  /// The unused part of one limit.
  package struct Standing: Equatable, Sendable {
    /// Uses that are available now.
    package let remaining: Int
    /// The time until one more use is available. Zero if all uses are available.
    package let next: TimeSpan
  }

  /// The result of one use.
  package enum Verdict: Equatable, Sendable {
    /// `inCommon`: the use was counted in the common place of the clients that have no place of their own.
    case admitted(inCommon: Bool)
    /// The use would be admitted after this time, if no other use is counted in the meantime.
    case refused(wait: TimeSpan)
    /// The uses exceed the burst, so they can never be admitted.
    case impossible
  }

  /// The entry of a held request in the count of its client. It must be released exactly once.
  package struct Hold: Equatable, Sendable {
    package let key: Key
    let inCommon: Bool
  }

  private struct Entry: Sendable {
    var hash: UInt64 = 0
    /// When all uses are paid off, in nanoseconds of `MonotonicTime`; zero if there were none.
    var requests: UInt64 = 0
    var messages: UInt64 = 0
    var failures: UInt64 = 0
    var held: Int32 = 0

    subscript(rate: Rate) -> UInt64 {
      get {
        switch rate {
        case .requests: requests
        case .messages: messages
        case .failures: failures
        }
      }
      set {
        switch rate {
        case .requests: requests = newValue
        case .messages: messages = newValue
        case .failures: failures = newValue
        }
      }
    }

    func isInUse(at now: UInt64) -> Bool { held > 0 || requests > now || messages > now || failures > now }
  }

  private let limits: Limits
  /// Open addressing, at most three quarters full. Places become free only when the table is rebuilt.
  private var slots: [Entry] = []
  /// Number of entries in `slots`.
  package private(set) var count = 0
  private var common = Entry()
  /// The latest time of any call. Callers on different threads pass times that are not quite in order.
  private var latest = MonotonicTime.zero
  private var nextSweep = MonotonicTime.zero

  package init(_ limits: Limits) { self.limits = limits }

  /// Size of the memory for keys, in bytes.
  package var allocatedBytes: Int { slots.capacity * MemoryLayout<Entry>.stride }

  // MARK: Rates

  /// Counts all `uses`, or none if they would exceed the limit.
  package mutating func use(_ rate: Rate, _ uses: Int = 1, by key: Key, at now: MonotonicTime) -> Verdict {
    guard let limit = limits[rate], uses > 0 else { return .admitted(inCommon: false) }
    guard uses <= limit.burst else { return .impossible }
    let now = advance(to: now)
    let slot = slot(of: key, at: now)
    let paidOff = max(entry(slot)[rate], now) + limit.spacing * UInt64(uses)
    let allowed = now + limit.depth
    guard paidOff <= allowed else { return .refused(wait: TimeSpan(nanoseconds: Int64(paidOff - allowed))) }
    update(slot) { $0[rate] = paidOff }
    return .admitted(inCommon: slot == nil)
  }

  /// How long `uses` would have to wait now; zero if they would be admitted. Counts nothing.
  package mutating func wait(for rate: Rate, _ uses: Int = 1, by key: Key, at now: MonotonicTime) -> TimeSpan {
    guard let limit = limits[rate] else { return .zero }
    let now = advance(to: now)
    let slot = slot(of: key, at: now)
    let paidOff = max(entry(slot)[rate], now) + limit.spacing * UInt64(min(uses, limit.burst))
    let allowed = now + limit.depth
    return TimeSpan(nanoseconds: paidOff > allowed ? Int64(paidOff - allowed) : 0)
  }

  /// Takes back uses that were admitted, because another limit has refused the request.
  package mutating func refund(_ rate: Rate, _ uses: Int = 1, by key: Key, inCommon: Bool, at now: MonotonicTime) {
    guard let limit = limits[rate] else { return }
    let now = advance(to: now)
    let slot = inCommon ? nil : slot(of: key, at: now)
    update(slot) { $0[rate] -= min($0[rate], limit.spacing * UInt64(uses)) }
  }

  /// Returns the unused part of the limit of `rate`; nil if there is no limit.
  package mutating func standing(_ rate: Rate, of key: Key, at now: MonotonicTime) -> Standing? {
    guard let limit = limits[rate] else { return nil }
    let now = advance(to: now)
    let slot = slot(of: key, at: now)
    let paidOff = entry(slot)[rate]
    let debt = paidOff > now ? min(paidOff - now, limit.depth) : 0
    let remaining = (limit.depth - debt) / limit.spacing
    // The debt below which one more use is available.
    let target = limit.depth - min(limit.depth, (remaining + 1) * limit.spacing)
    return Standing(
      remaining: Int(remaining), next: TimeSpan(nanoseconds: debt > target ? Int64(debt - target) : 0))
  }

  // MARK: Held requests

  /// Counts a held request; nil if the limit is reached. `release` must follow, once.
  package mutating func hold(by key: Key, at now: MonotonicTime) -> Hold? {
    let now = advance(to: now)
    let slot = slot(of: key, at: now)
    guard entry(slot).held < limits.held ?? .max else { return nil }
    update(slot) { $0.held += 1 }
    return Hold(key: key, inCommon: slot == nil)
  }

  /// Counts the end of a held request.
  package mutating func release(_ hold: Hold) {
    // An entry with held requests is in use, so the table still has the entry.
    guard hold.inCommon || find(hold.key) != nil else { preconditionFailure("a held request was released twice") }
    update(hold.inCommon ? nil : find(hold.key)) { entry in
      precondition(entry.held > 0, "a held request was released twice")
      entry.held -= 1
    }
  }

  /// The number of held requests of `key`.
  package mutating func heldCount(of key: Key, at now: MonotonicTime) -> Int {
    let now = advance(to: now)
    let slot = slot(of: key, at: now)
    return Int(entry(slot).held)
  }

  // MARK: Places

  private mutating func advance(to now: MonotonicTime) -> UInt64 {
    latest = max(latest, now)
    return latest.nanoseconds
  }

  /// - Parameter slot: nil for the common place.
  private func entry(_ slot: Int?) -> Entry { slot.map { slots[$0] } ?? common }

  private mutating func update(_ slot: Int?, _ change: (inout Entry) -> Void) {
    if let slot { change(&slots[slot]) } else { change(&common) }
  }

  private func find(_ key: Key) -> Int? {
    guard !slots.isEmpty else { return nil }
    var index = Int(truncatingIfNeeded: key.hash) & (slots.count - 1)
    while slots[index].hash != 0 {
      if slots[index].hash == key.hash { return index }
      index = (index + 1) & (slots.count - 1)
    }
    return nil
  }

  /// Returns the place of `key`, and creates it if necessary; nil for the common place.
  private mutating func slot(of key: Key, at now: UInt64) -> Int? {
    if let slot = find(key) { return slot }
    guard count < slots.count / 4 * 3 || makeRoom(at: now) else { return nil }
    return insert(Entry(hash: key.hash))
  }

  private mutating func insert(_ entry: Entry) -> Int {
    var index = Int(truncatingIfNeeded: entry.hash) & (slots.count - 1)
    while slots[index].hash != 0 { index = (index + 1) & (slots.count - 1) }
    slots[index] = entry
    count += 1
    return index
  }

  /// Frees the places of keys that are not in use, and grows or shrinks. Returns false if there is still no room.
  private mutating func makeRoom(at now: UInt64) -> Bool {
    guard now >= nextSweep.nanoseconds else { return false }
    let inUse = slots.filter { $0.hash != 0 && $0.isInUse(at: now) }
    // A table below the maximum size is at most three eighths full, so that there is room for the same number of new
    // keys before the next search.
    var size = Self.minimumSlots
    while size < Self.maximumSlots, inUse.count * 8 > size * 3 { size *= 2 }
    slots = Array(repeating: Entry(), count: size)
    count = 0
    for entry in inUse { _ = insert(entry) }
    if count > size / 8 * 5 { nextSweep = MonotonicTime(nanoseconds: now) + Self.sweepInterval }
    return count < size / 4 * 3
  }
}
