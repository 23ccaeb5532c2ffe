import ByteStreams

/// How to compute the wait between a failed connection attempt and the next attempt.
package enum BackoffStrategy: Sendable, Equatable {
  /// The same wait each time.
  case fixed(TimeSpan)
  /// `first · factorⁿ`, at most `cap`. No jitter: for a single client of a private upstream only.
  case exponential(first: TimeSpan, factor: Double, cap: TimeSpan)
  /// Uniform in a range.
  case random(minimum: TimeSpan, maximum: TimeSpan)
  /// Uniform between `minimum` and min(`cap`, `base · 2ⁿ`). Clients that lost the same host spread their attempts over
  /// the whole range.
  case fullJitter(minimum: TimeSpan, base: TimeSpan, cap: TimeSpan)
  /// Uniform between `base` and three times the last wait, at most `cap`.
  case decorrelatedJitter(base: TimeSpan, cap: TimeSpan)
  /// 0, `step`, 2 · `step`, 4 · `step`, …. Above `cap`, `whenExhausted` applies.
  case doubling(step: TimeSpan, cap: TimeSpan, whenExhausted: Exhaustion)

  package enum Exhaustion: String, CaseIterable, Sendable {
    /// Give up until an operator opens the session.
    case stop
    /// Start again at 0.
    case reset
    /// Stay at the cap.
    case hold
  }
}

package struct BackoffSettings: Sendable, Equatable {
  /// The strategies by their names in the configuration.
  package enum Kind: String, CaseIterable, Sendable {
    case fixed, exponential, random
    case fullJitter = "full-jitter"
    case decorrelatedJitter = "decorrelated-jitter"
    case doubling
  }

  package var kind = Kind.fullJitter
  // Parameters of the strategies. `strategy` defines which of them each kind uses.
  package var minimum: TimeSpan = .milliseconds(100)
  package var base: TimeSpan = .milliseconds(500)
  package var maximum: TimeSpan = .seconds(30)
  package var factor = 2.0
  package var whenExhausted = BackoffStrategy.Exhaustion.hold
  /// Maximum number of consecutive failed attempts before the session gives up; nil for no limit.
  package var maximumAttempts: Int?
  /// A connection is stable once it has been `ready` for max(`stableAfter`, the last wait). A stable connection resets
  /// the count of failures. If the upgrade alone reset the count, a server that accepts connections and drops them at
  /// once would be flooded with attempts.
  package var stableAfter: TimeSpan = .seconds(10)
  /// Maximum wait before the first attempt after a stable connection.
  package var quickReconnect: TimeSpan = .milliseconds(250)

  package init() {}

  /// The kind with the parameters that it uses.
  package var strategy: BackoffStrategy {
    get {
      switch kind {
      case .fixed: .fixed(base)
      case .exponential: .exponential(first: base, factor: factor, cap: maximum)
      case .random: .random(minimum: minimum, maximum: maximum)
      case .fullJitter: .fullJitter(minimum: minimum, base: base, cap: maximum)
      case .decorrelatedJitter: .decorrelatedJitter(base: base, cap: maximum)
      case .doubling: .doubling(step: base, cap: maximum, whenExhausted: whenExhausted)
      }
    }
    set {
      switch newValue {
      case .fixed(let delay): (kind, base) = (.fixed, delay)
      case .exponential(let first, let factor, let cap):
        (kind, base, self.factor, maximum) = (.exponential, first, factor, cap)
      case .random(let least, let most): (kind, minimum, maximum) = (.random, least, most)
      case .fullJitter(let least, let base, let cap):
        (kind, minimum, self.base, maximum) = (.fullJitter, least, base, cap)
      case .decorrelatedJitter(let base, let cap): (kind, self.base, maximum) = (.decorrelatedJitter, base, cap)
      case .doubling(let step, let cap, let whenExhausted):
        (kind, base, maximum, self.whenExhausted) = (.doubling, step, cap, whenExhausted)
      }
    }
  }
}

/// Counts consecutive failures, and computes the waits between attempts.
package struct Backoff: Sendable {
  private let settings: BackoffSettings
  /// Failures since the last stable connection.
  package private(set) var failures = 0
  /// The last wait returned.
  package private(set) var lastDelay: TimeSpan = .zero

  package init(_ settings: BackoffSettings) { self.settings = settings }

  /// Counts a failure. Returns the wait before the next attempt, or nil if the session must give up.
  package mutating func nextDelay(using generator: inout some RandomNumberGenerator) -> TimeSpan? {
    if let most = settings.maximumAttempts, failures >= most { return nil }
    let round = failures
    failures += 1
    guard let delay = delay(inRound: round, using: &generator) else { return nil }
    lastDelay = delay
    return delay
  }

  /// Whether a connection that was ready for `time` resets the count of failures.
  package func isStable(readyFor time: TimeSpan) -> Bool { time >= max(settings.stableAfter, lastDelay) }

  package mutating func reset() {
    failures = 0
    lastDelay = .zero
  }

  private mutating func delay(
    inRound round: Int, using generator: inout some RandomNumberGenerator
  ) -> TimeSpan? {
    switch settings.strategy {
    case .fixed(let delay):
      return delay
    case .exponential(let first, let factor, let cap):
      return Self.grown(first, by: factor, rounds: round, cap: cap)
    case .random(let least, let most):
      return Self.uniform(least, most, using: &generator)
    case .fullJitter(let least, let base, let cap):
      return Self.uniform(least, Self.grown(base, by: 2, rounds: round, cap: cap), using: &generator)
    case .decorrelatedJitter(let base, let cap):
      return min(cap, Self.uniform(base, max(base, lastDelay) * 3, using: &generator))
    case .doubling(let step, let cap, let whenExhausted):
      let delay = round == 0 ? .zero : Self.grown(step, by: 2, rounds: round - 1, cap: .seconds(1 << 30))
      if delay <= cap { return delay }
      switch whenExhausted {
      case .stop: return nil
      case .hold: return cap
      case .reset:
        failures = 1
        return .zero
      }
    }
  }

  private static func grown(_ first: TimeSpan, by factor: Double, rounds: Int, cap: TimeSpan) -> TimeSpan {
    var span = Double(first.nanoseconds)
    for _ in 0..<rounds where span < Double(cap.nanoseconds) { span *= factor }
    return span < Double(cap.nanoseconds) ? TimeSpan(nanoseconds: Int64(span)) : cap
  }

  /// A random time in `minimum...maximum`; `minimum` if `maximum` is less.
  package static func uniform(
    _ minimum: TimeSpan, _ maximum: TimeSpan, using generator: inout some RandomNumberGenerator
  ) -> TimeSpan {
    guard maximum > minimum else { return minimum }
    // Computed as a fraction of the range, from one random number. `Int64.random(in:)` would take 2,000 instructions,
    // since the generator's type is unknown here. The bias is less than the range in nanoseconds divided by 2^64.
    let range = UInt64(maximum.nanoseconds - minimum.nanoseconds) + 1
    return minimum + TimeSpan(nanoseconds: Int64(generator.next().multipliedFullWidth(by: range).high))
  }
}
