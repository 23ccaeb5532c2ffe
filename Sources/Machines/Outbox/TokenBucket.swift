import ByteStreams

/// How fast messages may be sent: `messages` per `interval`, and up to `burst` of them at once after a pause.
package struct Pace: Sendable, Equatable {
  package var messages: Int
  package var interval: TimeSpan
  package var burst: Int

  package init(messages: Int, interval: TimeSpan = .seconds(1), burst: Int = 1) {
    precondition(messages > 0 && interval > .zero && burst > 0, "each part of a pace must be positive")
    self.messages = messages
    self.interval = interval
    self.burst = burst
  }
}

/// Enforces a pace: a bucket of at most `burst` tokens that regains one token every `interval / messages`.
///
/// The type stores only the time at which the bucket is full again (the virtual scheduling algorithm of ITU-T I.371),
/// so nothing needs refilling and nothing is lost to rounding. A caller that takes its token up to `slack` late, as
/// timers do, gets the next token as if it had been on time, so the average pace is kept. No token is available early.
///
/// `HostAttemptLimiter` is a separate type, since it assigns times in the order of requests, with pauses and a limit on
/// attempts in progress.
package struct TokenBucket: Sendable {
  /// The resolution of the timers that wait for a token.
  package static var slack: TimeSpan { .milliseconds(1) }

  private let spacing: TimeSpan
  private let burst: Int
  private var fullAt = MonotonicTime.zero

  package init(_ pace: Pace) {
    // Rounded up: the pace is an upper limit.
    let (whole, rest) = pace.interval.nanoseconds.quotientAndRemainder(dividingBy: Int64(pace.messages))
    spacing = .nanoseconds(max(1, whole + (rest > 0 ? 1 : 0)))
    burst = pace.burst
  }

  /// Tokens available at `now`, which may be slightly before the last `take`: loops read the clock at different times.
  package func available(now: MonotonicTime) -> Int {
    let debt = (refreshed(now) - now).nanoseconds
    if debt <= 0 { return burst + Int(-debt / spacing.nanoseconds) }
    return max(0, burst - Int((debt - 1) / spacing.nanoseconds + 1))
  }

  /// Takes `count` tokens, which must not exceed the available tokens.
  package mutating func take(_ count: Int, now: MonotonicTime) {
    guard count > 0 else { return }
    fullAt = refreshed(now) + spacing * Int64(count)
  }

  /// Returns `count` tokens that were taken and not used.
  package mutating func refund(_ count: Int) { fullAt = fullAt - spacing * Int64(count) }

  /// When the next token is available, if all tokens that are available now are taken.
  package func nextToken(now: MonotonicTime) -> MonotonicTime {
    refreshed(now) - spacing * Int64(burst - 1 - available(now: now))
  }

  private func refreshed(_ now: MonotonicTime) -> MonotonicTime { now - fullAt > Self.slack ? now : fullAt }
}
