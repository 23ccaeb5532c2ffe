import ByteStreams
import Testing

@testable import UpstreamSession

@Suite struct ConnectionAttemptTests {
  @Test func aConnectionAttemptHasItsSteps() {
    let session = Dialogue()
    #expect(session.open() == ["stopped→resolving", "dial #1"])
    #expect(session.advance(to: .connecting, 1) == ["resolving→connecting"])
    #expect(session.advance(to: .securing, 1) == ["connecting→securing"])
    #expect(session.advance(to: .upgrading, 1) == ["securing→upgrading"])
    #expect(session.upgraded(1) == ["send #1", "upgrading→ready"])
    #expect(session.machine.connections == 1)
    #expect(session.causes == [.operatorRequest, .progress, .progress, .progress, .progress])
    let history = session.machine.history.entries
    #expect(history.map(\.sequence) == [1, 2, 3, 4, 5])
    #expect(history.map(\.to) == [.resolving, .connecting, .securing, .upgrading, .ready])
  }

  @Test func eachPhaseHasATimeout() {
    let limits: [(AttemptPhase, TimeSpan)] = [
      (.resolving, .seconds(5)), (.connecting, .seconds(10)), (.proxying, .seconds(10)), (.securing, .seconds(10)),
      (.upgrading, .seconds(10)),
    ]
    for (phase, limit) in limits {
      let session = Dialogue()
      _ = session.open()
      if phase > .resolving { _ = session.advance(to: phase, 1) }
      #expect(session.wait() == ["discard #1", "\(phase.state.name)→backoff"])
      #expect(session.waited == limit)
      #expect(session.causes.last == .attemptFailed(AttemptFailure(phase: phase, reason: .timedOut)))
    }
  }

  @Test func theWholeAttemptHasATimeout() {
    let session = Dialogue()
    _ = session.open()
    session.pass(.seconds(4))
    _ = session.advance(to: .connecting, 1)
    session.pass(.seconds(9))
    _ = session.advance(to: .securing, 1)
    #expect(session.wait() == ["discard #1", "securing→backoff"])
    #expect(session.waited == .seconds(2))
  }

  @Test func waitsAndConnectsAgain() {
    let session = Dialogue()
    _ = session.open()
    #expect(session.failed(.network, in: .connecting) == ["resolving→backoff"])
    #expect(session.wait() == ["backoff→resolving", "dial #2"])
    #expect(session.waited >= .milliseconds(100) && session.waited <= .milliseconds(500))
  }

  @Test func ignoresReportsOfAnOlderAttempt() {
    let session = Dialogue()
    _ = session.open()
    _ = session.failed(.network)
    _ = session.wait()
    #expect(session.advance(to: .connecting, 1) == [])
    #expect(session.upgraded(1) == [])
    #expect(session.failed(.network, 1) == [])
    #expect(session.lost(.reset, 1) == ["discard #1"])
    #expect(session.closed(1000, 1) == [])
    #expect(session.state == .resolving)
    #expect(session.upgraded(2) == ["send #2", "resolving→ready"])
  }

  @Test func sendsItsSetupMessagesInOrder() {
    let session = Dialogue {
      $0.setup = [
        SetupStep(expectsResponse: false), SetupStep(expectsResponse: true), SetupStep(expectsResponse: false),
      ]
    }
    _ = session.open()
    #expect(session.upgraded(1) == ["resolving→opening", "say 0 #1", "say 1 #1"])
    #expect(session.setupResponded(1) == ["say 2 #1", "send #1", "opening→ready"])
  }

  @Test func failsASetupWithoutAResponse() {
    let session = Dialogue { $0.setup = [SetupStep(expectsResponse: true, timeLimit: .seconds(3))] }
    _ = session.open()
    _ = session.upgraded(1)
    #expect(session.wait() == ["discard #1", "opening→backoff"])
    #expect(session.waited == .seconds(3))
    #expect(session.causes.last == .attemptFailed(AttemptFailure(phase: .settingUp, reason: .setupResponse)))
  }

  @Test func theTimeoutOfAStepLimitsNoLaterStep() {
    let session = Dialogue {
      $0.limits.setup = .seconds(20)
      $0.setup = [
        SetupStep(expectsResponse: true, timeLimit: .seconds(3)),
        SetupStep(expectsResponse: true, timeLimit: .seconds(12)),
        SetupStep(expectsResponse: true, timeLimit: .seconds(12)),
      ]
    }
    _ = session.open()
    _ = session.upgraded(1)
    session.pass(.seconds(2))
    #expect(session.setupResponded(1) == ["say 1 #1"])
    #expect(session.machine.nextDeadline == session.now + .seconds(12))
    session.pass(.seconds(11))
    #expect(session.setupResponded(1) == ["say 2 #1"])
    #expect(session.wait() == ["discard #1", "opening→backoff"])
    #expect(session.waited == .seconds(7), "the limit of all steps together")
  }

  /// All optional steps together may take half of the time for the whole setup.
  @Test func aSetupContinuesWithoutItsOptionalSteps() {
    let optional = SetupStep(expectsResponse: true, isOptional: true)
    let session = Dialogue {
      $0.limits.setup = .seconds(12)
      $0.setup = [optional, SetupStep(expectsResponse: true), optional]
    }
    _ = session.open()
    _ = session.upgraded(1)
    #expect(session.wait() == ["skip 0 #1"] && session.waited == .seconds(3))
    #expect(session.setupResponded(1) == ["say 1 #1"])
    session.pass(.seconds(1))
    #expect(session.setupResponded(1) == ["say 2 #1"])
    #expect(session.wait() == ["skip 2 #1"] && session.waited == .seconds(3))
    #expect(session.setupResponded(1) == ["send #1", "opening→ready"])
  }

  @Test func anOptionalStepDoesNotExtendTheSetup() {
    let session = Dialogue {
      $0.limits.setup = .seconds(12)
      let required = SetupStep(expectsResponse: true, timeLimit: .minutes(10))
      $0.setup = [required, SetupStep(expectsResponse: true, isOptional: true)]
    }
    _ = session.open()
    _ = session.upgraded(1)
    session.pass(.seconds(9))
    _ = session.setupResponded(1)
    session.pass(.seconds(2))
    #expect(session.machine.nextDeadline == session.now + .seconds(1))
    #expect(session.wait().last == "opening→backoff")
  }

  @Test func respondsToACloseFrameDuringTheSetup() {
    let session = Dialogue { $0.setup = [SetupStep(expectsResponse: true)] }
    _ = session.open()
    _ = session.upgraded(1)
    #expect(session.closed(1013) == ["close 1013 #1", "opening→closing"])
    #expect(session.lost(.ended) == ["discard #1", "closing→backoff"])
    #expect((session.untilDial ?? .zero) >= .seconds(10))
  }

  @Test func followsRedirectionsUpToFive() {
    let session = Dialogue()
    _ = session.open()
    for hop in 1...5 {
      _ = session.advance(to: .upgrading, UInt64(hop))
      let actions = session.redirected(UInt64(hop))
      #expect(actions == ["upgrading→resolving", "dial #\(hop + 1) redirected"])
    }
    _ = session.advance(to: .upgrading, 6)
    #expect(session.redirected(6) == ["upgrading→parked"])
  }

  @Test func connectsOnlyOnDemandIfConfigured() {
    let session = Dialogue {
      $0.onDemand = true
      $0.idleAfter = .seconds(60)
      $0.liveness.isEnabled = false
    }
    #expect(session.start() == ["stopped→idle"])
    #expect(session.machine.nextDeadline == .distantFuture)
    #expect(session.demand() == ["idle→resolving", "dial #1"])
    session.becomeReady()
    session.pass(.seconds(50))
    #expect(session.demand() == [])
    #expect(session.wait() == ["hold #1", "close 1000 #1", "ready→closing"])
    #expect(session.waited == .seconds(60))
    #expect(session.lost(.ended) == ["discard #1", "closing→idle"])
  }

  @Test func stopsConnectingOnDemandWithoutDemand() {
    let session = Dialogue {
      $0.onDemand = true
      $0.idleAfter = .seconds(60)
      $0.backoff.strategy = .fixed(.seconds(25))
    }
    _ = session.start()
    _ = session.demand()
    for dial in 2...3 {
      #expect(session.failed(.network) == ["resolving→backoff"])
      #expect(session.wait() == ["backoff→resolving", "dial #\(dial)"])
    }
    #expect(session.failed(.network) == ["resolving→backoff"])
    #expect(session.demand() == [], "a pending message continues the attempts")
    #expect(session.wait().last == "dial #4")
    _ = session.failed(.network)
    #expect(session.wait().last == "dial #5")
    _ = session.failed(.network)
    #expect(session.wait() == ["backoff→idle"])
    #expect(session.causes.last == .unused)
    #expect(session.machine.nextDeadline == .distantFuture)
    #expect(session.demand() == ["idle→resolving", "dial #6"])
  }

  @Test func aMessageDuringAnIdleCloseConnectsAgain() {
    let session = Dialogue {
      $0.onDemand = true
      $0.liveness.isEnabled = false
    }
    _ = session.start()
    _ = session.demand()
    session.becomeReady()
    #expect(session.wait().last == "ready→closing")
    #expect(session.demand() == [])
    #expect(session.lost(.ended) == ["discard #1", "closing→resolving", "dial #2"])
    #expect(session.causes.last == .demand)
  }

  @Test func anOperatorConnectsAnIdleOnDemandSession() {
    let session = Dialogue {
      $0.onDemand = true
      $0.idleAfter = .seconds(60)
      $0.liveness.isEnabled = false
    }
    #expect(session.start() == ["stopped→idle"])
    #expect(session.open() == ["idle→resolving", "dial #1"])
    #expect(session.causes.last == .operatorRequest)
    session.becomeReady()
    session.pass(.seconds(50))
    #expect(session.open() == [], "the session stays connected for another 60 s")
    #expect(session.wait().last == "ready→closing")
    #expect(session.waited == .seconds(60))
    #expect(session.open() == [])
    #expect(session.lost(.ended) == ["discard #1", "closing→resolving", "dial #2"])
    #expect(session.close() == ["discard #2", "resolving→stopped"])
    #expect(session.open() == ["stopped→resolving", "dial #3"])
  }

  @Test func onlyAnOperatorOverridesThePauseOfAHostWithTheFirstAttempt() {
    func overrides(_ actions: [SessionAction]) -> Bool {
      actions.contains { if case .dial(let dial) = $0 { dial.overridesPause } else { false } }
    }
    var generator = SystemRandomNumberGenerator()
    let started = Dialogue()
    #expect(!overrides(started.machine.start(now: started.now, using: &generator)))
    let opened = Dialogue()
    #expect(overrides(opened.machine.open(now: opened.now, using: &generator)))
  }

  @Test func waitsForTheNetworkWithoutCountingAttempts() {
    let session = Dialogue()
    _ = session.open()
    #expect(session.failed(.noRoute, in: .connecting) == ["resolving→offline"])
    #expect(session.machine.failures == 0)
    #expect(session.networkChanged(hasGained: false) == [], "the loss of a route makes no connection possible")
    #expect(session.networkChanged() == ["offline→resolving", "dial #2"])
    _ = session.failed(.network)
    session.pass(.seconds(5))
    #expect(session.networkChanged() == ["backoff→resolving", "dial #3"])
  }

  @Test func aNetworkThatChangesContinuouslyDoesNotEndEveryWait() {
    let session = Dialogue { $0.backoff.strategy = .fixed(.seconds(60)) }
    _ = session.open()
    _ = session.failed(.network)
    var dials = 0
    for _ in 0..<60 {
      if !session.networkChanged().isEmpty {
        dials += 1
        _ = session.failed(.network)
      }
      session.pass(.seconds(1))
    }
    #expect(dials == 12, "one attempt in five seconds")
    #expect(session.networkChanged() == ["backoff→resolving", "dial #14"])
    _ = session.failed(.network)
    session.pass(.seconds(2))
    #expect(session.networkChanged() == [])
    #expect(session.wait() == ["backoff→resolving", "dial #15"])
    #expect(session.waited == .seconds(3), "the change takes effect five seconds after the last attempt")
  }

  @Test func aPostponedAttemptIsNotCounted() {
    let session = Dialogue()
    _ = session.open()
    let until = session.now + .seconds(3)
    let actions = session.machine.postponed(until: until, Generation(1), now: session.now)
    #expect(actions.count == 1)
    #expect(session.state == .backoff && session.machine.failures == 0)
    #expect(session.wait() == ["backoff→resolving", "dial #2"])
    #expect(session.waited == .seconds(3))
  }
}
