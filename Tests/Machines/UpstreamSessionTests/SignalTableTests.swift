import ByteStreams
import Testing

@testable import UpstreamSession

/// The table of signals, row by row: the reaction to a server's refusal or to the end of a connection.
///
/// There are two URLs, and the backoff is always 2 s. The length of a wait thus shows whether it is the backoff, and
/// each attempt shows which URL it uses.
@Suite struct SignalTableTests {
  /// The reaction to a signal: the wait before the next attempt, and the attempt itself (see `Dialogue`).
  struct Reaction {
    let wait: ClosedRange<Double>
    let dial: String
    var state = SessionState.backoff
  }

  private static let atOnce = 0...0.25
  private static let backoff = 2.0...2.0

  private func session(_ change: (inout SessionSettings) -> Void = { _ in }) -> Dialogue {
    Dialogue {
      $0.backoff.strategy = .fixed(.seconds(2))
      $0.endpoints.count = 2
      change(&$0)
    }
  }

  private func expect(
    _ session: Dialogue, _ reaction: Reaction, _ note: String, sourceLocation: SourceLocation = #_sourceLocation
  ) {
    #expect(session.state == reaction.state, "\(note)", sourceLocation: sourceLocation)
    let wait = session.untilDial?.seconds ?? -1
    #expect(reaction.wait.contains(wait), "\(note): \(wait) s", sourceLocation: sourceLocation)
    #expect(session.wait().last == reaction.dial, "\(note)", sourceLocation: sourceLocation)
  }

  /// Expects this reaction to a refusal of the first attempt.
  private func expectRefusal(_ reason: AttemptFailure.Reason, _ reaction: Reaction) {
    let session = session()
    _ = session.open()
    _ = session.failed(reason)
    expect(session, reaction, "\(reason)")
  }

  /// Expects these reactions to the end of the first connection, after a stable connection and after a connection of
  /// one second.
  private func expectEnd(_ loss: ConnectionLoss, stable: Reaction, short: Reaction) {
    for (lasts, reaction) in [(TimeSpan.seconds(30), stable), (.seconds(1), short)] {
      let session = session()
      session.openToReady()
      session.pass(lasts)
      session.ends(loss)
      expect(session, reaction, "\(loss) after \(lasts.seconds) s")
    }
  }

  // MARK: Responses to the upgrade

  @Test func status3xxIsFollowedForAtMostFiveHops() {
    let session = session()
    _ = session.open()
    for hop in 2...6 as ClosedRange<UInt64> { #expect(session.redirected(hop - 1).last == "dial #\(hop) redirected") }
    #expect(session.redirected(6) == ["resolving→backoff"], "the sixth redirection is a refusal")
    #expect(session.wait().last == "dial #7 url 1")
    // A redirect that the session must not follow, for example from wss to ws, counts as a refusal at once.
    expectRefusal(.redirect, Reaction(wait: Self.atOnce, dial: "dial #2 url 1"))
    expectRefusal(.status(304, retryAfter: nil), Reaction(wait: Self.atOnce, dial: "dial #2 url 1"))
  }

  /// The session reads the credential again once. Then it is parked, for 60 s at first, doubling to 10 min.
  @Test func codes401And1008And3000ReadTheCredentialAgain() {
    let ways: [(String, (Dialogue) -> Void)] = [
      ("401", { _ = $0.failed(.status(401, retryAfter: nil)) }),
      ("407 of a proxy", { _ = $0.failed(.proxyDenied) }),
      ("1008", { $0.becomesReadyAndEnds(.closed(code: 1008)) }),
      ("3000", { $0.becomesReadyAndEnds(.closed(code: 3000)) }),
    ]
    for (name, refuse) in ways {
      let session = session()
      _ = session.open()
      refuse(session)
      expect(session, Reaction(wait: Self.atOnce, dial: "dial #2 afresh"), name)
      for (number, park) in [60.0, 120, 240, 480, 600, 600].enumerated() {
        refuse(session)
        expect(session, Reaction(wait: park...park, dial: "dial #\(number + 3) afresh", state: .parked), name)
      }
    }
  }

  /// The session uses the next URL. When all URLs have refused, it is parked for 5 s, doubling to 5 min. A stable
  /// connection resets this duration.
  @Test(arguments: [400, 402, 403, 404, 405, 410, 418, 426, 451])
  func status403AndSimilarTryTheNextURL(status: Int) {
    let session = session()
    _ = session.open()
    var dial = 1
    func expectRefusals(_ parks: [Double]) {
      for park in parks {
        _ = session.failed(.status(status, retryAfter: .seconds(9)))
        expect(session, Reaction(wait: Self.atOnce, dial: "dial #\(dial + 1) url 1"), "the first URL")
        _ = session.failed(.status(status, retryAfter: nil))
        dial += 2
        expect(session, Reaction(wait: park...park, dial: "dial #\(dial)", state: .parked), "the last URL")
      }
    }
    expectRefusals([5, 10, 20, 40, 80, 160, 300, 300])
    session.becomeReady()
    session.pass(.seconds(30))
    session.ends(.ended)
    dial += 1
    expect(session, Reaction(wait: Self.atOnce, dial: "dial #\(dial)"), "a stable connection")
    expectRefusals([5, 10])
  }

  /// `Retry-After`, from 1 s to 1 h, applies to the whole host. Without it, the wait is at least 5 s. (`EndpointTests`
  /// covers several URLs.)
  @Test(arguments: [429, 503])
  func status429And503WaitForRetryAfter(status: Int) {
    let asked: [(TimeSpan, hold: Double)] = [
      (.zero, 1), (.seconds(1), 1), (.seconds(20), 20), (.hours(1), 3_600), (.hours(30), 3_600),
    ]
    for (wish, hold) in asked {
      let session = session { $0.endpoints.count = 1 }
      _ = session.open()
      #expect(session.failed(.status(status, retryAfter: wish)) == ["hold host 0 \(hold)", "resolving→backoff"])
      expect(session, Reaction(wait: hold...max(hold + 1, hold * 1.1), dial: "dial #2"), "\(wish.seconds) s")
    }
    for (backoff, wait) in [(2, 5.0...6), (9, 9...9)] {
      let session = session {
        $0.endpoints.count = 1
        $0.backoff.strategy = .fixed(.seconds(Int64(backoff)))
      }
      _ = session.open()
      _ = session.failed(.status(status, retryAfter: nil))
      expect(session, Reaction(wait: wait, dial: "dial #2"), "a backoff of \(backoff) s")
    }
  }

  /// Backoff, and then the next URL. (A 2xx response is not an upgrade either.)
  @Test(
    arguments: [408, 425, 500, 502, 504, 507, 599, 200, 204].map { .status($0, retryAfter: .seconds(99)) } + [
      .network, .timedOut, .nameNotResolved, .tls, .handshake, .proxy, .setupResponse, .preparation,
    ] as [AttemptFailure.Reason])
  func status408And5xxAndNetworkErrorsBackOff(reason: AttemptFailure.Reason) {
    expectRefusal(reason, Reaction(wait: Self.backoff, dial: "dial #2 url 1"))
  }

  /// `ENETDOWN` and `ENETUNREACH` do not count as attempts.
  @Test func withoutARouteTheSessionIsOffline() {
    expectRefusal(.noRoute, Reaction(wait: 5...5, dial: "dial #2", state: .offline))
    for loss in [ConnectionLoss.noRoute, .addressGone] {
      expectEnd(
        loss, stable: Reaction(wait: 0...0, dial: "dial #2", state: .offline),
        short: Reaction(wait: 5...5, dial: "dial #2", state: .offline))
      let session = session { $0.backoff.maximumAttempts = 1 }
      session.openToReady()
      for _ in 0..<20 {
        session.ends(loss)
        _ = session.wait()
        _ = session.failed(.noRoute)
        _ = session.wait()
        session.becomeReady()
      }
      #expect(session.machine.failures == 0)
    }
  }

  // MARK: Close codes

  /// The session reconnects. Three short-lived connections in a row count as a failure.
  @Test func code1000ReconnectsSoon() {
    let quick = Reaction(wait: Self.atOnce, dial: "dial #2")
    expectEnd(.closed(code: 1000), stable: quick, short: quick)
    let session = session()
    session.openToReady()
    for (number, wait) in [Self.atOnce, Self.atOnce, Self.backoff, Self.backoff].enumerated() {
      session.pass(.seconds(1))
      session.ends(.closed(code: 1000))
      expect(session, Reaction(wait: wait, dial: "dial #\(number + 2)"), "short-lived connection \(number + 1)")
      session.becomeReady()
    }
    // A stable connection in between resets the count.
    session.pass(.minutes(1))
    session.ends(.closed(code: 1000))
    expect(session, Reaction(wait: Self.atOnce, dial: "dial #6"), "after a stable connection")
  }

  /// A wait of 0 to 1 s, then the next URL.
  @Test func code1001UsesTheNextURLSoon() {
    expectEnd(
      .closed(code: 1001), stable: Reaction(wait: 0...1, dial: "dial #2 url 1"),
      short: Reaction(wait: Self.backoff, dial: "dial #2 url 1"))
  }

  /// At most 5 attempts, one of them without compression. Then the session is parked.
  @Test(
    arguments: [1002, 1003, 1007, 1010].flatMap { [.closed(code: $0), .violation(code: $0)] } as [ConnectionLoss])
  func code1002AndSimilarParkAfterFiveAttempts(loss: ConnectionLoss) {
    let session = session()
    session.openToReady()
    for number in 2...6 {
      session.ends(loss)
      let dial = "dial #\(number)" + (number == 2 ? " uncompressed" : "")
      expect(session, Reaction(wait: Self.backoff, dial: dial), "\(loss), occurrence \(number - 1)")
      session.becomeReady()
    }
    session.ends(loss)
    expect(session, Reaction(wait: 300...300, dial: "dial #7", state: .parked), "\(loss) once more")
  }

  /// The last message sent is never sent again. Otherwise, the reaction is the same as to any other end.
  @Test func code1009RejectsTheLargestMessage() {
    let session = session()
    session.openToReady()
    #expect(session.closed(1009) == ["hold #1 poisoned", "close 1009 #1", "ready→closing"])
    expectEnd(
      .closed(code: 1009), stable: Reaction(wait: Self.atOnce, dial: "dial #2"),
      short: Reaction(wait: Self.backoff, dial: "dial #2 url 1"))
  }

  /// Backoff, whose first wait is zero after a stable connection. Unassigned codes have the same reaction.
  @Test(
    arguments: [1004, 1005, 1006, 1011, 1014, 1015, 1016, 2999, 3001, 3999, 4000, 4999].map { .closed(code: $0) }
      + [.ended, .reset, .silence] as [ConnectionLoss])
  func code1005AndSimilarBackOff(loss: ConnectionLoss) {
    expectEnd(
      loss, stable: Reaction(wait: Self.atOnce, dial: "dial #2"),
      short: Reaction(wait: Self.backoff, dial: "dial #2 url 1"))
  }

  /// A random wait of less than a second. After another short-lived connection, backoff.
  @Test func code1012ReconnectsSoon() {
    let reaction = Reaction(wait: 0...1, dial: "dial #2")
    for _ in 0..<50 { expectEnd(.closed(code: 1012), stable: reaction, short: reaction) }
    let session = session()
    session.openToReady()
    for (number, url) in [(2, ""), (3, " url 1"), (4, "")] {
      session.ends(.closed(code: 1012))
      let wait = number == 2 ? 0...1 : Self.backoff
      expect(session, Reaction(wait: wait, dial: "dial #\(number)\(url)"), "short connection \(number - 1)")
      session.becomeReady()
    }
    session.pass(.seconds(30))
    session.ends(.closed(code: 1012))
    expect(session, Reaction(wait: 0...1, dial: "dial #5"), "a stable connection resets the count")
  }

  /// The attempts while an upstream restarts: one within a second, and further attempts after increasing waits.
  @Test func aRestartingUpstreamIsTriedAgainSoon() {
    for seed in 1...50 as ClosedRange<UInt64> {
      let session = Dialogue(seed: seed)
      session.openToReady()
      session.pass(.minutes(1))
      session.ends(.closed(code: 1012))
      var waited = session.untilDial?.seconds ?? .infinity
      #expect(waited <= 1)
      for _ in 1...3 {
        _ = session.wait()
        _ = session.failed(.network)
        waited += session.untilDial?.seconds ?? .infinity
      }
      #expect(waited <= 1 + 0.5 + 1 + 2)
    }
  }

  /// Every code that the upstream can send has the configured reaction.
  @Test(arguments: [1000, 1001, 1002, 1003, 1005, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000] as [UInt16])
  func aConfiguredReactionReplacesTheReactionToAStandardCode(code: UInt16) {
    func ended(_ reaction: CloseReaction, after time: TimeSpan) -> Dialogue {
      let session = session { $0.closing.ranges = [(code...code, reaction)] }
      session.openToReady()
      session.pass(time)
      session.ends(.closed(code: code))
      return session
    }
    for time in [.seconds(1), .seconds(30)] as [TimeSpan] {
      let stopped = ended(.stop, after: time)
      #expect(stopped.state == .parked && stopped.untilDial == nil)
      expect(ended(.park, after: time), Reaction(wait: 300...300, dial: "dial #2", state: .parked), "park")
      expect(ended(.reconnect, after: time), Reaction(wait: 0...1, dial: "dial #2"), "reconnect")
      let forgotten = ended(.forget, after: time)
      expect(forgotten, Reaction(wait: 0...1, dial: "dial #2"), "forget")
      #expect(forgotten.machine.settings.closing.forgets(after: code))
      expect(ended(.refreshCredential, after: time), Reaction(wait: Self.atOnce, dial: "dial #2 afresh"), "refresh")
    }
    expect(ended(.backoff, after: .seconds(1)), Reaction(wait: Self.backoff, dial: "dial #2 url 1"), "backoff")
    expect(ended(.backoff, after: .seconds(30)), Reaction(wait: Self.atOnce, dial: "dial #2"), "backoff")
  }

  /// If the gateway detects a violation, the upstream has sent no close frame.
  @Test func aConfiguredReactionIsToCloseFramesOnly() {
    let session = session { $0.closing.ranges = [(1000...4999, .stop)] }
    session.openToReady()
    session.ends(.violation(code: 1002))
    expect(session, Reaction(wait: Self.backoff, dial: "dial #2 uncompressed"), "a violation")
    session.becomeReady()
    session.ends(.reset)
    #expect(session.state == .backoff)
  }

  /// A wait of at least 10 s, and then the next URL.
  @Test func code1013WaitsAndUsesTheNextURL() {
    let reaction = Reaction(wait: 10...12, dial: "dial #2 url 1")
    expectEnd(.closed(code: 1013), stable: reaction, short: reaction)
  }

  /// Sessions with the same minimum wait must not return at the same moment.
  @Test(arguments: [1013, 503])
  func minimumWaitsAreSpread(signal: Int) {
    let waits = (1...200).map { (seed: UInt64) in
      let session = Dialogue(seed: seed) { $0.backoff.strategy = .fixed(.seconds(2)) }
      session.openToReady()
      if signal == 503 {
        _ = session.lost(.reset)
        _ = session.wait()
        _ = session.failed(.status(503, retryAfter: nil))
      } else {
        _ = session.closedAndGone(1013)
      }
      return session.untilDial?.seconds ?? 0
    }
    let least = signal == 503 ? 5.0 : 10
    for fifth in 0..<5 {
      let part = least + Double(fifth) * least / 25..<least + Double(fifth + 1) * least / 25
      #expect((20...60).contains(waits.count { part.contains($0) }), "40 of 200 in \(part)")
    }
  }

  /// The configured reaction for a range of codes. Without it, backoff.
  @Test func codes4000To4999BackOff() {
    func ended(_ code: UInt16) -> Dialogue {
      let session = session {
        $0.closing.ranges = [(4000...4009, .stop), (4010...4019, .park), (4020...4029, .refreshCredential)]
      }
      session.openToReady()
      session.pass(.seconds(30))
      session.ends(.closed(code: code))
      return session
    }
    for code in [4000, 4009] as [UInt16] {
      #expect(ended(code).state == .parked && ended(code).untilDial == nil, "the session waits for an operator")
    }
    for code in [4010, 4019] as [UInt16] {
      expect(ended(code), Reaction(wait: 300...300, dial: "dial #2", state: .parked), "\(code)")
    }
    for code in [4020, 4029] as [UInt16] {
      expect(ended(code), Reaction(wait: Self.atOnce, dial: "dial #2 afresh"), "\(code)")
    }
    expect(ended(4030), Reaction(wait: Self.atOnce, dial: "dial #2"), "in no range")
  }
}

extension Dialogue {
  /// Ends a ready connection. If `loss` contains a close frame, reports the frame before the end of the stream.
  func ends(_ loss: ConnectionLoss) {
    if case .closed(let code) = loss { _ = closedAndGone(code) } else { _ = lost(loss) }
  }

  fileprivate func becomesReadyAndEnds(_ loss: ConnectionLoss) {
    becomeReady()
    ends(loss)
  }
}
