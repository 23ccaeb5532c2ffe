import ByteStreams
import Testing

@testable import UpstreamSession

/// Heartbeats as messages.
@Suite struct HeartbeatTests {
  private func session(_ change: @escaping (inout HeartbeatSettings) -> Void) -> Dialogue {
    let session = Dialogue {
      $0.liveness.isEnabled = false
      change(&$0.heartbeat)
    }
    session.openToReady()
    return session
  }

  @Test func sendsHeartbeatsAtTheInterval() {
    let session = session { $0.interval = .seconds(30) }
    for beat in 1...5 {
      #expect(session.wait() == ["beat \(beat) #1"])
      #expect(session.waited == .seconds(30))
    }
  }

  /// A client of Engine.IO 3 that stops sending pings is disconnected (socket.io-client-swift #895, #855, #1475).
  @Test func anHourOfHeartbeatsInVirtualTime() {
    let session = Dialogue {
      $0.liveness.isEnabled = false
      $0.setup = [SetupStep(expectsResponse: true)]
    }
    _ = session.open()
    _ = session.upgraded(1)
    var announced = HeartbeatSettings()
    (announced.interval, announced.timeout) = (.milliseconds(22_500), .seconds(20))
    session.machine.heartbeatAnnounced(announced, Generation(1), now: session.now)
    _ = session.setupResponded(1)
    for beat in 1...160 {
      #expect(session.wait() == ["beat \(beat) #1"])
      #expect(session.waited == .milliseconds(beat == 1 ? 22_500 : 2_501))
      // The pong arrives at the last possible moment.
      session.pass(.milliseconds(19_999))
      session.machine.heartbeatResponseReceived(Generation(1))
    }
    #expect(session.state == .ready && session.now.nanoseconds >= 1_000_000_000_000 + 3_600_000_000_000)
    // Without a pong, the connection counts as lost when the timeout ends, and not earlier.
    #expect(session.wait() == ["beat 161 #1"])
    #expect(session.wait().last == "ready→backoff" && session.waited == .seconds(20))
  }

  /// The upstream's heartbeat interval begins with its open packet, however long the setup takes.
  @Test func announcedHeartbeatsBeginDuringTheSetup() {
    let session = Dialogue {
      $0.liveness.isEnabled = false
      $0.limits.setup = .minutes(5)
      $0.setup = Array(repeating: SetupStep(expectsResponse: true, timeLimit: .minutes(5)), count: 2)
    }
    var announced = HeartbeatSettings()
    (announced.interval, announced.timeout) = (.seconds(20), .seconds(30))
    _ = session.open()
    _ = session.upgraded(1)
    session.machine.heartbeatAnnounced(announced, Generation(1), now: session.now)
    _ = session.setupResponded(1)
    for beat in 1...3 {
      #expect(session.wait() == ["beat \(beat) #1"] && session.waited == .seconds(20))
      session.machine.heartbeatResponseReceived(Generation(1))
    }
    session.pass(.seconds(5))
    #expect(session.setupResponded(1).last == "opening→ready")
    #expect(session.wait() == ["beat 4 #1"] && session.waited == .seconds(15), "the heartbeats continue")
    #expect(session.wait() == ["beat 5 #1"])
    #expect(session.wait().last == "ready→backoff" && session.waited == .seconds(10))
  }

  /// The interval may arrive in a setup message, and may change later.
  @Test func theUpstreamMayAnnounceTheInterval() {
    let session = Dialogue {
      $0.liveness.isEnabled = false
      $0.setup = [SetupStep(expectsResponse: true, timeLimit: .minutes(5))]
      $0.heartbeat.interval = .seconds(30)
    }
    func announce(_ interval: TimeSpan) {
      session.machine.heartbeatIntervalAnnounced(interval, Generation(1), now: session.now)
    }
    _ = session.open()
    _ = session.upgraded(1)
    announce(.seconds(4))
    #expect(session.wait() == ["beat 1 #1"] && session.waited == .seconds(4))
    announce(.seconds(4))
    _ = session.setupResponded(1)
    #expect(session.wait() == ["beat 2 #1"] && session.waited == .seconds(4))
    session.pass(.seconds(3))
    announce(.seconds(10))
    #expect(session.wait() == ["beat 3 #1"] && session.waited == .seconds(7))
    session.pass(.seconds(3))
    announce(.seconds(1))
    #expect(session.wait() == ["beat 4 #1"] && session.waited == .zero)
    #expect(session.wait() == ["beat 5 #1"] && session.waited == .seconds(1))
  }

  @Test(arguments: [true, false])
  func anAnnouncedHeartbeatThatIsMissingEndsTheSetup(isOurs: Bool) {
    let session = Dialogue { $0.setup = [SetupStep(expectsResponse: true)] }
    var announced = HeartbeatSettings()
    if isOurs {
      (announced.interval, announced.timeout) = (.seconds(2), .seconds(3))
    } else {
      announced.within = .seconds(5)
    }
    _ = session.open()
    _ = session.upgraded(1)
    session.machine.heartbeatAnnounced(announced, Generation(1), now: session.now)
    let start = session.now
    if isOurs {
      #expect(session.wait() == ["beat 1 #1"])
      #expect(session.wait() == ["beat 2 #1"])
    }
    #expect(session.wait() == ["discard #1", "opening→backoff"])
    #expect(session.now == start + .seconds(5))
    #expect(session.causes.last == .lost(.heartbeat))
  }

  @Test func aHeartbeatWithoutAReplyEndsTheConnection() {
    let session = session {
      $0.interval = .seconds(30)
      $0.timeout = .seconds(10)
    }
    #expect(session.wait() == ["beat 1 #1"])
    #expect(session.wait() == ["hold #1", "discard #1", "ready→backoff"])
    #expect(session.waited == .seconds(10))
    #expect(session.causes.last == .lost(.heartbeat))
  }

  @Test func theConnectionStaysWhileHeartbeatsGetReplies() {
    let session = session {
      $0.interval = .seconds(30)
      $0.timeout = .seconds(10)
    }
    for beat in 1...3 {
      #expect(session.wait() == ["beat \(beat) #1"])
      session.pass(.seconds(9))
      session.machine.heartbeatResponseReceived(Generation(1))
    }
    #expect(session.state == .ready)
  }

  /// If the timeout exceeds the interval, several heartbeats are pending. The deadline of the oldest heartbeat applies.
  @Test func theDeadlineOfTheOldestPendingHeartbeatCounts() {
    let session = session {
      $0.interval = .seconds(10)
      $0.timeout = .seconds(25)
    }
    #expect(session.wait() == ["beat 1 #1"])
    #expect(session.wait() == ["beat 2 #1"])
    #expect(session.wait() == ["beat 3 #1"])
    #expect(session.wait().last == "ready→backoff")
    #expect(session.waited == .seconds(5))
  }

  @Test func aMissingHeartbeatOfTheUpstreamEndsTheConnection() {
    let session = session { $0.within = .seconds(60) }
    session.pass(.seconds(50))
    session.machine.heartbeatReceived(Generation(1), now: session.now)
    session.pass(.seconds(50))
    session.machine.heartbeatReceived(Generation(7), now: session.now)
    #expect(session.state == .ready)
    #expect(session.wait().last == "ready→backoff")
    #expect(session.waited == .seconds(10), "a heartbeat of another connection does not count")
  }

  /// A new connection begins a new count, and no heartbeat is sent in between.
  @Test func heartbeatsEndWithTheirSocket() {
    let session = session { $0.interval = .seconds(1) }
    _ = session.wait()
    _ = session.wait()
    _ = session.lost(.reset)
    #expect(session.wait().last == "dial #2")
    session.pass(.seconds(2))
    #expect(session.machine.nextDeadline > session.now)
    session.becomeReady()
    #expect(session.wait() == ["beat 1 #2"])
    _ = session.close()
    #expect(session.wait() == ["discard #2", "closing→stopped"])
    #expect(session.machine.nextDeadline == .distantFuture)
  }

  /// The reaction to status 401 also applies if a message rejects the credentials.
  @Test func parksAfterTwoRefusalsOfTheCredential() {
    let session = Dialogue { $0.setup = [SetupStep(expectsResponse: true)] }
    _ = session.open()
    _ = session.upgraded(1)
    #expect(session.failed(.denied, in: .settingUp) == ["close 1000 #1", "discard #1", "opening→backoff"])
    #expect(session.wait().last == "dial #2 afresh")
    _ = session.upgraded(2)
    #expect(session.failed(.denied, in: .settingUp) == ["close 1000 #2", "discard #2", "opening→parked"])
    #expect(session.untilDial == .seconds(60))
  }
}
