import ByteStreams
import UpstreamSession

/// Decides which Sentinel to query next for the primary, and when.
///
/// A round queries each Sentinel once, beginning with the Sentinel whose reply last led to a primary. An address that
/// has failed is not tried again in the same round, since the Sentinels usually agree on it. The wait between two
/// rounds grows.
package struct PrimarySearch: Sendable {
  package enum Step: Hashable, Sendable {
    /// Query the Sentinel with this index.
    case ask(Int)
    case wait(TimeSpan)
  }

  /// A failover takes seconds, and its end must be noticed at once, since each wait delays all messages. So the waits
  /// are short. They are random, so that many gateways do not wait equally long.
  private static var backoff: BackoffSettings {
    var settings = BackoffSettings()
    settings.kind = .fullJitter
    settings.minimum = .milliseconds(50)
    settings.base = .milliseconds(100)
    settings.maximum = .milliseconds(500)
    return settings
  }

  /// A connection that was ready for less than this does not reset the waits. If it did, a server that drops
  /// connections at once would be flooded with attempts.
  package static var stableAfter: TimeSpan { .seconds(1) }

  private var order: [Int]
  private var next = 0
  private var failed: Set<RedisAddress> = []
  private var backoff = Backoff(Self.backoff)
  /// When the last connection was ready.
  private var lastSuccess: MonotonicTime?
  private var waitsFirst = false

  /// - Parameter sentinels: the number of Sentinels, at least 1. A server without Sentinels counts as one Sentinel that
  ///   always gives the same address.
  package init(sentinels: Int) {
    precondition(sentinels > 0, "a search needs at least one Sentinel")
    order = Array(0..<sentinels)
  }

  /// Begins the next round with this Sentinel, which has reported a failover. The other Sentinels may not have noticed
  /// the failover yet.
  package mutating func prefer(_ sentinel: Int) {
    order.removeAll { $0 == sentinel }
    order.insert(sentinel, at: 0)
    next = 0
    failed = []
  }

  /// Begins the first search, or the next search after a connection has ended.
  package mutating func begin(now: MonotonicTime) {
    guard let lastSuccess else { return }
    waitsFirst = now - lastSuccess < Self.stableAfter
    if !waitsFirst { backoff.reset() }
  }

  package mutating func nextStep(using generator: inout some RandomNumberGenerator) -> Step {
    if next < order.count, !waitsFirst {
      next += 1
      return .ask(order[next - 1])
    }
    next = 0
    failed = []
    waitsFirst = false
    return .wait(backoff.nextDelay(using: &generator) ?? Self.backoff.maximum)
  }

  /// Whether to connect to this address, which the last Sentinel has given.
  package func shouldTry(_ address: RedisAddress) -> Bool { !failed.contains(address) }

  /// Records that the connection to this address failed.
  package mutating func noteFailure(of address: RedisAddress) { failed.insert(address) }

  /// Records that the connection to the last Sentinel's address is ready. The next search begins with that Sentinel.
  package mutating func noteSuccess(now: MonotonicTime) {
    let index = order.remove(at: next - 1)
    order.insert(index, at: 0)
    next = 0
    failed = []
    lastSuccess = now
  }
}
