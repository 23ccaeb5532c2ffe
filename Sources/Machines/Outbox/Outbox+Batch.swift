import ByteStreams

/// Batches that are queued as a whole or not at all.
extension Outbox {
  /// Queues all messages, with consecutive numbers, or none. The result has the number of the first message. The
  /// parameters have the same meaning as in `enqueue`.
  package mutating func enqueueAll(
    _ payloads: [ByteSlice], kind: MessageKind, timeToLive: TimeSpan?, topic: String? = nil, by client: UInt64 = 0,
    now: MonotonicTime
  ) -> EnqueueResult {
    guard !isClosed else { return .closed }
    if timeToLive == .zero, let reason = notReadyReason(for: payloads.count, now: now) { return .notReady(reason) }
    if let limit = exceededLimit(for: payloads, replacing: topic, by: client) { return .full(limit) }
    let first = ledger.last + 1
    var wakes = false
    for payload in payloads {
      let result = enqueue(
        payload, kind: kind, timeToLive: timeToLive, topic: topic, reportsEnd: false, by: client,
        droppingBefore: first, now: now)
      guard case .queued(_, let wakesNow) = result else { return result }
      wakes = wakes || wakesNow
    }
    return .queued(sequence: first, wakes: wakes)
  }

  /// The limit that all these messages together would exceed; nil if they would exceed no limit.
  private func exceededLimit(for payloads: [ByteSlice], replacing topic: String?, by client: UInt64) -> QueueLimit? {
    // With a replacement key, each message replaces the message before it.
    let count = topic == nil ? payloads.count : 1
    let size = topic == nil ? payloads.reduce(0) { $0 + $1.count } : payloads.map(\.count).max() ?? 0
    guard let limit = exceededLimit(count, size, replacing: topic, by: client) else { return nil }
    return settings.overflow == .dropOldest ? exceededLimit(count, size, dropsWaiting: true) : limit
  }
}

/// The limit of a queue, or of its pace, above which a batch can never be queued as a whole.
package enum BatchLimit: Equatable, Sendable {
  case messages, bytes, burst
}

extension OutboxSettings {
  /// The limit that these messages exceed together even if the outbox is empty; nil if they exceed no limit. Such a
  /// batch is refused each time, until a setting changes.
  package func batchLimit(for payloads: [ByteSlice], timeToLive: TimeSpan?, topic: String?) -> BatchLimit? {
    if timeToLive == .zero, let pace, payloads.count > pace.burst { return .burst }
    // With a replacement key, each message replaces the message before it, and an empty outbox accepts any single
    // message.
    guard topic == nil, payloads.count > 1 else { return nil }
    guard payloads.count <= maximumMessages else { return .messages }
    return payloads.reduce(0) { $0 + $1.count } <= maximumBytes ? nil : .bytes
  }
}
