import ByteStreams
import TestSupport
import Testing

@testable import UpstreamSession

/// The table of signals, row by row, and the waits that follow.
@Suite struct ReconnectTests {
  /// A session whose connection was stable when the upstream closed it with `code`.
  private func afterStable(_ code: UInt16, _ change: (inout SessionSettings) -> Void = { _ in }) -> Dialogue {
    let session = Dialogue(change)
    session.openToReady()
    session.pass(.seconds(60))
    _ = session.closedAndGone(code)
    return session
  }

  private func wait(of session: Dialogue) -> Double { session.untilDial?.seconds ?? -1 }

  // MARK: The count

  @Test func reconnectsAtOnceAfterAStableConnection() {
    for code in [1000, 1005, 1006, 1011, 1014] as [UInt16] {
      let session = afterStable(code)
      #expect(session.state == .backoff)
      #expect((0...0.25).contains(wait(of: session)), "close \(code)")
    }
  }

  @Test func waitsLongerForAServerThatAcceptsAndDrops() {
    let session = Dialogue()
    _ = session.open()
    var waits: [Double] = []
    for _ in 0..<200 {
      session.becomeReady()
      session.pass(.milliseconds(100))
      _ = session.lost(.ended)
      waits.append(wait(of: session))
      _ = session.wait()
    }
    #expect(session.machine.failures == 200, "a connection that was only opened does not reset the count")
    let late = waits.suffix(150)
    #expect(late.reduce(0, +) / 150 > 10, "uniform up to 30 s: 15 s on average")
    #expect(late.allSatisfy { $0 <= 30 })
  }

  @Test func resetsTheCountOnlyAfterAConnectionAsLongAsTheWait() {
    let session = Dialogue { $0.backoff.strategy = .fixed(.seconds(25)) }
    _ = session.open()
    _ = session.failed(.network)
    _ = session.wait()
    session.becomeReady()
    session.pass(.seconds(24))
    _ = session.lost(.reset)
    #expect(session.machine.failures == 2)
    _ = session.wait()
    session.becomeReady()
    session.pass(.seconds(25))
    _ = session.lost(.reset)
    #expect(session.machine.failures == 0)
    #expect(wait(of: session) <= 0.25)
  }

  @Test func stopsAfterTheMaximumNumberOfAttempts() {
    let session = Dialogue { $0.backoff.maximumAttempts = 2 }
    _ = session.open()
    _ = session.failed(.network)
    _ = session.wait()
    _ = session.failed(.network)
    _ = session.wait()
    #expect(session.failed(.network) == ["resolving→parked"])
    #expect(session.causes.last == .attemptsExhausted)
    #expect(session.machine.nextDeadline == .distantFuture)
    #expect(session.open() == ["parked→resolving", "dial #4"])
  }

  // MARK: HTTP responses

  @Test(arguments: [.status(401, retryAfter: nil), .proxyDenied] as [AttemptFailure.Reason])
  func readsTheCredentialAgainOnceAndThenParks(reason: AttemptFailure.Reason) {
    let session = Dialogue()
    _ = session.open()
    #expect(session.failed(reason) == ["resolving→backoff"])
    #expect(session.wait() == ["backoff→resolving", "dial #2 afresh"])
    var parks: [Double] = []
    for _ in 0..<6 {
      _ = session.failed(reason)
      #expect(session.state == .parked)
      parks.append(wait(of: session))
      _ = session.wait()
    }
    #expect(parks == [60, 120, 240, 480, 600, 600])
  }

  @Test func triesEveryURLBeforeItParks() {
    for status in [400, 403, 404, 410, 426] {
      let session = Dialogue { $0.endpoints.count = 2 }
      _ = session.open()
      #expect(session.failed(.status(status, retryAfter: nil)) == ["resolving→backoff"])
      #expect(session.wait() == ["backoff→resolving", "dial #2 url 1"])
      #expect(session.failed(.status(status, retryAfter: nil)) == ["resolving→parked"])
      #expect(wait(of: session) == 5)
      #expect(session.wait() == ["parked→resolving", "dial #3"])
    }
  }

  @Test func waitsForTheTimeOfRetryAfter() {
    for status in [429, 503] {
      let session = Dialogue()
      _ = session.open()
      let actions = session.failed(.status(status, retryAfter: .seconds(20)))
      #expect(actions == ["hold host 0 20.0", "resolving→backoff"])
      #expect((20...22).contains(wait(of: session)))
    }
    let bounded = Dialogue()
    _ = bounded.open()
    #expect(bounded.failed(.status(503, retryAfter: .hours(30))).first == "hold host 0 3600.0")
    let vague = Dialogue()
    _ = vague.open()
    #expect(vague.failed(.status(503, retryAfter: nil)) == ["resolving→backoff"])
    #expect(wait(of: vague) >= 5)
  }

  @Test func usesTheNextURLAfterOtherFailures() {
    for reason in [
      .status(500, retryAfter: nil), .status(408, retryAfter: nil), .status(200, retryAfter: nil), .network, .tls,
      .timedOut, .handshake, .proxy, .nameNotResolved,
    ] as [AttemptFailure.Reason] {
      let session = Dialogue { $0.endpoints.count = 2 }
      _ = session.open()
      #expect(session.failed(reason) == ["resolving→backoff"])
      #expect(session.wait() == ["backoff→resolving", "dial #2 url 1"])
      _ = session.failed(reason)
      #expect(session.wait() == ["backoff→resolving", "dial #3"])
    }
  }

  // MARK: Close codes

  @Test func countsShortLivedNormalClosures() {
    let session = Dialogue { $0.backoff.strategy = .fixed(.seconds(7)) }
    _ = session.open()
    var waits: [Double] = []
    for _ in 0..<4 {
      session.becomeReady()
      session.pass(.seconds(1))
      _ = session.closedAndGone(1000)
      waits.append(wait(of: session))
      _ = session.wait()
    }
    #expect(waits[0] <= 0.25 && waits[1] <= 0.25)
    #expect(waits[2] == 7 && waits[3] == 7)
  }

  @Test func staysClosedAfterANormalClosureIfConfigured() {
    let session = afterStable(1000) { $0.closing.ranges = [(1000...1000, .stop)] }
    #expect(session.state == .parked)
    #expect(session.machine.nextDeadline == .distantFuture)
  }

  @Test func followsTheTableOfCloseCodes() {
    let goingAway = afterStable(1001) { $0.endpoints.count = 2 }
    #expect((0...1).contains(wait(of: goingAway)))
    #expect(goingAway.wait() == ["backoff→resolving", "dial #2 url 1"])
    for _ in 0..<20 {
      #expect((0...1).contains(wait(of: afterStable(1012))))
    }
    let later = afterStable(1013) { $0.endpoints.count = 2 }
    #expect(wait(of: later) >= 10)
    #expect(later.wait() == ["backoff→resolving", "dial #2 url 1"])
    for code in [1008, 3000] as [UInt16] {
      let denied = afterStable(code)
      #expect(denied.wait() == ["backoff→resolving", "dial #2 afresh"])
      denied.becomeReady()
      _ = denied.closedAndGone(code)
      #expect(denied.state == .parked && wait(of: denied) == 60)
    }
  }

  @Test func parksAfterTooManyProtocolFailures() {
    for code in [1002, 1003, 1007, 1010] as [UInt16] {
      let session = Dialogue()
      _ = session.open()
      var dials: [String] = []
      for _ in 0..<5 {
        session.becomeReady()
        _ = session.closedAndGone(code)
        dials.append(session.wait().last ?? "")
      }
      #expect(dials == ["dial #2 uncompressed", "dial #3", "dial #4", "dial #5", "dial #6"])
      session.becomeReady()
      _ = session.closedAndGone(code)
      #expect(session.state == .parked)
    }
  }

  @Test func staysUncompressedIfThatSucceeded() {
    let session = Dialogue()
    _ = session.open()
    session.becomeReady()
    _ = session.lost(.violation(code: 1007))
    _ = session.wait()
    session.becomeReady()
    session.pass(.minutes(5))
    _ = session.lost(.reset)
    #expect(session.wait() == ["backoff→resolving", "dial #3 uncompressed"])
  }

  @Test func obeysTheConfiguredRangesOfCloseCodes() {
    let rules: (inout SessionSettings) -> Void = {
      $0.closing.ranges = [
        (4000...4009, .stop), (4010...4019, .park), (4020...4029, .refreshCredential), (4000...4999, .backoff),
      ]
    }
    let stopped = afterStable(4003, rules)
    #expect(stopped.state == .parked && stopped.untilDial == nil)
    let parked = afterStable(4013, rules)
    #expect(parked.state == .parked && wait(of: parked) == 300)
    #expect(afterStable(4023, rules).wait() == ["backoff→resolving", "dial #2 afresh"])
    #expect(afterStable(4300, rules).state == .backoff)
    #expect(afterStable(4300).state == .backoff)
  }

  @Test func usesTheFirstURLAgainAfterAHealthyMinute() {
    let session = Dialogue { $0.endpoints.count = 3 }
    _ = session.open()
    _ = session.failed(.network)
    #expect(session.wait().last == "dial #2 url 1")
    session.becomeReady()
    session.pass(.seconds(61))
    _ = session.lost(.reset)
    #expect(session.wait().last == "dial #3")
  }

  @Test func usesURLsInTurnIfConfigured() {
    let session = Dialogue {
      $0.endpoints.count = 2
      $0.endpoints.order = .roundRobin
    }
    session.openToReady()
    session.pass(.seconds(30))
    _ = session.lost(.reset)
    #expect(session.wait().last == "dial #2 url 1")
  }

  @Test func usesTheNextURLHoweverAConnectionEnds() {
    for order in [EndpointSettings.Order.priority, .roundRobin] {
      let session = Dialogue {
        $0.endpoints.count = 3
        $0.endpoints.order = order
      }
      session.openToReady()
      _ = session.closed(1001)
      _ = session.lost(.ended)
      #expect(session.wait().last == "dial #2 url 1")
      session.becomeReady()
      _ = session.lost(.reset)
      #expect(session.wait().last == "dial #3 url 2")
    }
  }

  @Test func aNormalClosureStopsTheSessionIfConfigured() {
    let session = afterStable(1000) { $0.closing.ranges = [(1000...1000, .stop)] }
    #expect(session.state == .parked && session.untilDial == nil)
    #expect(session.open().last == "dial #2")
  }
}
