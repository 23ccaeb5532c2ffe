import ByteStreams
import TestSupport
import Testing

@testable import UpstreamSession

/// Ten thousand sessions and one host, on a virtual clock.
@Suite struct CrowdTests {
  private static let crowd = 10_000
  /// The limit of the Kolmogorov-Smirnov distance, which one uniform sample in a thousand exceeds. The generator is
  /// seeded, so the result is always the same. (With eight seeds, one sample had 2.1, and the others 0.5 to 1.4.)
  private static let bound = 1.95

  /// The number of attempts in each of the last `seconds` seconds.
  private func perSecond(_ crowd: Crowd, last seconds: Int) -> [Int] {
    var counts = [Int](repeating: 0, count: seconds)
    for dial in crowd.dials {
      let ago = Int((crowd.now - dial.time).seconds)
      if ago < seconds { counts[ago] += 1 }
    }
    return counts
  }

  /// The maximum number of attempts in any window of `span`.
  private func densest(_ dials: [Crowd.DialNote], in span: TimeSpan) -> Int {
    var first = 0
    var most = 0
    for (last, dial) in dials.enumerated() {
      while dials[first].time < dial.time - span { first += 1 }
      most = max(most, last - first + 1)
    }
    return most
  }

  @Test func reconnectsAreSpreadByTheFormulaWhenAHostDies() {
    let crowd = Crowd(Self.crowd)
    crowd.openAll()
    crowd.run(for: .minutes(2))
    #expect(crowd.ready == Self.crowd)
    crowd.forgetDials()
    crowd.reaction = { _, _ in .refuse }
    crowd.loseAll()
    crowd.run(for: .seconds(110))

    // After n consecutive failures, the wait is random, and at most min(30 s, 0.25 s · 2ⁿ). n is 0 after a stable
    // connection.
    #expect(crowd.waits[0]?.count == Self.crowd)
    #expect(distanceFromUniform(crowd.waits[0] ?? [], .zero, .milliseconds(250)) < Self.bound)
    for failures in 1...7 {
      let waits = crowd.waits[failures] ?? []
      #expect(waits.count == Self.crowd, "\(failures)")
      let top = TimeSpan.milliseconds(min(30_000, 500 << Int64(failures - 1)))
      #expect(distanceFromUniform(waits, .milliseconds(100), top) < Self.bound, "\(failures)")
    }

    // When all sessions wait for up to 30 s, 15.05 s on average, there are 664 attempts a second, without waves. Every
    // second is within five standard deviations of the mean of independent arrivals.
    let mean = Double(Self.crowd) / 15.051
    for count in perSecond(crowd, last: 40) { #expect(abs(Double(count) - mean) < 5 * mean.squareRoot()) }
  }

  /// The measure itself must detect samples that are not uniform.
  @Test func theMeasureDetectsSamplesThatAreNotUniform() {
    var random = SeededGenerator(seed: 3)
    let uniform = (0..<10_000).map { _ in Backoff.uniform(.zero, .seconds(30), using: &random) }
    #expect(distanceFromUniform(uniform, .zero, .seconds(30)) < Self.bound)
    #expect(distanceFromUniform(uniform, .zero, .seconds(31)) > Self.bound)
    #expect(distanceFromUniform(uniform.map { max($0, .seconds(1)) }, .zero, .seconds(30)) > Self.bound)
    #expect(distanceFromUniform([TimeSpan](repeating: .seconds(15), count: 100), .zero, .seconds(30)) > Self.bound)
  }

  // MARK: A server that accepts and drops

  /// Every way to end a connection right after it was opened. `perHour` is the maximum number of attempts that a
  /// session may make in response.
  private static let ends: [(ConnectionLoss, perHour: Int)] = [
    // The usual backoff: a few short waits, and then 15 s on average.
    (.ended, 330), (.reset, 330), (.silence, 330), (.closed(code: 1000), 330), (.closed(code: 1001), 330),
    (.closed(code: 1005), 330), (.closed(code: 1006), 330), (.closed(code: 1009), 330), (.closed(code: 1011), 330),
    (.closed(code: 1012), 330), (.closed(code: 1014), 330), (.closed(code: 4000), 330), (.closed(code: 4999), 330),
    // The wait is at least 10 s.
    (.closed(code: 1013), 260),
    // With codes 1008 and 3000, the session is parked after the second loss, for one to ten minutes. With the others,
    // it is parked after the sixth loss, for five minutes, which makes 72 attempts.
    (.closed(code: 1008), 12), (.closed(code: 3000), 12), (.violation(code: 1002), 72), (.closed(code: 1002), 72),
    (.closed(code: 1003), 72), (.closed(code: 1007), 72), (.closed(code: 1010), 72),
    // A fault of the local network: no attempt reaches the server.
    (.noRoute, 721), (.addressGone, 721),
  ]

  @Test(arguments: ends)
  func sessionsSlowDownForAServerThatAcceptsAndDrops(end: ConnectionLoss, perHour: Int) {
    for lasts in [TimeSpan.zero, .milliseconds(50), .seconds(1)] {
      let crowd = Crowd(20, reaction: { _, _ in .accept(lasts: lasts, end: end) })
      crowd.openAll()
      crowd.run(for: .hours(1))
      var counts = [Int](repeating: 0, count: 20)
      for dial in crowd.dials { counts[dial.session] += 1 }
      #expect((counts.max() ?? 0) <= perHour, "dials in the first hour, lasting \(lasts.seconds) s")
      #expect((counts.min() ?? 0) >= 6, "no session gives up")
    }
  }

  @Test func attemptsAreSpreadIfAServerAcceptsAndDrops() {
    let count = 3_000
    let crowd = Crowd(count, reaction: { _, _ in .accept(lasts: .milliseconds(100)) })
    crowd.openAll()
    crowd.run(for: .seconds(110))
    for (failures, top) in [(6, 16), (7, 30)] as [(Int, Int64)] {
      #expect(crowd.waits[failures]?.count == count)
      #expect(distanceFromUniform(crowd.waits[failures] ?? [], .milliseconds(100), .seconds(top)) < Self.bound)
    }
    // An attempt takes 20 ms, the connection lasts 100 ms, and the wait is 15.05 s on average.
    let mean = Double(count) / 15.17
    for dials in perSecond(crowd, last: 40) { #expect(abs(Double(dials) - mean) < 5 * mean.squareRoot()) }
  }

  // MARK: The limit of a host

  @Test func allSessionsReconnectWithinTheLimitOfTheHost() {
    let crowd = Crowd(
      Self.crowd, gate: HostAttemptLimiter(AttemptLimits()), reaction: { _, _ in .accept(opening: .seconds(5)) })
    crowd.openAll()
    crowd.run(for: .hours(1)) { crowd.ready == Self.crowd }
    #expect(crowd.ready == Self.crowd)
    // Attempts take 5 s, and 64 may be in progress at once, so there are 12.8 a second. The sessions reach this limit,
    // which determines the rate.
    #expect(crowd.mostUnderWay == 64)
    #expect(crowd.dials.count == Self.crowd)
    #expect((crowd.now - Crowd.start).seconds < Double(Self.crowd) / 12.8 * 1.1)

    crowd.forgetDials()
    crowd.reaction = { _, _ in .accept() }
    crowd.run(for: .minutes(1))
    let lost = crowd.now
    crowd.loseAll()
    crowd.run(for: .hours(1)) { crowd.ready == Self.crowd }
    #expect(crowd.ready == Self.crowd)
    #expect(crowd.dials.count == Self.crowd, "nobody twice")
    // The limit allows 40 attempts at once, and then 20 a second until the end.
    let span = (crowd.now - lost).seconds
    #expect(span > Double(Self.crowd - 40) / 20 - 1 && span < Double(Self.crowd) / 20 + 2)
    for seconds in [1, 10, 100] as [Int64] {
      #expect(densest(crowd.dials, in: .seconds(seconds)) <= 40 + 20 * Int(seconds) + 1)
    }
    // Each session waited for its turn and then used it. No session requests a turn again and again.
    #expect(crowd.postponements <= Self.crowd)
  }

  @Test func attemptsToAHostThatIsDownStayWithinItsLimit() {
    let count = 3_000
    let crowd = Crowd(count, gate: HostAttemptLimiter(AttemptLimits()))
    crowd.reaction = { _, _ in .refuse }
    crowd.openAll()
    crowd.run(for: .minutes(20))
    for seconds in [1, 10, 100] as [Int64] {
      #expect(densest(crowd.dials, in: .seconds(seconds)) <= 40 + 20 * Int(seconds) + 20)
    }
    #expect(crowd.dials.count > 20 * 1_100, "the limit is used")
    #expect(crowd.postponements < 2 * crowd.dials.count + count)
    var counts = [Int](repeating: 0, count: count)
    for dial in crowd.dials { counts[dial.session] += 1 }
    #expect((counts.min() ?? 0) >= 3, "every session had several attempts")
    #expect((counts.max() ?? 0) <= 16, "no session had many more attempts than the others")
  }

  @Test func retryAfterDelaysEverySession() {
    let crowd = Crowd(1_000, gate: HostAttemptLimiter(AttemptLimits()))
    crowd.reaction = { _, session in session == 0 ? .fail(.status(503, retryAfter: .seconds(120))) : .accept() }
    crowd.openAll()
    // Completes the attempts that were in progress when the host's behaviour changed.
    crowd.run(for: .milliseconds(30))
    let before = crowd.dials.count
    #expect(before <= 41)
    crowd.run(for: .seconds(60))
    crowd.networkChanges()
    crowd.run(for: .seconds(59))
    #expect(crowd.dials.count == before, "no session connects during the pause")
    crowd.reaction = { _, _ in .accept() }
    crowd.run(for: .minutes(2)) { crowd.ready == 1_000 }
    #expect(crowd.ready == 1_000)
    #expect(densest(Array(crowd.dials[before...]), in: .seconds(1)) <= 21, "at the rate, without a burst")
  }
}
