import ByteStreams
import Journal

/// Why the writes of this gateway are refused.
enum StoreRefusal {
  /// Redis is full, or cannot persist. It may refuse entries only.
  case error(String)
  /// Too few replicas have confirmed the write.
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

/// Decides when the store counts as failed while its connections work: when Redis or its replicas have refused writes
/// for too long.
struct StoreRefusals {
  /// How long refusals may last. Refusals because of a slow replica or a snapshot are usually shorter. After this time
  /// without a refusal, the refusals count as ended, since a refused write would have been repeated by then.
  private static var patience: TimeSpan { .seconds(2) }

  private var first = MonotonicTime.zero
  private var lastError: MonotonicTime?
  private var lastShortage: MonotonicTime?

  /// Called when a command was refused. Returns whether refusals have lasted too long.
  mutating func refused(_ refusal: StoreRefusal, at now: MonotonicTime) -> Bool {
    if hasEnded(by: now) { first = now }
    switch refusal {
    case .error: lastError = now
    case .shortage: lastShortage = now
    }
    return now >= first + Self.patience
  }

  /// Called when all commands of a flight have succeeded, and enough replicas have confirmed them.
  ///
  /// - Parameter hasEntries: whether the flight stored entries. Redis may accept all other commands while it refuses
  ///   entries.
  mutating func succeeded(hasEntries: Bool) {
    lastShortage = nil
    if hasEntries { lastError = nil }
  }

  /// Whether nothing is refused at present. A refused command is repeated about twice a second.
  func hasEnded(by now: MonotonicTime) -> Bool {
    [lastError, lastShortage].allSatisfy { last in last.map { now >= $0 + Self.patience } ?? true }
  }
}
