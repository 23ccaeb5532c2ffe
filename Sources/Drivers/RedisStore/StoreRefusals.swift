import ByteStreams

/// Whether Redis, or its replicas, have refused what this gateway writes for so long that messages are to be refused. Redis is full then, cannot persist,
/// or has too few replicas, while its connections work.
struct StoreRefusals {
  /// Longer than what is refused for a moment: a replica that is slow, or a snapshot. After this time without a refusal, what was refused is not
  /// written any more.
  private static var patience: TimeSpan { .seconds(2) }

  private var first = MonotonicTime.zero
  private var last: MonotonicTime?

  /// Something was refused. Returns whether that has lasted too long.
  mutating func refused(at now: MonotonicTime) -> Bool {
    if hasEnded(by: now) { first = now }
    last = now
    return now >= first + Self.patience
  }

  /// A write has succeeded.
  mutating func succeeded() { last = nil }

  /// Whether nothing is refused at present. What is refused is repeated about twice a second.
  func hasEnded(by now: MonotonicTime) -> Bool { last.map { now >= $0 + Self.patience } ?? true }
}
