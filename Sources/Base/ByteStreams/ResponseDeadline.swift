/// The deadline of a peer's response to something that was sent: a ping, a close frame, a request, a command.
///
/// The peer cannot respond before it has received everything that was sent earlier. Two rules give it that time. First, the timeout
/// begins again whenever the peer has acknowledged more of the output, until nothing is left of what comes before the response. Second,
/// what is acknowledged may still be in buffers, such as those of a proxy, so these bytes earn time at `minimumRate`. A peer that
/// acknowledges nothing is found after the timeout, and one that has received everything, too.
///
/// Positions count the bytes of a connection's output from its beginning. The owner reports them (`queued`, `acknowledged`), at the
/// latest when the deadline has passed, and then asks for the deadline again.
package struct ResponseDeadline: Sendable {
  /// The slowest rate at which a peer empties the buffers between it and us, in bytes per second. Slower ones are lost with a large message;
  /// a faster rate would cut off upstreams behind a proxy on a link of 0.5 Mbit/s.
  package static var minimumRate: Int { 32 << 10 }
  /// The most that such buffers are expected to have: the largest send buffer of Linux, by default. Stops: a peer that hangs behind a proxy
  /// would be found hours after a large message.
  package static var bufferedBytes: Int { 4 << 20 }

  /// The time for which a wait is postponed at most, where that is limited: what the buffers may have at the slowest rate. Stops: a peer that takes a byte
  /// now and then.
  private static var longestPostponement: TimeSpan { .seconds(Int64(bufferedBytes / minimumRate)) }

  private let timeout: TimeSpan
  private let latest: MonotonicTime
  /// When the timeout began the last time.
  private var start: MonotonicTime
  /// The peer has received every byte before this position: it has responded to what was there. `.max` if that is not known.
  private let received: UInt64
  /// The peer must have every byte before this position to respond; `.max` until it is reported.
  private var end: UInt64
  private var acknowledged: UInt64 = 0

  /// - Parameters:
  ///   - received: the peer has received every byte before this position; nil if unknown. Then buffered bytes earn no time.
  ///   - position: nil if `queued` follows.
  ///   - isLimited: whether the peer may take two minutes more at most. Otherwise it may take any time, as long as it shows that it is alive.
  package init(
    _ timeout: TimeSpan, from now: MonotonicTime, received: UInt64?, position: UInt64? = nil, isLimited: Bool = true
  ) {
    self.timeout = timeout
    latest = isLimited ? now + timeout + Self.longestPostponement : .distantFuture
    start = now
    self.received = received ?? .max
    end = position ?? .max
  }

  /// What `queued` has reported.
  package var position: UInt64? { end == .max ? nil : end }

  package var deadline: MonotonicTime { deadline(renewedAt: start) }

  /// How much later the deadline is than it was at first. The wait began at `began`.
  package func postponement(from began: MonotonicTime) -> TimeSpan { deadline - (began + timeout) }

  /// Whether the peer has not acknowledged everything that it must have to respond.
  package var isBeingSent: Bool { end < .max && acknowledged < end }

  /// The deadline if the peer has shown at `time` that it is alive.
  package func deadline(renewedAt time: MonotonicTime) -> MonotonicTime {
    min(max(start, time) + timeout + buffering, latest)
  }

  /// The timeout begins again.
  package mutating func renew(at now: MonotonicTime) { start = max(start, now) }

  /// The response is to what ends at `position`. Only the first report counts.
  package mutating func queued(through position: UInt64) {
    if end == .max { end = position }
  }

  /// The peer has acknowledged every byte before `position`, the last of them at `time` at the latest.
  package mutating func acknowledged(through position: UInt64, at time: MonotonicTime) {
    guard position > acknowledged else { return }
    if acknowledged < end { renew(at: time) }
    acknowledged = position
  }

  /// The time that buffered bytes may take.
  private var buffering: TimeSpan {
    let buffered = min(acknowledged, end)
    guard buffered > received else { return .zero }
    let bytes = Int64(min(buffered - received, UInt64(Self.bufferedBytes)))
    return .microseconds(bytes * 1_000_000 / Int64(Self.minimumRate))
  }
}
