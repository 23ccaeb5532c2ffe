import Access
import ByteStreams
import HTTPServer
import Metrics
import Threading

/// The limits of the section `limits`, for the clients of all event loops. Used from any thread.
///
/// A request is counted for its principal and for its address. There is one table for principals and one for addresses.
/// A table is divided into shards, each with its own lock, which is held for one look-up. If no limit applies to
/// principals, or to addresses, that table does not exist, and costs only a check for nil.
final class RateLimiter: Sendable {
  /// The property by which requests are counted for a limit.
  private enum Scope { case principal, address }

  private struct Table: Sendable {
    /// The number of shards, a power of two. With this number, loops seldom wait for each other.
    static var shardCount: Int { 64 }

    let scope: Scope
    let limits: RateTable.Limits
    private let shards: [Shard]

    private final class Shard: Sendable {
      let table: Locked<RateTable>
      init(_ limits: RateTable.Limits) { table = Locked(RateTable(limits)) }
    }

    /// Returns nil if there are no limits.
    init?(_ scope: Scope, _ limits: RateTable.Limits) {
      guard !limits.isEmpty else { return nil }
      self.scope = scope
      self.limits = limits
      shards = (0..<Self.shardCount).map { _ in Shard(limits) }
    }

    func with<Result: Sendable>(_ key: RateTable.Key, _ body: (inout RateTable) -> Result) -> Result {
      shards[key.shard(of: Self.shardCount)].table.withLock { body(&$0) }
    }

    var name: StaticString { scope == .principal ? "principal" : "address" }

    func setting(_ key: StaticString) -> String { "limits.\(name).\(key)" }

    /// The name of a limit in `RateLimit-Policy`.
    func policy(_ rate: RateTable.Rate) -> StaticString {
      switch (scope, rate) {
      case (.principal, .messages): "principal-messages"
      case (.principal, _): "principal-requests"
      case (.address, .messages): "address-messages"
      case (.address, _): "address-requests"
      }
    }

    var heldPolicy: StaticString { scope == .principal ? "principal-held" : "address-held" }

    /// Number of keys, and the memory for them in bytes.
    var size: (keys: Int, bytes: Int) {
      shards.reduce((0, 0)) { sum, shard in
        let size = shard.table.withLock { ($0.count, $0.allocatedBytes) }
        return (sum.0 + size.0, sum.1 + size.1)
      }
    }
  }

  /// The keys for which one request is counted. A key is nil if its scope has no limits.
  struct Client {
    fileprivate let principal: RateTable.Key?
    fileprivate let address: RateTable.Key?
  }

  /// The counts that `hold` has made for one request and that `release` takes back.
  struct Hold {
    fileprivate var principal: RateTable.Hold?
    fileprivate var address: RateTable.Hold?
  }

  private let principals: Table?
  private let addresses: Table?
  /// Whether requests are counted by address. If false, only failed authentications are counted by address.
  private let countsAddresses: Bool
  private let refused: RefusalCounters

  init(_ limits: APISettings.Limits, _ registry: MetricsRegistry) {
    principals = Table(.principal, limits.principal)
    addresses = Table(.address, limits.address)
    var counted = limits.address
    counted.failures = nil
    countsAddresses = !counted.isEmpty
    refused = RefusalCounters(registry)
    registry.gauge("drawbridge_rate_limit_keys", "Principals and addresses whose uses are counted.") { [self] in
      Double((principals?.size.keys ?? 0) + (addresses?.size.keys ?? 0))
    }
  }

  /// - Parameters:
  ///   - principal: empty if the request has no credentials.
  ///   - origin: the address of the client.
  /// - Returns: nil if no limit applies to the request.
  func client(_ principal: String, at origin: ClientOrigin) -> Client? {
    let byPrincipal = principal.isEmpty ? nil : principals.map { _ in RateTable.Key(principal) }
    // Clients of a Unix-domain socket are not counted by address: all of them have the same address, and the
    // permissions of the socket decide who may connect.
    let byAddress = origin == .local || !countsAddresses ? nil : addresses.map { _ in RateTable.Key(origin) }
    return byPrincipal == nil && byAddress == nil ? nil : Client(principal: byPrincipal, address: byAddress)
  }

  // MARK: Requests and messages

  /// Counts a request, or throws 429 and counts nothing.
  func admitRequest(of client: Client, at now: MonotonicTime) throws(Problem) {
    try use(.requests, 1, client, now)
  }

  /// Throws 429 if the client may not send a message now. Counts nothing. Called for a request with one message before
  /// its body is collected.
  func checkMessages(of client: Client, at now: MonotonicTime) throws(Problem) {
    if let wait = wait(for: .messages, client, now) { throw refusal(.messages, wait, client, now) }
  }

  /// Counts the messages of a request, or throws 429 and counts no message. Throws 413 if the request has more messages
  /// than a limit can ever admit.
  func admitMessages(_ count: Int, of client: Client, at now: MonotonicTime) throws(Problem) {
    try use(.messages, count, client, now)
  }

  private func use(_ rate: RateTable.Rate, _ uses: Int, _ client: Client, _ now: MonotonicTime) throws(Problem) {
    let results = tables(of: client).map { table, key in
      (table, key, table.with(key) { $0.use(rate, uses, by: key, at: now) })
    }
    var longest: (table: Table, wait: TimeSpan)?
    var impossible: Table?
    for (table, _, verdict) in results {
      switch verdict {
      case .admitted: break
      case .impossible: impossible = table
      case .refused(let wait): if wait > longest?.wait ?? .zero { longest = (table, wait) }
      }
    }
    if impossible == nil, longest == nil { return }
    // One limit has refused the request, so the limits that have admitted it must not count it.
    for case (let table, let key, .admitted(let inCommon)) in results {
      table.with(key) { $0.refund(rate, uses, by: key, inCommon: inCommon, at: now) }
    }
    if let impossible { throw Self.tooManyMessages(uses, impossible) }
    if let longest { throw refusal(rate, longest, client, now) }
  }

  /// The longest wait that a limit of the client requires before one more use; nil if no limit requires a wait.
  private func wait(
    for rate: RateTable.Rate, _ client: Client, _ now: MonotonicTime
  ) -> (table: Table, wait: TimeSpan)? {
    var longest: (table: Table, wait: TimeSpan)?
    for (table, key) in tables(of: client) {
      let wait = table.with(key) { $0.wait(for: rate, by: key, at: now) }
      if wait > longest?.wait ?? .zero { longest = (table, wait) }
    }
    return longest
  }

  private func tables(of client: Client) -> [(Table, RateTable.Key)] {
    var result: [(Table, RateTable.Key)] = []
    if let principals, let key = client.principal { result.append((principals, key)) }
    if let addresses, let key = client.address { result.append((addresses, key)) }
    return result
  }

  // MARK: Held requests

  /// Counts a request that may wait, or throws 429. If this returns a hold, `release` must be called with it, once.
  /// Returns nil if there is no limit on held requests.
  func hold(for client: Client, at now: MonotonicTime) throws(Problem) -> Hold? {
    var hold: Hold?
    for (table, key) in tables(of: client) where table.limits.held != nil {
      guard let place = table.with(key, { $0.hold(by: key, at: now) }) else {
        if let hold { release(hold) }
        refused.held.add()
        throw Problem(
          .tooManyRequests,
          "\(table.limits.held ?? 0) requests that may wait are in progress for this \(table.name) (the setting \(table.setting("held"))): end one of them, or try again later"
        )
      }
      hold = hold ?? Hold()
      switch table.scope {
      case .principal: hold?.principal = place
      case .address: hold?.address = place
      }
    }
    return hold
  }

  func release(_ hold: Hold) {
    if let principals, let place = hold.principal { principals.with(place.key) { $0.release(place) } }
    if let addresses, let place = hold.address { addresses.with(place.key) { $0.release(place) } }
  }

  // MARK: Failed authentication

  /// Throws 429 if this address has sent too many wrong credentials. Must be called before a costly check of
  /// credentials, such as the check of a signature. If that check fails, `noteFailure` must be called. Tokens that are
  /// found in a table are accepted without this call, so that other clients with the same address cannot lock their
  /// users out.
  func checkFailures(from origin: ClientOrigin, at now: MonotonicTime) throws(Problem) {
    guard let addresses, origin != .local, addresses.limits.failures != nil else { return }
    let key = RateTable.Key(origin)
    let wait = addresses.with(key) { $0.wait(for: .failures, by: key, at: now) }
    guard wait > .zero else { return }
    refused.failures.add()
    throw Problem(
      .tooManyRequests,
      "too many credentials from this address were not valid (the setting limits.failed_authentications, \(addresses.limits.failures?.text ?? "")): try again after the time in Retry-After",
      .retryAfter(Self.seconds(wait)))
  }

  /// Counts credentials that were not valid.
  func noteFailure(from origin: ClientOrigin, at now: MonotonicTime) {
    guard let addresses, origin != .local, addresses.limits.failures != nil else { return }
    let key = RateTable.Key(origin)
    _ = addresses.with(key) { $0.use(.failures, by: key, at: now) }
  }

  // MARK: Responses

  private func refusal(
    _ rate: RateTable.Rate, _ longest: (table: Table, wait: TimeSpan), _ client: Client, _ now: MonotonicTime
  ) -> Problem {
    var wait = longest.wait
    // When the client repeats the request, the limit of requests must admit it, too.
    if rate == .messages, let other = self.wait(for: .requests, client, now) { wait = max(wait, other.wait) }
    (rate == .messages ? refused.messages : refused.requests).add()
    let name: StaticString = rate == .messages ? "messages" : "requests"
    let table = longest.table
    return Problem(
      .tooManyRequests,
      "the limit of \(name) of this \(table.name) is reached (the setting \(table.setting(name)), \(table.limits[rate]?.text ?? "")): try again after the time in Retry-After",
      .retryAfter(Self.seconds(wait)))
  }

  private static func tooManyMessages(_ count: Int, _ table: Table) -> Problem {
    Problem(
      .contentTooLarge,
      "the batch has \(count) messages, and at most \(table.limits.messages?.burst ?? 0) are accepted at once (the burst of the setting \(table.setting("messages"))): send smaller batches"
    )
  }

  /// The value of `Retry-After`, rounded up. After this time the limiter admits the client, unless other requests have
  /// used up the limit.
  static func seconds(_ wait: TimeSpan) -> Int { Int((wait.nanoseconds + 999_999_999) / 1_000_000_000) }

  /// Writes `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers) for the limits of which more than
  /// four fifths are used.
  ///
  /// - Parameters:
  ///   - all: whether all limits are written, because one of them has refused the request.
  ///   - only: the only rate that this gateway counts for the request; nil if it counts all rates.
  func writeFields(
    of client: Client, all: Bool, only counted: RateTable.Rate? = nil, at now: MonotonicTime,
    into fields: inout ByteQueue
  ) {
    var standings: [LimitStanding] = []
    for (table, key) in tables(of: client) {
      table.with(key) { state in
        for rate in [RateTable.Rate.requests, .messages] where counted == nil || rate == counted {
          guard let limit = table.limits[rate], let standing = state.standing(rate, of: key, at: now) else { continue }
          standings.append(LimitStanding(table.policy(rate), rate, limit, standing))
        }
        guard counted == nil, let held = table.limits.held else { return }
        standings.append(LimitStanding(table.heldPolicy, held: held, inUse: state.heldCount(of: key, at: now)))
      }
    }
    if !all { standings.removeAll { !$0.isLow } }
    guard !standings.isEmpty else { return }
    fields.append("RateLimit-Policy: " as StaticString)
    for (index, standing) in standings.enumerated() {
      if index > 0 { fields.append(", " as StaticString) }
      standing.writePolicy(into: &fields)
    }
    fields.append("\r\nRateLimit: " as StaticString)
    for (index, standing) in standings.enumerated() {
      if index > 0 { fields.append(", " as StaticString) }
      standing.writeRemaining(into: &fields)
    }
    fields.append("\r\n" as StaticString)
  }
}

/// The state of one limit, for response fields: how much of it remains.
private struct LimitStanding {
  private let name: StaticString
  private let quota: Int
  private let remaining: Int
  /// The time in which the whole quota becomes available again, and the time until one more use is available, in
  /// seconds. nil for held requests.
  private let times: (window: Int, next: Int)?
  private let unit: StaticString?

  init(_ name: StaticString, _ rate: RateTable.Rate, _ limit: RateLimit, _ standing: RateTable.Standing) {
    self.name = name
    quota = limit.burst
    remaining = standing.remaining
    times = (RateLimiter.seconds(limit.recovery), RateLimiter.seconds(standing.next))
    unit = rate == .messages ? "messages" : nil
  }

  init(_ name: StaticString, held: Int, inUse: Int) {
    self.name = name
    quota = held
    remaining = max(0, held - inUse)
    times = nil
    unit = "concurrent-requests"
  }

  var isLow: Bool { remaining * 5 < quota }

  func writePolicy(into fields: inout ByteQueue) {
    begin(&fields)
    fields.append(";q=" as StaticString)
    fields.append(decimal: quota)
    if let times {
      fields.append(";w=" as StaticString)
      fields.append(decimal: times.window)
    }
    guard let unit else { return }
    fields.append(";qu=\"" as StaticString)
    fields.append(unit)
    fields.append("\"" as StaticString)
  }

  func writeRemaining(into fields: inout ByteQueue) {
    begin(&fields)
    fields.append(";r=" as StaticString)
    fields.append(decimal: remaining)
    guard let times else { return }
    fields.append(";t=" as StaticString)
    fields.append(decimal: times.next)
  }

  private func begin(_ fields: inout ByteQueue) {
    fields.append("\"" as StaticString)
    fields.append(name)
    fields.append("\"" as StaticString)
  }
}

/// Counts the requests that each limit has refused.
private struct RefusalCounters: Sendable {
  let requests: Counter
  let messages: Counter
  let held: Counter
  let failures: Counter

  init(_ registry: MetricsRegistry) {
    func counter(_ limit: String) -> Counter {
      registry.counter("drawbridge_requests_limited_total", "Requests refused with 429, by limit.", [("limit", limit)])
    }
    requests = counter("requests")
    messages = counter("messages")
    held = counter("held")
    failures = counter("failed-authentications")
  }
}
