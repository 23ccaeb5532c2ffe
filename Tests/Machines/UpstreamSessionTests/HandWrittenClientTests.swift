import ByteStreams
import TestSupport
import Testing

@testable import UpstreamSession

/// Common mistakes of hand-written clients. A session makes none of them.
@Suite struct HandWrittenClientTests {
  /// Ways into every state in which a session can stay.
  private static var ways: [(SessionState, (Dialogue) -> Void)] {
    [
      (.stopped, { _ in }),
      (.resolving, { _ = $0.open() }),
      (
        .upgrading,
        {
          _ = $0.open()
          _ = $0.advance(to: .upgrading, 1)
        }
      ),
      (
        .settingUp,
        {
          _ = $0.open()
          _ = $0.upgraded(1)
        }
      ),
      (.ready, { $0.reachReady() }),
      (
        .suspect,
        {
          $0.reachReady()
          while $0.state == .ready { _ = $0.wait() }
        }
      ),
      (
        .replacing,
        {
          $0.reachReady()
          _ = $0.replace()
        }
      ),
      (
        .closing,
        {
          $0.reachReady()
          _ = $0.closed(1012)
        }
      ),
      (
        .backoff,
        {
          _ = $0.open()
          _ = $0.failed(.network)
        }
      ),
      (
        .offline,
        {
          _ = $0.open()
          _ = $0.failed(.noRoute)
        }
      ),
      (
        .parked,
        {
          _ = $0.open()
          _ = $0.failed(.status(404, retryAfter: nil))
        }
      ),
    ]
  }

  private func session(in state: SessionState) -> Dialogue {
    let session = Dialogue {
      $0.setup = [SetupStep(expectsResponse: true)]
      $0.backoff.strategy = .exponential(first: .seconds(1), factor: 2, cap: .hours(1))
    }
    Self.ways.first { $0.0 == state }?.1(session)
    precondition(session.state == state, "\(session.state) instead of \(state)")
    return session
  }

  private static var states: [SessionState] { ways.map(\.0) }

  // MARK: A deliberate close that later forbids every reconnect

  @Test(arguments: states)
  func aDeliberateCloseDoesNotForbidLaterReconnects(state: SessionState) {
    let session = session(in: state)
    _ = session.close()
    session.everyConnectionEnds()
    #expect(session.state == .stopped)
    #expect(session.open().last?.hasPrefix("dial ") == true)
    session.becomesReady()
    for _ in 0..<3 {
      _ = session.lost(.reset)
      #expect(session.state == .backoff)
      #expect(session.wait().last?.hasPrefix("dial ") == true)
      session.becomesReady()
    }
  }

  // MARK: A pending reconnect that connects after close

  @Test(arguments: states)
  func aPendingAttemptDoesNotReopenAClosedSession(state: SessionState) {
    let session = session(in: state)
    _ = session.close()
    session.everyConnectionEnds()
    #expect(session.state == .stopped)
    #expect(session.machine.nextDeadline == .distantFuture, "no timer is left")
    for _ in 0..<48 {
      session.pass(.hours(1))
      #expect(session.machine.deadlineReached(now: session.now, using: &session.random) == [])
      #expect(session.networkChanged() == [])
      #expect(session.demand() == [])
      for generation in 1...session.machine.generation.number + 1 {
        #expect(session.upgraded(generation) == [] && session.lost(.reset, generation) == ["discard #\(generation)"])
      }
    }
    #expect(session.state == .stopped)
  }

  // MARK: Parallel triggers that skip backoff steps

  /// A socket reports one failure in several ways, and timers and network events coincide with it. The failure counts
  /// once.
  @Test func parallelTriggersDoNotSkipBackoffSteps() {
    let session = session(in: .resolving)
    var waits: [Double] = []
    for _ in 0..<8 {
      let dial = session.machine.generation.number
      if waits.count.isMultiple(of: 2) {
        _ = session.failed(.network, dial)
      } else {
        session.becomesReady()
        _ = session.closed(1011, dial)
        _ = session.lost(.ended, dial)
      }
      _ = session.failed(.timedOut, dial)
      _ = session.closed(1006, dial)
      _ = session.lost(.reset, dial)
      _ = session.lost(.ended, dial)
      #expect(session.machine.deadlineReached(now: session.now, using: &session.random) == [], "not yet")
      waits.append(session.untilDial?.seconds ?? -1)
      _ = session.wait()
      #expect(session.machine.generation.number == dial + 1, "one dial for one failure")
    }
    #expect(waits == [1, 2, 4, 8, 16, 32, 64, 128])
    #expect(session.machine.failures == 8)
  }

  @Test func aWaitThatTheNetworkEndedDoesNotCountAsAFailure() {
    let session = session(in: .backoff)
    for step in 1...6 {
      session.pass(.seconds(6))
      #expect(session.networkChanged().last == "dial #\(step + 1)")
      #expect(session.networkChanged() == [], "no second attempt begins during an attempt")
      _ = session.failed(.network)
      #expect(session.machine.failures == step + 1)
    }
  }

  // MARK: A counter reset on mere open

  @Test func aConnectionMustBeStableToResetTheCount() {
    let session = session(in: .resolving)
    var waits: [Double] = []
    for _ in 0..<8 {
      session.becomesReady()
      session.pass(.milliseconds(900))
      _ = session.lost(.ended)
      waits.append(session.untilDial?.seconds ?? -1)
      _ = session.wait()
    }
    #expect(waits == [1, 2, 4, 8, 16, 32, 64, 128])
  }

  // MARK: A send that kills a connecting socket

  @Test func aSendDoesNotRestartAConnectionAttempt() {
    for phase in [AttemptPhase.resolving, .connecting, .proxying, .securing, .upgrading] {
      let session = Dialogue { $0.onDemand = true }
      _ = session.start()
      #expect(session.demand() == ["idle→resolving", "dial #1"])
      if phase > .resolving { _ = session.advance(to: phase, 1) }
      for _ in 0..<100 { #expect(session.demand() == []) }
      #expect(session.state == phase.state)
      #expect(session.upgraded(1) == ["send #1", "\(phase.state.name)→ready"])
    }
  }

  @Test func messagesPostedInAnyStateAreSentOnceReady() {
    for state in Self.states where state != .ready && state != .suspect && state != .replacing {
      let session = session(in: state)
      _ = session.open()
      for _ in 0..<10 where !session.state.isSending {
        if session.state == .closing { session.everyConnectionEnds() }
        if session.machine.attempt(session.machine.generation) == nil { _ = session.wait() }
        let actions = session.becomesReady()
        #expect(actions.contains("send #\(session.machine.generation.number)"), "from \(state)")
      }
      #expect(session.state == .ready, "from \(state)")
    }
  }

  // MARK: Stale callbacks of an older socket

  @Test(arguments: states)
  func staleCallbacksHaveNoEffect(state: SessionState) {
    let session = session(in: state)
    let before = (session.state, session.machine.nextDeadline, session.machine.failures, session.machine.transitions)
    let current = session.machine.generation.number
    let served = session.machine.connection?.generation.number
    for generation in 0...current + 5 where generation != current && generation != served {
      #expect(session.advance(to: .upgrading, generation) == [])
      #expect(session.upgraded(generation) == [])
      #expect(session.setupResponded(generation) == [])
      #expect(session.redirected(generation) == [])
      #expect(session.failed(.status(503, retryAfter: .hours(1)), generation) == [])
      #expect(session.bytesReceived(generation) == [])
      #expect(session.closed(1008, generation) == [])
      #expect(session.lost(.violation(code: 1002), generation) == ["discard #\(generation)"])
      let isOurs = session.machine.pongReceived(1, Generation(generation), now: session.now)
      #expect(!isOurs)
    }
    let after = (session.state, session.machine.nextDeadline, session.machine.failures, session.machine.transitions)
    #expect(before == after)
  }

  // MARK: A heartbeat that doubles as a subscription

  /// A heartbeat is only a ping. Opening messages are sent once per connection, however long it lasts.
  @Test func aHeartbeatIsNotASubscription() {
    let session = Dialogue { $0.setup = [SetupStep(expectsResponse: false), SetupStep(expectsResponse: true)] }
    _ = session.open()
    for connection in 1...3 as ClosedRange<UInt64> {
      #expect(
        session.upgraded(connection).filter { $0.hasPrefix("say") } == ["say 0 #\(connection)", "say 1 #\(connection)"])
      _ = session.setupResponded(connection)
      for beat in 1...100 as ClosedRange<UInt64> {
        #expect(session.wait() == ["ping \(beat) #\(connection)"])
        #expect(session.bytesReceived() == [])
        #expect(session.pongReceived(beat))
      }
      _ = session.lost(.reset)
      _ = session.wait()
    }
  }

  // MARK: Heartbeats that outlive their socket

  @Test func heartbeatsEndWithTheirConnection() {
    for loss in [ConnectionLoss.reset, .ended, .closed(code: 1001), .silence, .violation(code: 1002), .addressGone] {
      let session = session(in: .ready)
      _ = session.wait()
      session.ends(loss)
      var said: [String] = []
      while !session.state.isSending {
        said += session.machine.attempt(session.machine.generation) == nil ? session.wait() : session.becomesReady()
      }
      #expect(!said.contains { $0.hasPrefix("ping") }, "after \(loss)")
      // The first ping of the new connection has the number 1. It is sent a whole interval after the connection became
      // ready.
      #expect(session.wait() == ["ping 1 #2"])
      #expect(session.waited >= .seconds(18))
    }
    let closed = session(in: .ready)
    _ = closed.wait()
    _ = closed.close()
    _ = closed.lost(.ended)
    #expect(closed.machine.nextDeadline == .distantFuture)
  }
}

extension Dialogue {
  /// Completes the attempt in progress, with its one setup message.
  @discardableResult
  fileprivate func becomesReady() -> [String] {
    let actions = state == .settingUp ? [] : upgraded(machine.generation.number)
    return state == .settingUp ? setupResponded(machine.generation.number) : actions
  }

  /// Ends every connection after `close()`. During a replacement there are two connections.
  fileprivate func everyConnectionEnds() {
    for generation in 0...machine.generation.number where state == .closing { _ = lost(.ended, generation) }
  }

  fileprivate func reachReady() {
    _ = open()
    _ = becomesReady()
  }
}
