import ByteStreams

/// How long to wait before the next dial after a failed one.
package enum BackoffStrategy: Sendable, Equatable {
  /// The same wait each time.
  case fixed(TimeSpan)
  /// `first · factorⁿ`, at most `cap`. No jitter: for a single client of a private upstream only.
  case exponential(first: TimeSpan, factor: Double, cap: TimeSpan)
  /// Uniform in a range.
  case random(least: TimeSpan, most: TimeSpan)
  /// Uniform between `least` and min(`cap`, `base · 2ⁿ`): spreads clients that lost one host over the whole window.
  case fullJitter(least: TimeSpan, base: TimeSpan, cap: TimeSpan)
  /// Uniform between `base` and three times the last wait, at most `cap`.
  case decorrelatedJitter(base: TimeSpan, cap: TimeSpan)
  /// 0, `step`, 2 · `step`, 4 · `step`, …; past `cap`, as `whenExhausted` says.
  case doubling(step: TimeSpan, cap: TimeSpan, whenExhausted: Exhaustion)

  package enum Exhaustion: String, CaseIterable, Sendable {
    /// Give up until an operator says otherwise.
    case stop
    /// Begin again at 0.
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
  // What the strategies are made of. `strategy` says which uses what.
  package var minimum: TimeSpan = .milliseconds(100)
  package var base: TimeSpan = .milliseconds(500)
  package var maximum: TimeSpan = .seconds(30)
  package var factor = 2.0
  package var whenExhausted = BackoffStrategy.Exhaustion.hold
  /// Dials in a row that may fail before the session gives up; nil: any number.
  package var maximumAttempts: Int?
  /// A connection counts as stable, and the count starts anew, after max(this, the last wait) in `ready`. A server that
  /// accepts and drops at once would be hammered if a mere upgrade did it.
  package var stableAfter: TimeSpan = .seconds(10)
  /// Upper end of the wait before the first redial after a stable connection.
  package var quickRedial: TimeSpan = .milliseconds(250)

  package init() {}

  /// The kind with the values that it uses.
  package var strategy: BackoffStrategy {
    get {
      switch kind {
      case .fixed: .fixed(base)
      case .exponential: .exponential(first: base, factor: factor, cap: maximum)
      case .random: .random(least: minimum, most: maximum)
      case .fullJitter: .fullJitter(least: minimum, base: base, cap: maximum)
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

/// The count of failures in a row, and the wait that follows from it.
package struct Backoff: Sendable {
  private let settings: BackoffSettings
  /// Failures since the last stable connection.
  package private(set) var failures = 0
  /// The last wait that was given out.
  package private(set) var lastDelay: TimeSpan = .zero

  package init(_ settings: BackoffSettings) { self.settings = settings }

  /// Counts a failure; answers the wait before the next dial, nil when there should be none.
  package mutating func nextDelay(using generator: inout some RandomNumberGenerator) -> TimeSpan? {
    if let most = settings.maximumAttempts, failures >= most { return nil }
    let round = failures
    failures += 1
    guard let delay = delay(inRound: round, using: &generator) else { return nil }
    lastDelay = delay
    return delay
  }

  /// Whether a connection that was ready for `time` has earned a fresh count.
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

  /// Uniform in `least...most`; `least` where the two are the wrong way round.
  package static func uniform(
    _ least: TimeSpan, _ most: TimeSpan, using generator: inout some RandomNumberGenerator
  ) -> TimeSpan {
    guard most > least else { return least }
    return TimeSpan(nanoseconds: Int64.random(in: least.nanoseconds...most.nanoseconds, using: &generator))
  }
}
