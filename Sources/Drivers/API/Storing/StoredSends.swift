import Access
import ByteStreams
import Digests
import HTTPServer
import Host
import Idempotency
import Journal
import Metrics
import Outbox
import Peers
import Reactor
import Sessions
import Threading
import Upstream

/// Messages that are stored before they are acknowledged.
extension API {
  /// How long a request waits until its messages are stored. The wait is shorter if a proxy has stated a shorter
  /// timeout (`WaitParameter.granted`). If the disk takes longer, the request gets the same response as if the store
  /// had failed.
  package static var storeWait: TimeSpan { .seconds(30) }

  /// The response if messages cannot be stored. The store retries after 5 s.
  static var storeFailed: Problem {
    Problem(
      .storeFailed,
      "the message cannot be stored now, and was not accepted: repeat it after the time in Retry-After, with the same Idempotency-Key if it has one"
    )
  }

  /// The response if messages stay queued, and may be sent, although they are not stored yet. They stay queued because
  /// an earlier request has queued them, or because other messages have ended to make room for them.
  static var notStoredYet: Problem {
    Problem(
      .storeFailed,
      "the messages are queued and not stored yet, and may be sent: repeat the request after the time in Retry-After, with the same Idempotency-Key so that they are not sent twice"
    )
  }

  /// Returns the key of an accepted request if it is accepted only when the messages are stored. Otherwise, accepts the
  /// key now.
  func pendingKey(_ key: AcceptanceKey, of receipt: SendReceipt, at now: MonotonicTime) -> AcceptanceKey? {
    if receipt.submitted != nil { return key }
    if receipt.session.upstream.isStored {
      common.acceptUnstored(key, receipt.acceptance, of: receipt.session, at: now)
    } else {
      common.accept(key, receipt.acceptance, at: now)
    }
    return nil
  }

  /// Called when the messages are stored. Counts them as accepted, and accepts their idempotency key.
  func accept(_ pending: PendingSend, at now: MonotonicTime) {
    if !pending.isReplayed { common.metrics.acceptedMessages.add(pending.receipt.acceptedCount) }
    guard let key = pending.key else { return }
    common.accept(key, pending.receipt.acceptance, at: now)
  }
}

extension API {
  /// Counts queued messages as accepted although they are not stored yet. They are accepted only as long as this
  /// gateway is the holder of the session. After that, only the next holder knows their outcome.
  func acceptUnstored(_ pending: PendingSend, at now: MonotonicTime) {
    if !pending.isReplayed, pending.receipt.session.isHere {
      common.metrics.acceptedMessages.add(pending.receipt.acceptedCount)
    }
    guard let key = pending.key else { return }
    common.acceptUnstored(key, pending.receipt.acceptance, of: pending.receipt.session, at: now)
  }
}

extension API {
  /// Ends a request whose messages are not stored, and returns the problem of the response.
  func endUnstored(_ pending: PendingSend, at now: MonotonicTime) -> Problem {
    if pending.isWithdrawn {
      common.metrics.refusedMessages.add(.storeFailed, pending.receipt.acceptedCount)
      if let key = pending.key { common.cancel(key) }
      return Self.storeFailed
    }
    acceptUnstored(pending, at: now)
    // Messages that a former holder has submitted may be stored, even if the store's reply was lost.
    return pending.receipt.session.isHere ? Self.notStoredYet : Self.outcomeUnknown
  }
}

extension PendingSend {
  /// Whether the messages were withdrawn, and will certainly not be sent: the withdrawal is stored, or this gateway is
  /// still the holder. Messages that a gateway submitted before it lost the session may be stored, and then the next
  /// holder sends them.
  fileprivate var isWithdrawn: Bool {
    guard let withdrawal = storing?.withdrawal else { return false }
    return withdrawal.outcome(in: session) == .stored || session.isHere && !withdrawal.isLost(in: session)
  }

  mutating func noteStored(_ api: API, at now: MonotonicTime) {
    api.accept(self, at: now)
    key = nil
  }

  /// Ends the messages, unless other messages have ended to make room for them.
  func withdraw(_ messages: SubmittedChange, at now: MonotonicTime) -> StoreWait.Withdrawal {
    // A repetition has queued no messages of its own, so it has none to end.
    if isReplayed { return messages.outcome(in: session) == .stored ? .wasStored : .isKept }
    let accepted: [(first: UInt64, count: Int)] =
      switch receipt.results {
      case .single(let accepted, _): [(accepted.sequence, 1)]
      case .batch(let results):
        results.runs.compactMap { run in
          if case .accepted(let first, let count) = run { (first.sequence, count) } else { nil }
        }
      }
    return messages.reject(accepted, in: session)
  }
}

extension CommonState {
  /// Restores the keys that earlier processes have stored.
  func restoreKeys() {
    for session in sessions.all { restoreKeys(of: session) }
  }

  /// Restores the keys that earlier processes, or other gateways, have stored with the messages of a session.
  package func restoreKeys(of session: Session) {
    let now = ProcessInformation.monotonicTime()
    let upstream = session.upstream
    // A key whose messages could not be stored must not remain: its client got an error, and may repeat the request.
    forgetUnstoredKeys(of: session.name)
    guard let clock = upstream.keyClock else { return }
    let keys = session.takeRestoredKeys().map { (stored: $0, rest: clock.rest(of: $0, at: now)) }
      .filter { $0.rest > .zero && !upstream.wasRejectedByStore($0.stored.acceptance) }
      .sorted { $0.rest < $1.rest }
    for isForwarded in [false, true] {
      let lifetime = isForwarded ? PeerNetwork.Limits.longestRetention : IdempotencyTable.retention
      let ofTable = keys.filter { ($0.stored.principal == AcceptanceKey.ofPeers) == isForwarded }
      // The table removes expired keys in the order in which they were added, so a key with a longer lifetime delays
      // the removal of the keys behind it. The limit `lifetime` keeps this delay short. Only the ids of a gateway with
      // a longer `store.lease` delay other ids.
      var restored = ofTable.map { (stored: $0.stored, end: now + min($0.rest, lifetime)) }[...]
      // The lock is released after each part, so that requests of other sessions can use the table. This session is not
      // served yet.
      while !restored.isEmpty { restored = withKeys(ofForwarded: isForwarded) { $0.restore(restored) } }
    }
  }

  /// Calls `body` with the table of the ids of forwarded requests, or with the table of the keys of clients.
  func withKeys<Result: Sendable>(ofForwarded isForwarded: Bool, _ body: (inout IdempotencyTable) -> Result) -> Result {
    isForwarded ? forwarded.withLock { body(&$0) } : idempotency.withLock { body(&$0) }
  }

  func accept(_ key: AcceptanceKey, _ acceptance: IdempotencyTable.Acceptance, at now: MonotonicTime) {
    withKeys(ofForwarded: key.isForwarded) { $0.accept(key.key, acceptance, now: now) }
  }

  /// Like `accept`, but for messages that are not stored. The next term may not have these messages, so their key is
  /// valid only in this term.
  func acceptUnstored(
    _ key: AcceptanceKey, _ acceptance: IdempotencyTable.Acceptance, of session: Session, at now: MonotonicTime
  ) {
    unstoredKeys.withLock { keys in
      // This is checked while the lock is held. Since `isHere` becomes false before `forgetUnstoredKeys` is called, no
      // key is added after that call.
      guard session.isHere else { return cancel(key) }
      accept(key, acceptance, at: now)
      keys.add(key, of: session.name, at: now)
    }
  }

  /// Drops the keys of a restored session that were accepted without being stored. If they were stored after all, they
  /// are restored with the session.
  private func forgetUnstoredKeys(of name: String) {
    unstoredKeys.withLock { keys in
      for key in keys.take(of: name) { withKeys(ofForwarded: key.isForwarded) { $0.forget(key.key) } }
    }
  }

  func cancel(_ key: AcceptanceKey) { withKeys(ofForwarded: key.isForwarded) { $0.cancel(key.key) } }

  /// The client for which an idempotency key is counted, and a digest of its principal if keys are stored. The digest
  /// of a principal is the same in every process. All clients without credentials have the same digest.
  func keyOwner(of grant: Grant?, by client: UInt64) -> (count: UInt64, digest: IdempotencyTable.Key?) {
    guard storesKeys else { return (client, nil) }
    let digest = IdempotencyTable.Key(Digest.sha256(Array((grant?.principal ?? "").utf8).span).span)
    return (grant?.principal.isEmpty ?? true ? client : digest.high, digest)
  }
}

/// The key under which a request is accepted, with the table that has it.
struct AcceptanceKey: Sendable {
  let key: IdempotencyTable.Key
  /// Whether the key is the id of a request that another gateway has forwarded.
  let isForwarded: Bool

  init(_ key: IdempotencyTable.Key, isForwarded: Bool) {
    self.key = key
    self.isForwarded = isForwarded
  }

  /// The digest that is stored as the principal of the ids of forwarded requests. No real principal has this digest.
  static let ofPeers = IdempotencyTable.Key(high: 0, low: 0)
}

/// The keys that were accepted without being stored, by session.
struct UnstoredKeys: Sendable {
  private struct Entry: Sendable {
    let key: AcceptanceKey
    let time: MonotonicTime
  }

  private var entries: [String: RingDeque<Entry?>] = [:]

  /// Adds a key. Removes expired keys, so that this list never has more keys than the tables.
  mutating func add(_ key: AcceptanceKey, of session: String, at now: MonotonicTime) {
    var keys = entries.removeValue(forKey: session) ?? RingDeque(filler: nil)
    while !keys.isEmpty, let first = keys[keys.front], first.time + IdempotencyTable.retention < now {
      keys.removeFirst()
    }
    keys.append(Entry(key: key, time: now))
    entries[session] = keys
  }

  mutating func take(of session: String) -> [AcceptanceKey] {
    guard let keys = entries.removeValue(forKey: session) else { return [] }
    return (keys.front..<keys.end).compactMap { keys[$0]?.key }
  }
}
