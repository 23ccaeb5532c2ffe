import ByteStreams
import Testing

@testable import UpstreamSession

/// Make before break, with failures: the fate of the old connection, and the time of the next successor.
@Suite struct SuccessorTests {
  private func ready(_ change: (inout SessionSettings) -> Void = { _ in }) -> Dialogue {
    let session = Dialogue {
      $0.liveness.isEnabled = false
      change(&$0)
    }
    session.openToReady()
    return session
  }

  @Test(arguments: [ReplacementReason.configuration, .reload, .maximumAge])
  func aFailedReplacementIsRepeatedForTheSameReason(reason: ReplacementReason) {
    let session = ready()
    _ = session.machine.replace(because: reason, now: session.now)
    #expect(session.failed(.tls, in: .securing, 2) == ["replacing→ready"])
    let last = session.machine.history.entries.last
    #expect(last?.nextAttempt == session.machine.nextAttempt, "the history has the time of the next attempt")
    #expect((30...60).contains(session.untilDial?.seconds ?? 0))
    #expect(session.wait() == ["ready→replacing", "dial #3"])
    #expect(session.causes.last == .replacement(reason))
    #expect(session.upgraded(3).contains("replacing→ready"))
    #expect(session.untilDial == nil, "no further attempt is planned")
  }

  /// After some failures, attempts could lock an account, or the host has requested a pause. Attempts at a successor
  /// are then no more frequent than attempts to reconnect.
  @Test(arguments: [
    (
      AttemptFailure.Reason.status(401, retryAfter: nil),
      [30.0...60, 60...60, 120...120, 240...240, 480...480, 600...600]
    ),
    (.proxyDenied, [30...60, 60...60, 120...120]),
    (.denied, [30...60, 60...60, 120...120]),
    (.status(403, retryAfter: nil), [30...60, 30...60, 30...60, 40...60, 80...80, 160...160, 300...300, 300...300]),
    (.status(503, retryAfter: .minutes(20)), [1_200...1_320, 1_200...1_320]),
    (.network, [30...60, 30...60, 30...60]),
  ])
  func replacementsAreNoMoreFrequentThanReconnects(reason: AttemptFailure.Reason, waits: [ClosedRange<Double>]) {
    let session = ready()
    _ = session.replace()
    for wait in waits {
      _ = session.failed(reason)
      #expect(session.state == .ready)
      #expect(wait.contains(session.untilDial?.seconds ?? 0), "\(session.untilDial?.seconds ?? 0) s")
      #expect(session.wait().first == "ready→replacing")
    }
  }

  @Test func exhaustedAttemptsDoNotEndAConnectionThatWorks() {
    let session = ready { $0.backoff.maximumAttempts = 1 }
    _ = session.replace()
    _ = session.failed(.network)
    _ = session.wait()
    #expect(session.failed(.network) == ["replacing→ready"])
    #expect(session.untilDial == .minutes(10))
  }

  @Test func aSuccessorThatClosesDuringItsSetupGetsACloseFrame() {
    let session = Dialogue { $0.setup = [SetupStep(expectsResponse: true)] }
    _ = session.open()
    _ = session.upgraded(1)
    _ = session.setupResponded(1)
    _ = session.replace()
    #expect(session.upgraded(2) == ["say 0 #2"])
    #expect(session.closed(1008, 2) == ["close 1008 #2", "discard #2", "replacing→ready"])
    #expect(session.machine.connection?.generation == Generation(1))
    session.pass(.seconds(60))
    #expect(
      session.words(session.machine.deadlineReached(now: session.now, using: &session.random)).last == "dial #3 afresh")
  }

  /// A connection is ready again if it was silent while its successor was being opened, and then received data.
  @Test(arguments: [true, false])
  func theOldConnectionIsSuspectOnlyIfItIsStillSilent(speaks: Bool) {
    let session = Dialogue()
    session.openToReady()
    #expect(session.wait() == ["ping 1 #1"])
    _ = session.replace()
    _ = session.advance(to: .connecting, 2)
    #expect(session.wait() == [], "half of the deadline")
    if speaks { _ = session.bytesReceived(1) }
    #expect(session.failed(.network, 2) == ["replacing→ready"])
    #expect(session.state == .ready)
    #expect(session.wait() == ["ready→suspect"])
    #expect(session.waited == (speaks ? .seconds(5) : .zero))
  }

  /// Failures of successors do not count when a stable connection is lost later.
  @Test func theLossOfAStableConnectionResetsTheCount() {
    let session = ready { $0.backoff.strategy = .exponential(first: .seconds(1), factor: 2, cap: .hours(1)) }
    for _ in 0..<6 {
      _ = session.replace()
      _ = session.failed(.network)
      session.pass(.minutes(5))
    }
    _ = session.replace()
    #expect(session.lost(.reset, 1) == ["hold #1", "discard #1", "replacing→resolving"])
    _ = session.failed(.network)
    #expect(session.untilDial == .seconds(1))
  }
}
