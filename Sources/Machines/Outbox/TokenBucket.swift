import ByteStreams

/// How fast messages may leave: `messages` in each `interval`, and up to `burst` of them at once after a pause.
package struct Pace: Sendable, Equatable {
  package var messages: Int
  package var interval: TimeSpan
  package var burst: Int

  package init(messages: Int, interval: TimeSpan = .seconds(1), burst: Int = 1) {
    precondition(messages > 0 && interval > .zero && burst > 0, "a pace lets something through")
    self.messages = messages
    self.interval = interval
    self.burst = burst
  }
}

/// A pace kept: a bucket that holds `burst` tokens and gets one back every `interval / messages`.
///
/// It is kept as the moment at which the bucket is full again (the virtual scheduling algorithm of ITU-T I.371), so that there
/// is nothing to refill and nothing is lost to rounding. Who comes up to `slack` later than his token, as timers do, gets the
/// next one as if he had come in time: the pace is kept on average too. No token is given before its time.
package struct TokenBucket: Sendable {
  /// The grain of the timers that wait for a token.
  package static var slack: TimeSpan { .milliseconds(1) }

  private let spacing: TimeSpan
  private let burst: Int
  private var fullAt = MonotonicTime.zero

  package init(_ pace: Pace) {
    // Rounded up: the pace is an upper bound.
    let (whole, rest) = pace.interval.nanoseconds.quotientAndRemainder(dividingBy: Int64(pace.messages))
    spacing = .nanoseconds(max(1, whole + (rest > 0 ? 1 : 0)))
    burst = pace.burst
  }

  /// Tokens to be had at `now`.
  package func available(now: MonotonicTime) -> Int {
    let debt = (refreshed(now) - now).nanoseconds
    if debt <= 0 { return burst + Int(-debt / spacing.nanoseconds) }
    return burst - Int((debt - 1) / spacing.nanoseconds + 1)
  }

  /// Takes `count` tokens, of which no more may be asked for than are available.
  package mutating func take(_ count: Int, now: MonotonicTime) {
    guard count > 0 else { return }
    fullAt = refreshed(now) + spacing * Int64(count)
  }

  /// Takes `count` tokens back that were taken and not used.
  package mutating func giveBack(_ count: Int) { fullAt = fullAt - spacing * Int64(count) }

  /// When the next token is there, if all that are available now are taken.
  package func nextToken(now: MonotonicTime) -> MonotonicTime {
    refreshed(now) - spacing * Int64(burst - 1 - available(now: now))
  }

  private func refreshed(_ now: MonotonicTime) -> MonotonicTime { now - fullAt > Self.slack ? now : fullAt }
}
