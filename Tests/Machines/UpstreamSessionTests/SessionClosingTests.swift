import ByteStreams
import Testing

@testable import UpstreamSession

@Suite struct SessionClosingTests {
  @Test func closesWithAClosingHandshake() {
    let session = Dialogue()
    session.openToReady()
    #expect(session.close() == ["hold #1", "ping 1 #1", "close 1000 #1", "ready→closing"])
    #expect(session.lost(.ended) == ["discard #1", "closing→stopped"])
    #expect(session.machine.nextDeadline == .distantFuture)
    #expect(session.machine.desired == .down)
  }

  @Test func resetsTheConnectionIfTheClosingHandshakeHangs() {
    let session = Dialogue()
    session.openToReady()
    #expect(session.close(1001) == ["hold #1", "ping 1 #1", "close 1001 #1", "ready→closing"])
    #expect(session.wait() == ["discard #1", "closing→stopped"])
    #expect(session.waited == .seconds(5))
    #expect(session.causes.suffix(2) == [.shutdown, .closed])
  }

  @Test func stopsInEveryStateThatHasNoSocket() {
    let idle = Dialogue { $0.onDemand = true }
    _ = idle.start()
    #expect(idle.close() == ["idle→stopped"])

    let waiting = Dialogue()
    _ = waiting.open()
    _ = waiting.failed(.network)
    #expect(waiting.close() == ["backoff→stopped"])

    let parked = Dialogue()
    _ = parked.open()
    _ = parked.failed(.status(404, retryAfter: nil))
    #expect(parked.close() == ["parked→stopped"])

    let offline = Dialogue()
    _ = offline.open()
    _ = offline.failed(.noRoute)
    #expect(offline.close() == ["offline→stopped"])

    let stopped = Dialogue()
    #expect(stopped.close() == [])
  }

  @Test func cancelsAnAttemptWhenTheSessionCloses() {
    let session = Dialogue()
    _ = session.open()
    _ = session.advance(to: .connecting, 1)
    #expect(session.close() == ["discard #1", "connecting→stopped"])
    #expect(session.upgraded(1) == [], "an abandoned attempt must not reconnect the session")
    #expect(session.state == .stopped)
  }

  @Test func aPendingAttemptDoesNotReopenAClosedSession() {
    let session = Dialogue()
    session.openToReady()
    _ = session.lost(.reset)
    #expect(session.state == .backoff)
    _ = session.close()
    session.pass(.hours(1))
    #expect(session.machine.deadlineReached(now: session.now, using: &session.random) == [])
    #expect(session.state == .stopped)
  }

  @Test func aDeliberateCloseDoesNotForbidTheNextOpen() {
    let session = Dialogue()
    session.openToReady()
    _ = session.close()
    _ = session.lost(.ended)
    #expect(session.open() == ["stopped→resolving", "dial #2"])
    session.becomeReady()
    #expect(session.lost(.reset) == ["hold #2", "discard #2", "ready→backoff"])
  }

  @Test func reopensAfterTheOldSocketHasClosed() {
    let session = Dialogue()
    session.openToReady()
    _ = session.close()
    #expect(session.open() == [], "never two sockets at once")
    #expect(session.lost(.ended) == ["discard #1", "closing→resolving", "dial #2"])
  }

  @Test func staysClosedIfClosedDuringACloseOfTheUpstream() {
    let session = Dialogue()
    session.openToReady()
    #expect(session.closed(1012) == ["hold #1", "close 1012 #1", "ready→closing"])
    #expect(session.close() == [])
    #expect(session.lost(.ended) == ["discard #1", "closing→stopped"])
  }

  @Test func waitsALimitedTimeForTheEndOfTheStream() {
    let session = Dialogue()
    session.openToReady()
    session.pass(.seconds(60))
    _ = session.closed(1006 - 5)
    #expect(session.wait() == ["discard #1", "closing→backoff"])
    #expect(session.waited == .seconds(5))
  }

  @Test func failsAConnectionThatViolatesTheProtocol() {
    let session = Dialogue()
    session.openToReady()
    #expect(
      session.lost(.violation(code: 1007)) == ["hold #1", "close 1007 #1", "discard #1", "ready→backoff"])
  }

  @Test func doesNotResendAMessageThatIsTooLarge() {
    let session = Dialogue()
    session.openToReady()
    #expect(session.closed(1009) == ["hold #1 poisoned", "close 1009 #1", "ready→closing"])
  }

  // MARK: A new configuration

  @Test func replacesAConnectionAfterAChangeOfTheConfiguration() {
    let session = Dialogue()
    session.openToReady()
    #expect(session.reconfigure { $0.liveness.interval = .seconds(3) } == ["ready→replacing", "dial #2"])
    #expect(session.reconfigure { _ in } == ["discard #2", "dial #3"])
    #expect(session.upgraded(3) == ["pause #1 for #3", "ping 1 #1"])
  }

  @Test func connectsWithNewSettingsIfNoConnectionIsReady() {
    let session = Dialogue()
    _ = session.open()
    #expect(session.reconfigure { _ in } == ["discard #1", "dial #2"])
    _ = session.failed(.network)
    #expect(session.reconfigure { _ in } == ["backoff→resolving", "dial #3"])
    _ = session.close()
    #expect(session.reconfigure { _ in } == [])
    #expect(session.state == .stopped)
  }

  @Test func keepsTheOldConnectionIfItsSuccessorFails() {
    let session = Dialogue()
    session.openToReady()
    _ = session.replace()
    #expect(session.failed(.tls, in: .securing, 2) == ["replacing→ready"])
    #expect(session.machine.connection?.generation == Generation(1))
  }

  @Test func usesTheSuccessorIfTheOldConnectionIsLost() {
    let session = Dialogue()
    session.openToReady()
    _ = session.replace()
    #expect(session.lost(.reset, 1) == ["hold #1", "discard #1", "replacing→resolving"])
    #expect(session.upgraded(2) == ["send #2", "resolving→ready"])
  }

  /// The age varies by 5 %, so that connections that began together do not end together.
  @Test func replacesAtItsMaximumAge() {
    var ages: [Double] = []
    for seed in 1...100 as ClosedRange<UInt64> {
      let session = Dialogue(seed: seed) {
        $0.maximumAge = .hours(20)
        $0.liveness.isEnabled = false
      }
      session.openToReady()
      #expect(session.untilDial.map { $0 > .hours(18) } == true, "the replacement is announced")
      #expect(session.wait() == ["ready→replacing", "dial #2"])
      ages.append(session.waited.seconds / 3600)
    }
    #expect(ages.allSatisfy { (19...21).contains($0) })
    #expect(ages.contains { $0 < 19.1 } && ages.contains { $0 > 20.9 })
  }

  @Test func discardsAPredecessorThatLingers() {
    let session = Dialogue { $0.liveness.isEnabled = false }
    session.openToReady()
    _ = session.replace()
    _ = session.upgraded(2)
    #expect(session.wait() == ["close 1000 #1"])
    #expect(session.wait() == ["discard #1"])
    #expect(session.waited == .seconds(5))
  }

  @Test func closesBothConnectionsWhenTheSessionCloses() {
    let session = Dialogue()
    session.openToReady()
    _ = session.replace()
    #expect(session.close() == ["discard #2", "hold #1", "ping 1 #1", "close 1000 #1", "replacing→closing"])
  }
}
