import ByteStreams

package struct EndpointSettings: Sendable, Equatable {
  package enum Order: String, CaseIterable, Sendable {
    /// The first that works, and back to the first after a healthy minute.
    case priority
    /// Each dial takes the next.
    case roundRobin = "round-robin"
  }

  /// How many URLs are configured; at least one.
  package var count = 1
  package var order: Order = .priority
  /// How long a connection to a later URL must have been ready before the next dial begins with the first again.
  package var failBackAfter: TimeSpan = .seconds(60)

  package init() {}
}

/// Which of the configured URLs is dialled next. Only indices: the driver has the URLs.
package struct Endpoints: Sendable {
  private let settings: EndpointSettings
  package private(set) var current = 0
  /// URLs in a row that refused for good.
  private var refusals = 0
  /// Until when each URL wants to be left alone; past where it does not.
  private var heldUntil: [MonotonicTime]

  package init(_ settings: EndpointSettings) {
    precondition(settings.count > 0, "a session needs at least one URL")
    self.settings = settings
    heldUntil = Array(repeating: .zero, count: settings.count)
  }

  /// This URL asked to be left alone until then (429, 503).
  mutating func hold(_ index: Int, until: MonotonicTime) { heldUntil[index] = until }

  /// When the first URL may be dialled.
  func soonest(now: MonotonicTime) -> MonotonicTime { max(now, heldUntil.min() ?? now) }

  /// The URL to dial now: the current one, or where that wants to be left alone, the next in order that does not. Where all
  /// of them do, the one that may be dialled first.
  mutating func choose(now: MonotonicTime) -> Int {
    let inOrder = (0..<settings.count).map { (current + $0) % settings.count }
    let soonest = soonest(now: now)
    current = inOrder.first { heldUntil[$0] <= soonest } ?? current
    return current
  }

  package mutating func advance() { current = (current + 1) % settings.count }

  /// Notes that the current URL refused, and moves on; true when all of them have, one after the other.
  package mutating func refuseCurrent() -> Bool {
    refusals += 1
    advance()
    guard refusals >= settings.count else { return false }
    refusals = 0
    return true
  }

  /// A connection came to its end after it was ready for `time`, zero if it never was. `wantsNext`: the way it ended speaks
  /// against its URL.
  package mutating func connectionEnded(readyFor time: TimeSpan, wantsNext: Bool) {
    if time > .zero { refusals = 0 }
    switch settings.order {
    case .priority:
      if time >= settings.failBackAfter, current != 0 { current = 0 } else if wantsNext { advance() }
    case .roundRobin:
      advance()
    }
  }
}
