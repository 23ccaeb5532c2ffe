/// The deadline of a peer's response to something that was sent: a ping, a close frame, a request, a command.
///
/// The peer cannot respond before it has received everything that was sent earlier. Two rules give the peer time to
/// receive it:
///
/// - The timeout starts again whenever the peer acknowledges more output, until it has acknowledged everything that
///   precedes its response.
/// - Acknowledged bytes may still be in buffers on the way, such as the buffers of a proxy. So these bytes extend the
///   deadline by the time that they need at `minimumRate`.
///
/// A peer that acknowledges nothing is detected after the timeout. So is a peer that has received everything and does
/// not respond.
///
/// Positions count the bytes of a connection's output from its beginning. The owner reports positions with `queued` and
/// `acknowledged`, at the latest when the deadline has passed. After that, the owner reads the deadline again, because
/// the reports may have extended it.
package struct ResponseDeadline: Sendable {
  /// The slowest expected rate, in bytes per second, at which a peer empties the buffers on the way. A slower peer is
  /// disconnected during a large message. A higher minimum would disconnect upstreams that are behind a proxy and a
  /// link of 0.5 Mbit/s.
  package static var minimumRate: Int { 32 << 10 }
  /// The most bytes that the buffers on the way are expected to contain: Linux's default maximum for a send buffer.
  /// Without this limit, a peer that hangs behind a proxy would be detected hours after a large message.
  package static var bufferedBytes: Int { 4 << 20 }

  /// The maximum extension of a limited wait (`isLimited`): the time that full buffers need at the slowest rate.
  /// Without this limit, a peer that takes a byte now and then could delay the deadline forever.
  private static var longestPostponement: TimeSpan { .seconds(Int64(bufferedBytes / minimumRate)) }

  private let timeout: TimeSpan
  private let latest: MonotonicTime
  /// When the timeout last started.
  private var start: MonotonicTime
  /// The peer has received every byte before this position, because it responded to these bytes. `.max` if that is
  /// unknown.
  private let received: UInt64
  /// The peer needs every byte before this position to respond. `.max` until `queued` reports it.
  private var end: UInt64
  private var acknowledged: UInt64 = 0

  /// - Parameters:
  ///   - received: the peer has received every byte before this position; nil if that is unknown, in which case
  ///     buffered bytes do not extend the deadline.
  ///   - position: the end of the bytes that the peer needs to respond; nil if `queued` will report it.
  ///   - isLimited: whether extensions add at most 128 s to the wait. If false, the wait is extended for as long
  ///     as the peer shows that it is alive.
  package init(
    _ timeout: TimeSpan, from now: MonotonicTime, received: UInt64?, position: UInt64? = nil, isLimited: Bool = true
  ) {
    self.timeout = timeout
    latest = isLimited ? now + timeout + Self.longestPostponement : .distantFuture
    start = now
    self.received = received ?? .max
    end = position ?? .max
  }

  /// The position that `queued` reported; nil if it has not reported a position yet.
  package var position: UInt64? { end == .max ? nil : end }

  package var deadline: MonotonicTime { deadline(renewedAt: start) }

  /// By how much the deadline of the wait that began at `began` has been extended so far.
  package func postponement(from began: MonotonicTime) -> TimeSpan { deadline - (began + timeout) }

  /// Whether the peer has not yet acknowledged all the bytes that it needs to respond.
  package var isBeingSent: Bool { end < .max && acknowledged < end }

  /// The deadline if the peer has shown a sign of life at `time`.
  package func deadline(renewedAt time: MonotonicTime) -> MonotonicTime {
    min(max(start, time) + timeout + buffering, latest)
  }

  /// Restarts the timeout at `now`.
  package mutating func renew(at now: MonotonicTime) { start = max(start, now) }

  /// Sets the end of the bytes that the peer needs to respond. Only the first call counts.
  package mutating func queued(through position: UInt64) {
    if end == .max { end = position }
  }

  /// Records that the peer has acknowledged every byte before `position`, by `time` at the latest.
  package mutating func acknowledged(through position: UInt64, at time: MonotonicTime) {
    guard position > acknowledged else { return }
    if acknowledged < end { renew(at: time) }
    acknowledged = position
  }

  /// The time by which buffered bytes extend the deadline.
  private var buffering: TimeSpan {
    let buffered = min(acknowledged, end)
    guard buffered > received else { return .zero }
    let bytes = Int64(min(buffered - received, UInt64(Self.bufferedBytes)))
    return .microseconds(bytes * 1_000_000 / Int64(Self.minimumRate))
  }
}
