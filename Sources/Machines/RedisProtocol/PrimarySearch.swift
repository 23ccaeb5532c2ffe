import ByteStreams
import UpstreamSession

/// Which Sentinel is asked next for the primary, and when.
///
/// A round asks each Sentinel once, beginning with the one whose answer led to a primary last time. An address that has failed is not tried again
/// in the same round: the Sentinels agree on it, as a rule. Between two rounds there is a wait, which grows.
package struct PrimarySearch: Sendable {
  package enum Step: Hashable, Sendable {
    /// Ask the Sentinel with this index.
    case ask(Int)
    case wait(TimeSpan)
  }

  /// A failover takes seconds, and its end must be noticed at once: each wait delays all messages. So the waits are short, and many gateways
  /// must not wait equally long.
  private static var backoff: BackoffSettings {
    var settings = BackoffSettings()
    settings.kind = .fullJitter
    settings.minimum = .milliseconds(50)
    settings.base = .milliseconds(100)
    settings.maximum = .milliseconds(500)
    return settings
  }

  /// A connection that was ready for less than this does not end the growth of the waits: a server that drops connections at once would
  /// be flooded with them.
  package static var stableAfter: TimeSpan { .seconds(1) }

  private var order: [Int]
  private var next = 0
  private var failed: Set<RedisAddress> = []
  private var backoff = Backoff(Self.backoff)
  /// When the last connection was ready.
  private var lastSuccess: MonotonicTime?
  private var waitsFirst = false

  /// `sentinels`: their number, at least 1. A server without Sentinels is a single one that always gives the same address.
  package init(sentinels: Int) {
    precondition(sentinels > 0, "a search needs at least one Sentinel")
    order = Array(0..<sentinels)
  }

  /// The Sentinel with this index knows of a failover: the next round begins with it. The others may not know yet.
  package mutating func prefer(_ sentinel: Int) {
    order.removeAll { $0 == sentinel }
    order.insert(sentinel, at: 0)
    next = 0
    failed = []
  }

  /// Begins a search: the first, or one after the connection of the last has ended.
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

  /// Whether this address, which the Sentinel asked last has given, is worth a connection.
  package func shouldTry(_ address: RedisAddress) -> Bool { !failed.contains(address) }

  /// The connection to this address failed.
  package mutating func noteFailure(of address: RedisAddress) { failed.insert(address) }

  /// The connection to the address that the Sentinel asked last has given is ready. The next search begins with that Sentinel.
  package mutating func noteSuccess(now: MonotonicTime) {
    let index = order.remove(at: next - 1)
    order.insert(index, at: 0)
    next = 0
    failed = []
    lastSuccess = now
  }
}
