import ByteStreams
import Testing

@testable import UpstreamSession

/// The upstream still reads earlier output. The deadlines of its responses are extended.
@Suite struct BusyUpstreamTests {
  private let megabyte: UInt64 = 1 << 20

  /// A ready session whose first ping is at `position` of the output.
  private func session(pingAt position: UInt64, _ change: (inout SessionSettings) -> Void = { _ in }) -> Dialogue {
    let session = Dialogue {
      $0.liveness.interval = .hours(10)
      change(&$0)
    }
    session.openToReady()
    #expect(session.machine.barrierPing(Generation(1), now: session.now, using: &session.random) == 1)
    session.queued(.ping, at: position)
    return session
  }

  @Test func aMessageMayTakeSeveralTimesTheTimeoutOfAPing() {
    let session = session(pingAt: 16 * megabyte)
    let start = session.now
    for sent in 1...16 as ClosedRange<UInt64> { #expect(session.wait(acknowledging: sent * megabyte) == []) }
    #expect(session.now - start >= .minutes(1) && session.state == .ready)
    session.pass(.seconds(9))
    #expect(session.pongReceived(1))
    #expect(session.machine.nextDeadline >= session.now + .hours(1))
  }

  /// TCP has its own timeout for this case. The session's check is for networks where TCP's timeout does not apply.
  @Test func anUpstreamThatReadsNothingMoreIsStalled() {
    let session = session(pingAt: 16 * megabyte)
    session.pass(.seconds(3))
    #expect(session.acknowledged(1_024) == [])
    let stalled = session.now
    #expect(session.wait(acknowledging: 1_024) == ["ready→suspect"])
    #expect(session.wait(acknowledging: 1_024).last == "suspect→backoff")
    #expect(session.now - stalled > .seconds(10) && session.now - stalled < .seconds(11))
    #expect(session.causes.last == .lost(.stalled))
  }

  @Test func anUpstreamThatReadsMoreIsNoLongerSuspect() {
    let session = session(pingAt: 16 * megabyte)
    #expect(session.wait() == ["ready→suspect"])
    session.pass(.seconds(1))
    #expect(session.acknowledged(1_024) == ["suspect→ready"])
    #expect(session.wait(acknowledging: 2_048) == [])
    #expect(session.state == .ready)
  }

  /// Only output before the ping extends the deadline.
  @Test func anUpstreamThatReadsWithoutRespondingIsDetected() {
    let session = session(pingAt: 1_024)
    let start = session.now
    var position: UInt64 = 1_024
    while session.state == .ready || session.state == .suspect {
      _ = session.wait(acknowledging: position)
      position += megabyte
    }
    #expect(session.now - start <= .seconds(16))
    #expect(session.causes.last == .lost(.silence))
  }

  /// A proxy accepts everything at once, but its own link is slow. Bytes that may be in its buffers extend the
  /// deadline.
  @Test func aProxyThatReadsEverythingAtOnceGetsTimeToDeliver() {
    let session = session(pingAt: megabyte)
    #expect(session.acknowledged(megabyte) == [])
    session.pass(.seconds(31))
    #expect(session.machine.nextDeadline > session.now && session.state == .ready)
    _ = session.wait(acknowledging: megabyte)
    #expect(session.wait(acknowledging: megabyte).last == "suspect→backoff")
    #expect(session.causes.last == .lost(.silence))
    #expect(ResponseDeadline.bufferedBytes / ResponseDeadline.minimumRate == 128, "the longest extension, in seconds")
  }

  /// Bytes that an earlier pong has confirmed are no longer in a buffer, so they do not extend the deadline.
  @Test func confirmedBytesDoNotExtendTheTimeout() {
    let session = session(pingAt: 64 * megabyte)
    _ = session.acknowledged(64 * megabyte)
    #expect(session.pongReceived(1))
    #expect(session.machine.barrierPing(Generation(1), now: session.now, using: &session.random) == 2)
    session.queued(.ping, at: 64 * megabyte + 1_024)
    _ = session.acknowledged(64 * megabyte + 1_024)
    #expect(session.wait() == ["ready→suspect"])
    #expect(session.wait().last == "suspect→backoff" && session.waited == .seconds(5))
  }

  /// The pong to the first ping arrives while the second ping is queued behind another message.
  @Test func theTimeoutOfAPingWaitsForTheBytesBeforeIt() {
    let session = session(pingAt: megabyte)
    #expect(session.machine.barrierPing(Generation(1), now: session.now, using: &session.random) == 2)
    session.queued(.ping, at: 4 * megabyte)
    _ = session.acknowledged(megabyte)
    #expect(session.pongReceived(1))
    for sent in 11...40 as ClosedRange<UInt64> { #expect(session.wait(acknowledging: sent * megabyte / 10) == []) }
    #expect(session.pongReceived(2) && session.state == .ready)
  }

  @Test func theTimeoutOfAHeartbeatWaitsForTheBytesBeforeIt() {
    let session = Dialogue {
      $0.liveness.isEnabled = false
      $0.heartbeat.interval = .seconds(30)
      $0.heartbeat.timeout = .seconds(10)
    }
    session.openToReady()
    #expect(session.wait() == ["beat 1 #1"])
    session.queued(.heartbeat, at: 64 * 1_024)
    for sent in 1...4 as ClosedRange<UInt64> {
      #expect(session.wait(acknowledging: sent * 16 * 1_024).allSatisfy { $0.hasPrefix("beat") })
    }
    #expect(session.state == .ready)
    while session.state == .ready { _ = session.wait(acknowledging: megabyte) }
    #expect(session.causes.last == .lost(.heartbeat))
  }

  @Test func theTimeoutOfAClosingHandshakeWaitsForTheBytesBeforeIt() {
    let session = session(pingAt: 0)
    _ = session.acknowledged(0)
    #expect(session.pongReceived(1))
    #expect(session.close() == ["hold #1", "ping 2 #1", "close 1000 #1", "ready→closing"])
    session.queued(.close, at: 512 * 1_024)
    let start = session.now
    for sent in 1...8 as ClosedRange<UInt64> { #expect(session.wait(acknowledging: sent * 64 * 1_024) == []) }
    #expect(session.state == .closing && session.now - start > .seconds(30))
    while session.state == .closing { _ = session.wait(acknowledging: 512 * 1_024) }
    #expect(session.state == .stopped)
  }

  @Test func aClosingHandshakeIsLimitedIfTheUpstreamReadsSlowly() {
    let session = session(pingAt: 0)
    _ = session.close()
    session.queued(.close, at: 16 * megabyte)
    let start = session.now
    var position: UInt64 = 0
    while session.state == .closing {
      position += 1
      _ = session.wait(acknowledging: position)
    }
    #expect(session.now - start == .seconds(5 + 128))
  }

  /// The upstream has ended the session, so it does not have to read the rest.
  @Test func anUpstreamThatClosesGetsNoTimeForBuffers() {
    let session = session(pingAt: 16 * megabyte)
    _ = session.acknowledged(megabyte)
    #expect(session.closed(1000).last == "ready→closing")
    session.queued(.close, at: megabyte)
    let start = session.now
    while session.state == .closing { _ = session.wait(acknowledging: megabyte) }
    #expect(session.now - start <= .seconds(10))
  }

  @Test func theTimeoutOfASetupStepWaitsForItsMessage() {
    let session = Dialogue { $0.setup = [SetupStep(expectsResponse: true, timeLimit: .seconds(10))] }
    _ = session.open()
    #expect(session.upgraded(1).last == "say 0 #1" || session.state == .settingUp)
    session.queued(.setup(step: 0), at: 64 * 1_024)
    let start = session.now
    for sent in 1...8 as ClosedRange<UInt64> { #expect(session.wait(acknowledging: sent * 8 * 1_024) == []) }
    #expect(session.now - start > .seconds(30), "without acknowledgements, the setup has less time")
    #expect(session.setupResponded(1).last == "opening→ready")
  }

  @Test func aSetupWithoutAResponseTimesOutAfterItsMessage() {
    let session = Dialogue { $0.setup = [SetupStep(expectsResponse: true, timeLimit: .seconds(5))] }
    _ = session.open()
    _ = session.upgraded(1)
    session.queued(.setup(step: 0), at: 1_024)
    while session.state == .settingUp { _ = session.wait(acknowledging: 1_024) }
    #expect(session.causes.last == .attemptFailed(AttemptFailure(phase: .settingUp, reason: .setupResponse)))
  }

  /// The queue waits, so that messages keep their order across the two connections.
  @Test func aHandOverPausesTheQueueWhileTheUpstreamReadsTheOldConnection() {
    let session = Dialogue()
    session.openToReady()
    _ = session.replace()
    #expect(session.upgraded(2) == ["pause #1 for #2", "ping 1 #1"])
    session.queued(.ping, at: 64 * 1_024)
    for sent in 1...4 as ClosedRange<UInt64> { #expect(session.wait(acknowledging: sent * 16 * 1_024) == []) }
    #expect(session.pong(1, 1) == ["ping 1 #2"])
    session.queued(.ping, at: 64, 2)
    #expect(session.pong(1, 2) == ["hold #1", "send #2", "replacing→ready"])
  }

  @Test func aHandOverDoesNotWaitForAStalledConnection() {
    let session = Dialogue()
    session.openToReady()
    _ = session.replace()
    _ = session.upgraded(2)
    session.queued(.ping, at: 64 * 1_024)
    _ = session.acknowledged(16)
    let start = session.now
    while session.state == .replacing { _ = session.wait(acknowledging: 16) }
    #expect(session.state == .ready && session.now - start < .seconds(3))
  }
}
