import ByteStreams
import Totals

/// The idempotency keys of clients, and the messages that were accepted under each key, so that a repeated request
/// sends nothing again.
///
/// Only acceptance is remembered: a refused request may be repeated with the same key. An accepted key is remembered
/// for its retention and is never evicted earlier, since a repeated request would then be sent again. At the limit, new
/// keys are refused instead. Expired keys are removed by later requests and by `expire(now:)`.
///
/// Keys are distributed over shards by their first bits. A dictionary that grows copies its entries while callers wait.
/// With the default limit, a shard has only 16,384 entries. A key takes 100 to 220 bytes, depending on how recently its
/// shard has grown.
package struct IdempotencyTable: Sendable {
  /// How long an accepted key of a client is remembered.
  package static var retention: TimeSpan { .minutes(10) }
  private static var shardCount: Int { 64 }
  /// Maximum number of expired keys that one call removes, and of keys that one call restores. Other callers wait for
  /// the lock during the call.
  package static var removalsPerCall: Int { 1_024 }

  /// The first 128 bits of a SHA-256 digest. The hashed text contains the whole scope of the key.
  package struct Key: Hashable, Sendable {
    package let high: UInt64
    package let low: UInt64

    package init(high: UInt64, low: UInt64) {
      self.high = high
      self.low = low
    }

    /// - Parameter digest: at least 16 bytes.
    package init(_ digest: Span<UInt8>) {
      high = Self.word(digest, at: 0)
      low = Self.word(digest, at: 8)
    }

    fileprivate init() { self.init(high: 0, low: 0) }

    private static func word(_ digest: Span<UInt8>, at offset: Int) -> UInt64 {
      var value: UInt64 = 0
      for index in offset..<offset + 8 { value = value << 8 | UInt64(digest[index]) }
      return value
    }
  }

  /// The accepted messages, which have consecutive sequence numbers.
  package struct Acceptance: Hashable, Sendable {
    package let first: UInt64
    /// The number of messages of a batch; nil for a message that is not in a batch. A batch can have one message.
    package let batchCount: Int32?
    package let kind: MessageKind
    /// The position after the newest push, read just before the messages were queued.
    package let position: UInt64

    /// The number of the last message.
    package var last: UInt64 { first + UInt64(max(1, batchCount ?? 1)) - 1 }

    package init(first: UInt64, batchCount: Int32?, kind: MessageKind, position: UInt64) {
      self.first = first
      self.batchCount = batchCount
      self.kind = kind
      self.position = position
    }
  }

  package struct Limits: Sendable {
    /// Maximum number of keys, without the reserve (`Reserve`).
    package let keys: Int
    /// Maximum number of keys of one client.
    package let keysPerClient: Int
    /// How long an accepted key is remembered, unless `remember` extends it.
    package let retention: TimeSpan

    package init(keys: Int, keysPerClient: Int, retention: TimeSpan = IdempotencyTable.retention) {
      self.keys = keys
      self.keysPerClient = keysPerClient
      self.retention = retention
    }
  }

  /// How a request relates to the earlier requests with its key.
  package enum Verdict: Equatable, Sendable {
    /// The first request. `accept` or `cancel` must follow.
    case first
    /// A repetition of an accepted request.
    case repeated(Acceptance)
    /// A repetition of a request that is not accepted yet.
    case inProgress
    /// A request whose content differs from an earlier request with the key.
    case different
    /// Not admitted: no further key can be remembered before this time.
    case full(until: MonotonicTime)
  }

  private struct Entry: Sendable {
    let fingerprint: Key
    let client: UInt64
    /// nil until the request is accepted.
    var acceptance: Acceptance?
    /// When an accepted key expires.
    var end = MonotonicTime.distantFuture
  }

  private struct Shard: Sendable {
    var entries: [Key: Entry] = [:]
    /// The accepted keys, in the order in which they expire. A key that was accepted again after it had expired occurs
    /// twice.
    var expiries = RingDeque(filler: Expiry(key: Key(), time: .zero))
  }

  private struct Expiry: Sendable {
    let key: Key
    let time: MonotonicTime
  }

  private let limits: Limits
  /// How long a key that is accepted now is remembered. It never decreases, so that keys expire in order.
  package private(set) var retention: TimeSpan
  private var shards: [Shard]
  /// Counts the keys, in progress or accepted, by client. Above `countedClients` clients, the keys of further clients
  /// are counted for no client.
  private var total: ReservedTotal
  /// Maximum number of clients whose keys are counted: the number of keys of a shard with the default limit. The
  /// dictionary of clients should not be larger than the dictionary of a shard, since both are copied when they grow.
  private static var countedClients: Int { 16_384 }
  /// The latest time of any input. Threads pass times that are slightly out of order.
  private var latest = MonotonicTime.zero

  package init(_ limits: Limits) {
    self.limits = limits
    retention = limits.retention
    total = ReservedTotal(limit: limits.keys)
    shards = Array(repeating: Shard(), count: Self.shardCount)
  }

  /// From now on, accepted keys are remembered for at least `retention`.
  package mutating func remember(for retention: TimeSpan) { self.retention = max(self.retention, retention) }

  /// Number of keys, in progress or accepted.
  package var count: Int { total.used }

  /// - Parameters:
  ///   - key: the digest of the client's key with its scope.
  ///   - fingerprint: the digest of the content of the request.
  ///   - client: the client for which the key is counted: a principal, or an address without credentials.
  package mutating func begin(
    _ key: Key, _ fingerprint: Key, by client: UInt64, now: MonotonicTime
  ) -> Verdict {
    latest = max(latest, now)
    let index = index(of: key)
    var removals = Self.removalsPerCall
    expire(index, atMost: &removals)
    if let entry = shards[index].entries[key], entry.end > latest {
      guard entry.fingerprint == fingerprint else { return .different }
      return entry.acceptance.map { .repeated($0) } ?? .inProgress
    }
    let client = counted(client)
    // The key may have expired without having been removed.
    remove(key, from: index)
    if !hasRoom(for: client) {
      expireAll(atMost: &removals)
      guard hasRoom(for: client) else { return .full(until: nextExpiry) }
    }
    shards[index].entries[key] = Entry(fingerprint: fingerprint, client: client)
    total.add(by: client)
    return .first
  }

  /// Called when the first request with `key` is accepted. Changes nothing if the key was restored as accepted while
  /// the request waited. This happens when a gateway becomes the holder of a shared session again and restores the
  /// messages of the request.
  package mutating func accept(_ key: Key, _ acceptance: Acceptance, now: MonotonicTime) {
    latest = max(latest, now)
    let index = index(of: key)
    guard shards[index].entries[key]?.acceptance == nil else { return }
    let end = latest + retention
    shards[index].entries[key]?.acceptance = acceptance
    shards[index].entries[key]?.end = end
    shards[index].expiries.append(Expiry(key: key, time: end))
  }

  /// Restores keys of an earlier process or another gateway, in the order in which they expire. These keys were
  /// accepted already, so no limit refuses them. Returns the keys that the next call must restore.
  package mutating func restore(
    _ keys: ArraySlice<(stored: StoredKey, end: MonotonicTime)>
  ) -> ArraySlice<(stored: StoredKey, end: MonotonicTime)> {
    for (stored, end) in keys.prefix(Self.removalsPerCall) {
      let index = index(of: stored.key)
      remove(stored.key, from: index)
      let client = counted(stored.principal.high)
      shards[index].entries[stored.key] = Entry(
        fingerprint: stored.fingerprint, client: client, acceptance: stored.acceptance, end: end)
      shards[index].expiries.append(Expiry(key: stored.key, time: end))
      total.add(by: client)
    }
    return keys.dropFirst(Self.removalsPerCall)
  }

  /// Called when the first request with `key` is refused. The key is free again, unless it was restored as accepted
  /// while the request waited.
  package mutating func cancel(_ key: Key) {
    let index = index(of: key)
    if shards[index].entries[key]?.acceptance == nil { remove(key, from: index) }
  }

  /// Forgets a key, even if it was accepted.
  package mutating func forget(_ key: Key) { remove(key, from: index(of: key)) }

  /// Removes expired keys, at most `removalsPerCall`. Returns whether there may be more.
  package mutating func expire(now: MonotonicTime) -> Bool {
    latest = max(latest, now)
    var removals = Self.removalsPerCall
    expireAll(atMost: &removals)
    return removals == 0
  }

  private func index(of key: Key) -> Int { Int(key.high >> 58) }

  private func counted(_ client: UInt64) -> UInt64 {
    total.userCount < Self.countedClients || total.amount(of: client) > 0 ? client : 0
  }

  private func hasRoom(for client: UInt64) -> Bool {
    total.admits(by: client) && total.amount(of: client) < limits.keysPerClient
  }

  private mutating func expireAll(atMost removals: inout Int) {
    for index in shards.indices { expire(index, atMost: &removals) }
  }

  private mutating func expire(_ index: Int, atMost removals: inout Int) {
    guard !shards[index].expiries.isEmpty else { return }
    while removals > 0, !shards[index].expiries.isEmpty {
      let expiry = shards[index].expiries[shards[index].expiries.front]
      guard expiry.time <= latest else { return }
      shards[index].expiries.removeFirst()
      if shards[index].entries[expiry.key]?.end == expiry.time { remove(expiry.key, from: index) }
      removals -= 1
    }
    // A dictionary and a ring keep the memory of their largest size.
    if shards[index].expiries.isEmpty, shards[index].entries.isEmpty { shards[index] = Shard() }
  }

  private mutating func remove(_ key: Key, from index: Int) {
    guard let entry = shards[index].entries.removeValue(forKey: key) else { return }
    total.remove(by: entry.client)
  }

  /// When the first accepted key expires. One second from now if all keys are in progress or expired keys are not
  /// removed yet, since in both cases keys will be free soon.
  private var nextExpiry: MonotonicTime {
    let first = shards.lazy.compactMap { $0.expiries.isEmpty ? nil : $0.expiries[$0.expiries.front].time }.min()
    return first.flatMap { $0 > latest ? $0 : nil } ?? latest + .seconds(1)
  }
}
