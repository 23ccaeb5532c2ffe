import ByteStreams
import Testing

@testable import UpstreamSession

/// Make before break: the cut, the overlap, and the events that may interrupt each of their steps.
@Suite struct HandOverTests {
  /// The progress of a hand-over from #1 to #2.
  enum Step: CaseIterable {
    /// The session waits for the pong on the old connection.
    case oldPong
    /// The session waits for the pong on the successor.
    case newPong
    case listening
    case closing
    /// The old connection has ended. The session waits for the last pong.
    case lastPong
  }

  private func session(at step: Step, _ change: (inout SessionSettings) -> Void = { _ in }) -> Dialogue {
    let session = Dialogue(change)
    session.openToReady()
    _ = session.replace()
    _ = session.upgraded(2)
    guard step != .oldPong else { return session }
    _ = session.pong(1, 1)
    guard step != .newPong else { return session }
    _ = session.pong(1, 2)
    guard step != .listening else { return session }
    _ = session.wait()
    guard step != .closing else { return session }
    _ = session.lost(.ended, 1)
    return session
  }

  /// Continues until the hand-over is complete, and expects that `#n` is then the only connection.
  private func expectAlone(_ session: Dialogue, _ generation: UInt64) {
    #expect(session.state == .ready)
    #expect(session.machine.connection?.generation == Generation(generation))
    #expect(session.machine.retiring == nil)
  }

  // MARK: In order

  @Test func aHandOverSwitchesAfterTheLastMessage() {
    let session = Dialogue()
    session.openToReady()
    #expect(session.replace() == ["ready→replacing", "dial #2"])
    #expect(session.advance(to: .connecting, 2) == [])
    #expect(session.bytesReceived(1) == [])
    #expect(session.upgraded(2) == ["pause #1 for #2", "ping 1 #1"])
    #expect(session.pong(1, 1) == ["ping 1 #2"])
    #expect(session.pong(1, 2) == ["hold #1", "send #2", "replacing→ready"])
    // The session still reads the old connection for a while, and then closes it.
    #expect(session.wait() == ["close 1000 #1"])
    #expect(session.waited == .seconds(1))
    #expect(session.lost(.ended, 1) == ["ping 2 #2", "discard #1"])
    #expect(session.pong(2, 2) == ["one"])
    expectAlone(session, 2)
  }

  /// The upstream accepts only one connection.
  @Test func anExclusiveConnectionIsClosedBeforeTheNextIsOpened() {
    let session = Dialogue { $0.isExclusive = true }
    session.openToReady()
    #expect(session.replace() == ["hold #1", "ping 1 #1", "close 1000 #1", "ready→closing"])
    // Another reload changes nothing.
    #expect(session.reconfigure { $0.maximumAge = .minutes(1) } == [])
    #expect(session.lost(.ended, 1) == ["discard #1", "closing→resolving", "dial #2"])
    #expect(session.causes.last == .replacement(.configuration))
    #expect(session.upgraded(2) == ["send #2", "resolving→ready"])
    expectAlone(session, 2)
    // An upstream that does not respond to the close frame delays the next connection by a limited time.
    _ = session.replace()
    #expect(session.wait() == ["discard #2", "closing→resolving", "dial #3"])
    #expect(session.waited == .seconds(5))
  }

  /// Some upstreams end their session after 1000 and 1001. The session continues, so they get another code.
  @Test func aConnectionThatIsToBeResumedIsClosedWithTheConfiguredCode() {
    let exclusive = Dialogue {
      $0.isExclusive = true
      $0.closeCode = 4000
    }
    exclusive.openToReady()
    #expect(exclusive.replace() == ["hold #1", "ping 1 #1", "close 4000 #1", "ready→closing"])
    let session = Dialogue { $0.closeCode = 4000 }
    session.openToReady()
    #expect(session.endedByMessage(1) == ["hold #1", "close 4000 #1", "ready→closing"])
    _ = session.lost(.ended, 1)
    let ending = Dialogue { $0.closeCode = 4000 }
    ending.openToReady()
    #expect(ending.shutDown() == [])
    #expect(ending.flushed().contains("close 4000 #1"))
    #expect(ending.causes.last == .shutdown)
    // A client that closes the session chooses the code.
    let closed = Dialogue { $0.closeCode = 4000 }
    closed.openToReady()
    #expect(closed.close().contains("close 1000 #1"))
  }

  @Test func aReloadCanMakeTheConnectionExclusiveDuringAHandOver() {
    let session = Dialogue()
    session.openToReady()
    _ = session.replace()
    #expect(
      session.reconfigure { $0.isExclusive = true }
        == ["discard #2", "hold #1", "ping 1 #1", "close 1000 #1", "replacing→closing"])
    #expect(session.lost(.ended, 1) == ["discard #1", "closing→resolving", "dial #3"])
    #expect(session.upgraded(3) == ["send #3", "resolving→ready"])
    expectAlone(session, 3)
  }

  @Test(arguments: [Step.oldPong, .newPong])
  func aHandOverContinuesWithoutAMissingPong(step: Step) {
    let session = session(at: step) { $0.liveness.timeout = .minutes(1) }
    #expect(session.wait() == ["hold #1", "send #2", "replacing→ready"])
    #expect(session.waited == SessionStateMachine.cutLimit)
    #expect(session.wait() == ["close 1000 #1"])
    #expect(session.wait() == ["discard #1", step == .oldPong ? "ping 1 #2" : "ping 2 #2"])
    #expect(session.wait() == ["one"])
    #expect(session.waited == SessionStateMachine.cutLimit)
    expectAlone(session, 2)
  }

  @Test func sendsNoPingsIfPingsAreOff() {
    let session = Dialogue { $0.liveness.isEnabled = false }
    session.openToReady()
    _ = session.replace()
    #expect(session.upgraded(2) == ["hold #1", "send #2", "replacing→ready"])
    #expect(session.wait() == ["close 1000 #1"])
    #expect(session.wait() == ["discard #1"])
    #expect(session.waited == .seconds(5))
    #expect(session.wait() == ["one"])
    expectAlone(session, 2)
  }

  /// The old connection uses pings and its successor does not. The pong to the last ping must not be mistaken for
  /// another pong.
  @Test func noPingNumberIsUsedTwice() {
    let session = Dialogue()
    session.openToReady()
    _ = session.reconfigure { $0.liveness.isEnabled = false }
    #expect(session.upgraded(2) == ["hold #1", "send #2", "replacing→ready", "ping 1 #1"])
    #expect(session.machine.barrierPing(Generation(1), now: session.now, using: &session.random) == 2)
  }

  /// A shutdown may have less time than a cut takes.
  @Test(arguments: Step.allCases)
  func aShutdownEndsAHandOverAtOnce(step: Step) {
    let session = session(at: step)
    let isCutting = step == .oldPong || step == .newPong
    #expect(session.shutDown() == (isCutting ? ["hold #1", "send #2", "replacing→ready"] : []))
  }

  // MARK: Another hand-over

  /// Any number of requests during a hand-over leads to one further hand-over. The last request decides its reason.
  @Test(arguments: Step.allCases)
  func theNextHandOverWaitsForTheEndOfTheFirst(step: Step) {
    let session = session(at: step)
    #expect(session.reconfigure { $0.overlap = .seconds(3) } == [])
    #expect(session.reconfigure { $0.overlap = .seconds(4) } == [])
    #expect(session.isReplacementPostponed)
    var words: [String] = []
    while !words.contains("dial #3") {
      #expect(session.machine.nextDeadline < .distantFuture)
      _ = session.bytesReceived(2)
      words = session.wait()
    }
    #expect(words.suffix(2) == ["ready→replacing", "dial #3"])
    #expect(session.machine.retiring == nil)
    #expect(session.causes.last == .replacement(.configuration))
    #expect(session.machine.settings.overlap == .seconds(4))
    #expect(!session.isReplacementPostponed)
  }

  @Test func theMaximumAgeWaitsForTheEndOfAHandOver() {
    let session = session(at: .listening) {
      $0.maximumAge = .milliseconds(100)
      $0.overlap = .seconds(9)
    }
    #expect(session.wait() == ["close 1000 #1"])
    #expect(session.waited == .seconds(9))
    #expect(session.lost(.ended, 1) == ["ping 2 #2", "discard #1"])
    #expect(session.pong(2, 2) == ["one"])
    #expect(session.wait() == ["ready→replacing", "dial #3"])
    #expect(session.waited == .zero)
  }

  // MARK: The old connection is lost

  @Test(arguments: [Step.oldPong, .newPong])
  func theSuccessorIsUsedAtOnceIfTheOldConnectionIsLost(step: Step) {
    let session = session(at: step)
    #expect(session.lost(.reset, 1) == ["hold #1", "discard #1", "send #2", "replacing→ready"])
    expectAlone(session, 2)
  }

  @Test(arguments: [Step.oldPong, .newPong])
  func theSuccessorIsUsedAtOnceIfTheOldConnectionCloses(step: Step) {
    let session = session(at: step)
    #expect(session.closed(1009, 1) == ["hold #1 poisoned", "close 1009 #1", "send #2", "replacing→ready"])
    #expect(session.lost(.ended, 1).count == 2)
    #expect(session.wait() == ["one"])
    expectAlone(session, 2)
  }

  @Test func respondsToThePredecessorsCloseFrame() {
    let session = session(at: .listening)
    #expect(session.closed(1001, 1) == ["close 1001 #1"])
    #expect(session.lost(.ended, 1) == ["ping 2 #2", "discard #1"])
    #expect(session.lost(.ended, 1) == ["discard #1"])
    #expect(session.pong(2, 2) == ["one"])
    expectAlone(session, 2)
  }

  // MARK: The successor is lost

  @Test(arguments: [Step.oldPong, .newPong], [true, false])
  func theOldConnectionContinuesIfTheSuccessorIsLost(step: Step, closes: Bool) {
    let session = session(at: step)
    let words = closes ? session.closed(1013, 2) : session.lost(.reset, 2)
    #expect(words.suffix(3) == ["discard #2", "replacing→ready", "resume #1"])
    expectAlone(session, 1)
    #expect((30...60).contains(session.untilDial?.seconds ?? 0))
  }

  @Test func aWaitingReplacementBeginsAtOnceIfTheSuccessorIsLost() {
    let session = session(at: .newPong)
    _ = session.reconfigure { _ in }
    _ = session.lost(.reset, 2)
    #expect(session.wait() == ["ready→replacing", "dial #3"])
    #expect(session.waited == .zero)
  }

  /// A predecessor that continued would deliver the same pushes as the next connection.
  @Test(arguments: [Step.listening, .closing, .lastPong])
  func noPredecessorOutlivesTheLossOfItsSuccessor(step: Step) {
    let session = session(at: step)
    let words = session.lost(.reset, 2)
    #expect(words.contains("close 1000 #1") == (step == .listening))
    while session.state != .resolving { _ = session.wait() }
    let discards = session.advance(to: .upgrading, 3)
    #expect(
      discards == (step == .lastPong ? ["resolving→upgrading", "one"] : ["discard #1", "one", "resolving→upgrading"])
        || discards == ["one", "resolving→upgrading"])
    #expect(session.machine.retiring == nil)
    #expect(session.upgraded(3) == ["send #3", "upgrading→ready"])
    expectAlone(session, 3)
  }

  @Test func aWaitingReplacementIsMadeByTheNextAttempt() {
    let session = session(at: .listening)
    _ = session.reconfigure { $0.overlap = .seconds(4) }
    _ = session.lost(.reset, 2)
    while session.state != .resolving { _ = session.wait() }
    _ = session.upgraded(3)
    #expect(session.untilDial == nil)
    expectAlone(session, 3)
  }

  // MARK: Closing, and opening again

  @Test(arguments: Step.allCases, [1000, 1001] as [UInt16])
  func noConnectionIsLeftWhenTheSessionCloses(step: Step, code: UInt16) {
    let session = session(at: step)
    let words = session.close(code)
    #expect(words.last?.hasSuffix("→closing") == true)
    if step == .oldPong || step == .newPong {
      #expect(words.starts(with: ["resume #1", "close \(code) #2", "discard #2", "hold #1"]))
    }
    #expect(words.contains("close 1000 #1") || step != .listening)
    _ = session.lost(.ended, step == .oldPong || step == .newPong ? 1 : 2)
    #expect(session.state == .stopped)
    while session.machine.nextDeadline < .distantFuture { _ = session.wait() }
    #expect(session.machine.retiring == nil)
    #expect(session.open() == ["stopped→resolving", "dial #3"])
  }

  @Test(arguments: Step.allCases)
  func openingAgainDuringACloseLeavesNoConnection(step: Step) {
    let session = session(at: step)
    _ = session.reconfigure { _ in }
    _ = session.close()
    _ = session.open()
    _ = session.lost(.ended, step == .oldPong || step == .newPong ? 1 : 2)
    #expect(session.state == .resolving)
    #expect(session.upgraded(3).suffix(2) == ["send #3", "resolving→ready"])
    expectAlone(session, 3)
  }
}
