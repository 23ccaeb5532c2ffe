import ByteStreams
import JournalCoding

/// An idempotency key as it is stored, together with the messages that were accepted under it.
package struct StoredKey: Hashable, Sendable {
  /// The digest of the client's key with its scope. Like the other digests, it is the same in every process.
  package let key: IdempotencyTable.Key
  /// The digest of the content of the request.
  package let fingerprint: IdempotencyTable.Key
  /// The digest of the name of the client for which the key is counted.
  package let principal: IdempotencyTable.Key
  package let acceptance: IdempotencyTable.Acceptance
  /// When the key was accepted, on the `KeyClock`, in milliseconds.
  package let accepted: Int64
  /// When the key expires.
  package let end: Int64

  package init(
    key: IdempotencyTable.Key, fingerprint: IdempotencyTable.Key, principal: IdempotencyTable.Key,
    acceptance: IdempotencyTable.Acceptance, accepted: Int64, end: Int64
  ) {
    self.key = key
    self.fingerprint = fingerprint
    self.principal = principal
    self.acceptance = acceptance
    self.accepted = accepted
    self.end = end
  }
}

/// The keys of a session as they are stored.
package struct StoredKeys: Equatable, Sendable {
  /// The keys in the order in which they were accepted. Some may have expired.
  private var keys = RingDeque(filler: nil as StoredKey?)

  package init() {}

  package mutating func apply(_ key: StoredKey) {
    while !keys.isEmpty, let first = keys[keys.front], first.end <= key.accepted { keys.removeFirst() }
    if keys.count == keys.capacity { removeAllExpired(at: key.accepted) }
    keys.append(key)
  }

  /// Called when the ring is full, before it would grow. Keys behind a key with a later expiry may have expired: ids of
  /// forwarded requests have shorter lifetimes than keys of clients. Afterwards at least half of the ring is free, so a
  /// key costs a constant time on average.
  private mutating func removeAllExpired(at time: Int64) {
    let left = changes.filter { $0.end > time }
    var capacity = 16
    while capacity < 2 * left.count { capacity *= 2 }
    keys = RingDeque(filler: nil, minimumCapacity: capacity)
    for key in left { keys.append(key) }
  }

  /// The changes that turn empty keys into these keys.
  package var changes: [StoredKey] { (keys.front..<keys.end).compactMap { keys[$0] } }

  var newest: StoredKey? { keys.isEmpty ? nil : keys[keys.end - 1] }

  package static func == (left: StoredKeys, right: StoredKeys) -> Bool { left.changes == right.changes }
}

extension StoredKey: JournalRecord {
  package init(_ stored: Self?, _ coder: inout JournalCoder) {
    key = IdempotencyTable.Key(stored?.key, &coder)
    fingerprint = IdempotencyTable.Key(stored?.fingerprint, &coder)
    principal = IdempotencyTable.Key(stored?.principal, &coder)
    acceptance = IdempotencyTable.Acceptance(stored?.acceptance, &coder)
    accepted = coder.signed(stored?.accepted)
    end = coder.signed(stored?.end)
  }
}

extension IdempotencyTable.Key: JournalRecord {
  package init(_ key: Self?, _ coder: inout JournalCoder) {
    self.init(high: coder.fixed(key?.high), low: coder.fixed(key?.low))
  }
}

extension IdempotencyTable.Acceptance: JournalRecord {
  package init(_ acceptance: Self?, _ coder: inout JournalCoder) {
    first = coder.number(acceptance?.first)
    batchCount = coder.optional(acceptance?.batchCount) { coder, count in
      Int32(truncatingIfNeeded: coder.signed(count.map { Int64($0) }))
    }
    kind = coder.raw(acceptance?.kind, or: .text)
    position = coder.position(acceptance?.position)
  }
}
