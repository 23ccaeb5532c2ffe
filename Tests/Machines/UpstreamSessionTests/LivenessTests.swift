import ByteStreams
import Testing

@testable import UpstreamSession

@Suite struct LivenessTests {
  @Test func sendsAPingAboutEveryTwentySeconds() {
    let session = Dialogue()
    session.openToReady()
    var waits: [Double] = []
    for counter in 1...200 as ClosedRange<UInt64> {
      #expect(session.wait() == ["ping \(counter) #1"])
      waits.append(session.waited.seconds)
      #expect(session.bytesReceived() == [])
      #expect(session.pongReceived(counter))
    }
    #expect(waits.allSatisfy { $0 >= 18 && $0 <= 22 })
    #expect((waits.max() ?? 0) - (waits.min() ?? 0) > 2, "jitter spreads the pings")
  }

  @Test func aSilentConnectionIsLost() {
    let session = Dialogue()
    session.openToReady()
    _ = session.wait()
    #expect(session.wait() == ["ready→suspect"])
    #expect(session.waited == .seconds(5))
    #expect(session.wait() == ["hold #1", "discard #1", "suspect→backoff"])
    #expect(session.waited == .seconds(5))
    #expect(session.causes.last == .lost(.silence))
  }

  @Test func anyByteRenewsTheDeadline() {
    let session = Dialogue()
    session.openToReady()
    _ = session.wait()
    session.pass(.seconds(4))
    #expect(session.bytesReceived() == [])
    #expect(session.wait() == ["ready→suspect"])
    #expect(session.waited == .seconds(5))
    #expect(session.bytesReceived() == ["suspect→ready"])
    #expect(session.wait() == ["ready→suspect"])
    #expect(session.wait().last == "suspect→backoff")
  }

  /// Data may have arrived that the session has not read.
  @Test func aConnectionThatIsNotReadIsNotSilent() {
    let session = Dialogue()
    session.openToReady()
    _ = session.wait()
    for _ in 1...2 {
      session.pass(.milliseconds(4_900))
      session.machine.readingIsPaused(Generation(1), now: session.now)
    }
    #expect(session.wait() == ["ready→suspect"])
    #expect(session.waited == .seconds(5))
  }

  @Test func measuresTheRoundTrip() {
    let session = Dialogue()
    session.openToReady()
    _ = session.wait()
    session.pass(.milliseconds(37))
    #expect(session.pongReceived(1))
    #expect(session.machine.roundTrip == .milliseconds(37))
  }

  @Test func aPongCountsForEveryEarlierPing() {
    let session = Dialogue()
    session.openToReady()
    let first = session.machine.barrierPing(Generation(1), now: session.now, using: &session.random)
    let second = session.machine.barrierPing(Generation(1), now: session.now, using: &session.random)
    #expect(first == 1 && second == 2)
    #expect(session.pongReceived(2))
    #expect(session.wait() == ["ping 3 #1"])
  }

  @Test func ignoresUnsolicitedPongs() {
    let session = Dialogue()
    session.openToReady()
    #expect(!session.pongReceived(1))
    _ = session.wait()
    #expect(!session.pongReceived(2))
    #expect(!session.pongReceived(0))
  }

  @Test func sendsAPingWhenTheNetworkChanges() {
    let session = Dialogue()
    session.openToReady()
    #expect(session.networkChanged(hasGained: false) == ["ping 1 #1"])
    #expect(session.state == .ready)
    #expect(session.networkChanged() == ["ping 2 #1"])
    #expect(session.wait() == ["ready→suspect"])
    let withoutPings = Dialogue { $0.liveness.isEnabled = false }
    withoutPings.openToReady()
    #expect(withoutPings.networkChanged() == [])
  }

  @Test func heartbeatsEndWithTheirConnection() {
    let session = Dialogue()
    session.openToReady()
    _ = session.wait()
    _ = session.lost(.reset)
    #expect(session.wait() == ["backoff→resolving", "dial #2"])
    session.becomeReady()
    #expect(session.wait() == ["ping 1 #2"])
    #expect(session.waited >= .seconds(18))
  }

  @Test func pingsCanBeTurnedOff() {
    let session = Dialogue { $0.liveness.isEnabled = false }
    session.openToReady()
    #expect(session.machine.nextDeadline == .distantFuture)
    #expect(session.close() == ["hold #1", "close 1000 #1", "ready→closing"])
  }
}
