import ByteStreams

/// Batches that are queued as a whole or not at all.
extension Outbox {
  /// Queues all messages, with consecutive numbers, or none. The result has the number of the first. The parameters are those of `enqueue`
  /// for a single message.
  package mutating func enqueueAll(
    _ payloads: [SharedBytes], kind: MessageKind, timeToLive: TimeSpan?, topic: String? = nil, now: MonotonicTime
  ) -> EnqueueResult {
    guard !isClosed else { return .closed }
    if timeToLive == .zero, let reason = notReadyReason(for: payloads.count, now: now) { return .notReady(reason) }
    if let limit = exceededLimit(for: payloads, replacing: topic) { return .full(limit) }
    let first = ledger.last + 1
    var wakes = false
    for payload in payloads {
      let result = enqueue(payload, kind: kind, timeToLive: timeToLive, topic: topic, now: now)
      guard case .queued(_, let wakesNow) = result else { return result }
      wakes = wakes || wakesNow
    }
    return .queued(sequence: first, wakes: wakes)
  }

  /// The limit that all these messages together would exceed; nil if none.
  private func exceededLimit(for payloads: [SharedBytes], replacing topic: String?) -> QueueLimit? {
    // With a topic, each replaces the one before it.
    let count = topic == nil ? payloads.count : 1
    let size = topic == nil ? payloads.reduce(0) { $0 + $1.count } : payloads.map(\.count).max() ?? 0
    var others = messages + kept
    var held = bytes
    if settings.overflow == .dropOldest {
      others -= waiting
      held -= waitingBytes
    } else if let topic, let position = topics[topic] {
      others -= 1
      held -= ring[position].payload?.count ?? 0
    }
    guard others + count <= settings.maximumMessages else { return .messages }
    return others + count == 1 || held + size <= settings.maximumBytes ? nil : .bytes
  }
}
