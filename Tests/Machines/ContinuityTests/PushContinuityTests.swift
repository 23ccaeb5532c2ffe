import Testing

@testable import Continuity

/// The places in a session where pushes may be missing.
@Suite struct PushContinuityTests {
  private var continuity = PushContinuity(mayBeContinued: false, namespaces: [])

  // MARK: Connections

  @Test mutating func theLossOfAConnectionIsOneLossOfPushes() {
    #expect(loseSending() == true)
    #expect(change(didSend: false, sends: false) == false, "the next attempt fails")
  }

  @Test mutating func aConnectionThatWeCloseLosesPushesWhenItHasEnded() {
    #expect(
      change(didSend: true, sends: false, closes: true) == false, "the upstream may send until it has our close frame")
    #expect(change(didSend: false, sends: false, wasClosing: true) == true)
    #expect(change(didSend: false, sends: false, wasClosing: true) == false, "once")
  }

  @Test mutating func noPushFollowsTheCloseFrameOfTheUpstream() {
    #expect(change(didSend: true, sends: false, closes: true, upstreamHasEnded: true) == true)
    #expect(change(didSend: false, sends: false, wasClosing: true) == false)
  }

  @Test(arguments: [true, false]) mutating func aRestoredStateLosesNothing(isRestored: Bool) {
    continuity.stateSaved(of: 1, isComplete: true)
    #expect(loseSending() == false)
    continuity.setupBegan(on: 2)
    if !isRestored { #expect(continuity.stateLost() == true) }
    if !isRestored { #expect(continuity.stateLost() == false, "once") }
    continuity.sendingBegan(on: 2, without: [])
    #expect(continuity.stateLost() == false, "the lost state belongs to another connection")
  }

  @Test mutating func anIncompleteStateLosesPushesAtOnce() {
    continuity.stateSaved(of: 1, isComplete: false)
    #expect(loseSending() == true)
    #expect(continuity.stateLost() == false)
  }

  @Test mutating func aSuccessorThatWasSetUpBeforeTheLossRestoresNothing() {
    continuity.setupBegan(on: 2)
    continuity.stateSaved(of: 1, isComplete: true)
    #expect(loseSending() == true)
  }

  @Test mutating func aSuccessorThatHasEndedDoesNotCount() {
    continuity.setupBegan(on: 2)
    continuity.ended(2)
    continuity.stateSaved(of: 1, isComplete: true)
    #expect(loseSending() == false)
  }

  @Test(arguments: [true, false]) mutating func aFailedSetupLosesThePushesThatItReceived(isComplete: Bool) {
    continuity.setupBegan(on: 1)
    #expect(continuity.isSettingUp(1))
    continuity.stateSaved(of: 1, isComplete: isComplete)
    #expect(continuity.setupFailed(on: 1) == !isComplete)
    #expect(!continuity.isSettingUp(1))
  }

  @Test mutating func pushesOfAConnectionThatNeverSentAreRememberedUntilItEnds() {
    #expect(continuity.pushReceived(on: 1) == false)
    #expect(!continuity.hasBroughtPushesEarly(1), "its setup has not begun")
    continuity.setupBegan(on: 1)
    continuity.setupBegan(on: 2)
    #expect(!continuity.hasBroughtPushesEarly(1))
    #expect(continuity.pushReceived(on: 1) == true)
    #expect(continuity.pushReceived(on: 1) == false, "only the first push is reported")
    #expect(continuity.hasBroughtPushesEarly(1))
    #expect(!continuity.hasBroughtPushesEarly(2))
    #expect(continuity.setupFailed(on: 1) == true)
    #expect(!continuity.hasBroughtPushesEarly(1))
  }

  /// The attempt may have brought newer pushes, so the upstream would resume after pushes that are missing.
  @Test(arguments: [true, false]) mutating func aStateAfterEarlyPushesOfAFailedAttemptIsNotComplete(isSending: Bool) {
    if !isSending {
      continuity.stateSaved(of: 1, isComplete: true)
      #expect(loseSending() == false)
    }
    continuity.setupBegan(on: 2)
    #expect(continuity.pushReceived(on: 2) == true)
    #expect(continuity.isCursorUncertain)
    if isSending {
      continuity.ended(2)
      continuity.stateSaved(of: 1, isComplete: true)
      #expect(loseSending() == true)
    } else {
      continuity.stateSaved(of: 2, isComplete: true)
      #expect(continuity.setupFailed(on: 2) == true)
      #expect(continuity.stateLost() == false)
    }
    continuity.setupBegan(on: 3)
    continuity.sendingBegan(on: 3, without: [])
    #expect(!continuity.isCursorUncertain)
    continuity.stateSaved(of: 3, isComplete: true)
    #expect(loseSending() == false)
  }

  @Test(arguments: [true, false]) mutating func anEarlierProcessMayBeContinued(mayBeContinued: Bool) {
    continuity = PushContinuity(mayBeContinued: mayBeContinued, namespaces: [])
    #expect(continuity.stateLost() == mayBeContinued)
  }

  private mutating func loseSending() -> Bool { change(didSend: true, sends: false, upstreamHasEnded: true) }

  private mutating func change(
    didSend: Bool, sends: Bool, wasClosing: Bool = false, closes: Bool = false, upstreamHasEnded: Bool = false
  ) -> Bool {
    continuity.changed(
      didSend: didSend, sends: sends, wasClosing: wasClosing, closes: closes, upstreamHasEnded: upstreamHasEnded)
  }

  // MARK: Namespaces

  @Test mutating func anInterruptedNamespaceHasMissedPushesOnce() {
    #expect(continuity.join("/", isRecovered: false) == false, "for the first time")
    #expect(continuity.join("/", isRecovered: false) == false, "on a successor, while it is joined")
    continuity.interrupt("/")
    continuity.interrupt("/")
    #expect(continuity.join("/", isRecovered: false) == true)
    #expect(continuity.join("/", isRecovered: false) == false)
  }

  @Test mutating func aRecoveredNamespaceHasMissedNoPushes() {
    continuity = PushContinuity(mayBeContinued: false, namespaces: ["/"])
    continuity.interrupt("/")
    #expect(continuity.join("/", isRecovered: true) == false)
    #expect(continuity.join("/", isRecovered: false) == false)
  }

  @Test mutating func aNamespaceThatWasNeverJoinedMissesNoPushes() {
    continuity = PushContinuity(mayBeContinued: false, namespaces: ["/"])
    continuity.interrupt("/admin")
    continuity.interrupt("/")
    #expect(continuity.join("/admin", isRecovered: false) == false)
    #expect(continuity.join("/", isRecovered: false) == true, "an earlier process had joined it")
  }

  @Test mutating func aNamespaceThatIsMissingWhenAConnectionBeginsToSendIsInterrupted() {
    continuity = PushContinuity(mayBeContinued: false, namespaces: ["/", "/slow"])
    continuity.sendingBegan(on: 1, without: ["/slow"])
    #expect(continuity.join("/slow", isRecovered: false) == true)
    #expect(continuity.join("/", isRecovered: false) == false)
  }

  // MARK: Stored state

  @Test func aStateIsCompleteIfEachNamespaceCanBeRestored() {
    #expect(![Continuation]().areComplete)
    #expect([Continuation(pid: [1], offset: [2])].areComplete)
    #expect(![Continuation(pid: [1], offset: [2]), Continuation(pid: [3])].areComplete)
    #expect(![Continuation(pid: [], offset: [2])].areComplete)
  }
}
