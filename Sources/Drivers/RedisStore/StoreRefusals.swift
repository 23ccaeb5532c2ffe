import ByteStreams
import Journal

/// Why what this gateway writes is refused.
enum StoreRefusal {
  /// Redis is full, or cannot persist. It may accept all but entries.
  case error(String)
  /// Too few replicas have confirmed it.
  case shortage(String)

  var reason: String {
    switch self {
    case .error(let reason), .shortage(let reason): reason
    }
  }

  var cause: StoreState.Cause {
    switch self {
    case .error(let reason): reason.hasPrefix("NOREPLICAS") ? .tooFewReplicas : .refused
    case .shortage: .tooFewReplicas
    }
  }
}

/// Whether Redis, or its replicas, have refused what this gateway writes for so long that messages are to be refused, while its connections work.
struct StoreRefusals {
  /// Longer than what is refused for a moment: a replica that is slow, or a snapshot. After this time without a refusal, what was refused is not
  /// written any more.
  private static var patience: TimeSpan { .seconds(2) }

  private var first = MonotonicTime.zero
  private var lastError: MonotonicTime?
  private var lastShortage: MonotonicTime?

  /// Something was refused. Returns whether that has lasted too long.
  mutating func refused(_ refusal: StoreRefusal, at now: MonotonicTime) -> Bool {
    if hasEnded(by: now) { first = now }
    switch refusal {
    case .error: lastError = now
    case .shortage: lastShortage = now
    }
    return now >= first + Self.patience
  }

  /// Everything in a flight has succeeded, and enough replicas have it.
  /// - Parameter hasEntries: Redis may accept everything else while it refuses those.
  mutating func succeeded(hasEntries: Bool) {
    lastShortage = nil
    if hasEntries { lastError = nil }
  }

  /// Whether nothing is refused at present. What is refused is repeated about twice a second.
  func hasEnded(by now: MonotonicTime) -> Bool {
    [lastError, lastShortage].allSatisfy { last in last.map { now >= $0 + Self.patience } ?? true }
  }
}
