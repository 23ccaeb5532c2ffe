import ByteStreams

package struct EndpointSettings: Sendable, Equatable {
  package enum Order: String, CaseIterable, Sendable {
    /// Attempts use the first configured URL that works. After a connection to a later URL that was ready for
    /// `failBackAfter`, they begin with the first URL again.
    case priority
    /// Each attempt uses the next URL.
    case roundRobin = "round-robin"
  }

  /// Number of configured URLs; at least one.
  package var count = 1
  package var order: Order = .priority
  /// How long a connection to a later URL must have been ready for the next attempt to use the first URL again.
  package var failBackAfter: TimeSpan = .seconds(60)

  package init() {}
}

/// Selects the configured URL for the next attempt. It handles indices only; the driver has the URLs.
package struct Endpoints: Sendable {
  private let settings: EndpointSettings
  package private(set) var current = 0
  /// Number of consecutive URLs that refused permanently.
  private var refusals = 0
  /// When the pause of each URL ends; in the past if the URL is not paused.
  private var pausedUntil: [MonotonicTime]

  package init(_ settings: EndpointSettings) {
    precondition(settings.count > 0, "a session needs at least one URL")
    self.settings = settings
    pausedUntil = Array(repeating: .zero, count: settings.count)
  }

  /// Pauses a URL until `until`, after a response with status code 429 or 503.
  mutating func pause(_ index: Int, until: MonotonicTime) { pausedUntil[index] = until }

  /// The earliest time at which an attempt to any URL is allowed.
  func earliestAttempt(now: MonotonicTime) -> MonotonicTime { max(now, pausedUntil.min() ?? now) }

  /// The URL to use now: the current URL, or if it is paused, the next URL in order that is not paused. If all URLs
  /// are paused, the URL whose pause ends first.
  mutating func choose(now: MonotonicTime) -> Int {
    let inOrder = (0..<settings.count).map { (current + $0) % settings.count }
    let earliestAttempt = earliestAttempt(now: now)
    current = inOrder.first { pausedUntil[$0] <= earliestAttempt } ?? current
    return current
  }

  package mutating func advance() { current = (current + 1) % settings.count }

  /// Records a refusal by the current URL, and moves on to the next URL. Returns true if all URLs have refused in
  /// succession.
  package mutating func recordRefusal() -> Bool {
    refusals += 1
    advance()
    guard refusals >= settings.count else { return false }
    refusals = 0
    return true
  }

  /// Records the end of a connection that was ready for `time`, which is zero if the connection never was ready.
  /// `shouldAdvance`: whether the URL of the connection is at fault. If so, the next attempt uses the next URL.
  package mutating func connectionEnded(readyFor time: TimeSpan, shouldAdvance: Bool) {
    if time > .zero { refusals = 0 }
    switch settings.order {
    case .priority:
      if time >= settings.failBackAfter, current != 0 { current = 0 } else if shouldAdvance { advance() }
    case .roundRobin:
      advance()
    }
  }
}
