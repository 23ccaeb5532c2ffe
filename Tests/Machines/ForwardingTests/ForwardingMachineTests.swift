import ByteStreams
import Forwarding
import Testing

@Suite struct ForwardingMachineTests {
  private typealias Machine = ForwardingMachine<String>
  private static let patience = TimeSpan.seconds(6)
  private static let pause = TimeSpan.milliseconds(100)
  private static let recognition = TimeSpan.seconds(45)

  /// A machine behind a reference, so that expectations can call its mutating functions.
  private final class Run {
    private var machine: Machine

    init(_ machine: Machine) { self.machine = machine }

    /// Sends the request in this step, and does not wait for a connection.
    func next(holder: String?, now: MonotonicTime) -> Machine.Step {
      let step = machine.next(holder: holder, now: now)
      if case .send = step {
        let isAllowed = machine.begin(at: now)
        #expect(isAllowed)
      }
      return step
    }
    func wait(at now: MonotonicTime) -> MonotonicTime { machine.beginWaiting(at: now) }
    func begin(at now: MonotonicTime) -> Bool { machine.begin(at: now) }
    func ended(_ attempt: Machine.Attempt, now: MonotonicTime) -> Bool { machine.ended(attempt, now: now) }
    func copy() -> Run { Run(machine) }
  }

  private func machine(_ repetition: ForwardingRepetition) -> Run {
    Run(Machine(repetition, .init(patience: Self.patience, recognition: Self.recognition)))
  }

  private func time(_ milliseconds: Int64) -> MonotonicTime { .zero + .seconds(1_000) + .milliseconds(milliseconds) }

  @Test func sendsToTheHolderAndForwardsItsResponse() {
    for repetition in [ForwardingRepetition.harmless, .recognised, .harmful] {
      for status in [200, 202, 409, 429, 500, 503] {
        let machine = machine(repetition)
        #expect(machine.next(holder: "a", now: time(0)) == .send("a"))
        #expect(machine.ended(.response(status: status), now: time(60_000)), "\(repetition) \(status)")
      }
    }
  }

  @Test func waitsForAHolderUntilTheDeadline() {
    let machine = machine(.harmful)
    let end = time(0) + Self.patience
    #expect(machine.next(holder: nil, now: time(0)) == .wait(until: end))
    // Waking up does not extend the wait.
    #expect(machine.next(holder: nil, now: time(3_000)) == .wait(until: end))
    let late = machine.copy()
    #expect(machine.next(holder: "b", now: time(5_999)) == .send("b"))
    #expect(late.next(holder: "b", now: end) == .end(.unavailable))
  }

  @Test(arguments: [ForwardingRepetition.harmless, .recognised, .harmful])
  func aRequestThatWasNotExecutedIsSentToTheNextHolderAtOnce(repetition: ForwardingRepetition) {
    for attempt in [Machine.Attempt.unreached, .response(status: Machine.misdirected)] {
      let machine = machine(repetition)
      #expect(machine.next(holder: "a", now: time(0)) == .send("a"))
      #expect(!machine.ended(attempt, now: time(10)))
      // The same gateway is tried again only after a pause.
      #expect(machine.next(holder: "a", now: time(10)) == .wait(until: time(10) + Self.pause))
      let other = machine.copy()
      #expect(other.next(holder: "b", now: time(20)) == .send("b"))
      #expect(machine.next(holder: "a", now: time(110)) == .send("a"))
      #expect(!machine.ended(attempt, now: time(5_000)))
      // The time during which a holder had the request does not count.
      let end = time(6_010) + (attempt == .unreached ? .zero : .milliseconds(4_890))
      #expect(machine.next(holder: nil, now: time(6_000)) == .wait(until: end))
      #expect(machine.next(holder: "a", now: end) == .end(.unavailable))
    }
  }

  @Test func anOptionalRequestWaitsForNoHolder() {
    #expect(machine(.optional).next(holder: nil, now: time(0)) == .end(.unavailable))
    for attempt in [Machine.Attempt.unreached, .lost, .expired, .response(status: Machine.misdirected)] {
      let machine = machine(.optional)
      #expect(machine.next(holder: "a", now: time(0)) == .send("a"))
      #expect(!machine.ended(attempt, now: time(10)))
      let other = machine.copy()
      #expect(machine.next(holder: "a", now: time(10)) == .end(.unavailable))
      #expect(other.next(holder: "b", now: time(10)) == .send("b"))
      #expect(other.ended(.response(status: 200), now: time(20)))
    }
  }

  @Test func aHolderThatReturnsGetsTheRequestAtOnce() {
    let machine = machine(.harmless)
    _ = machine.next(holder: "a", now: time(0))
    _ = machine.ended(.unreached, now: time(0))
    #expect(machine.next(holder: nil, now: time(1)) == .wait(until: time(0) + Self.patience))
    #expect(machine.next(holder: "a", now: time(2)) == .send("a"))
  }

  @Test func aRequestThatMayHaveBeenExecutedIsRepeatedOnlyIfHarmless() {
    for (repetition, step) in [
      (ForwardingRepetition.harmless, Machine.Step.send("b")), (.recognised, .send("b")), (.harmful, .end(.unknown)),
    ] {
      let machine = machine(repetition)
      _ = machine.next(holder: "a", now: time(0))
      #expect(!machine.ended(.lost, now: time(10)))
      #expect(machine.next(holder: "b", now: time(10)) == step)
    }
  }

  /// A holder may hang although its connection works. Then attempts at it end when the patience ends, and not after the
  /// longest duration of a request.
  @Test func theTimeOfAnAttemptWithoutAResponseCountsTowardsTheLimit() {
    for (repetition, failure) in [
      (ForwardingRepetition.harmless, Machine.Failure.unavailable), (.recognised, .unknown),
    ] {
      let machine = machine(repetition)
      _ = machine.next(holder: "a", now: time(0))
      #expect(!machine.ended(.expired, now: time(5_000)))
      #expect(machine.next(holder: "a", now: time(5_100)) == .send("a"))
      #expect(machine.begin(at: time(5_100)))
      #expect(!machine.ended(.expired, now: time(10_100)))
      #expect(machine.next(holder: "a", now: time(10_200)) == .send("a"))
      #expect(machine.begin(at: time(10_200)))
      #expect(!machine.ended(.expired, now: time(15_200)))
      #expect(machine.next(holder: "b", now: time(15_200)) == .end(failure))
    }
    let harmful = machine(.harmful)
    _ = harmful.next(holder: "a", now: time(0))
    #expect(!harmful.ended(.expired, now: time(5_000)))
    #expect(harmful.next(holder: "b", now: time(5_000)) == .end(.unknown))
  }

  @Test func aLaterAttemptWithoutEffectDoesNotHideALoss() {
    for (repetition, failure) in [
      (ForwardingRepetition.harmless, Machine.Failure.unavailable), (.recognised, .unknown),
    ] {
      let machine = machine(repetition)
      _ = machine.next(holder: "a", now: time(0))
      _ = machine.ended(.lost, now: time(10))
      _ = machine.next(holder: "b", now: time(20))
      _ = machine.ended(.response(status: Machine.misdirected), now: time(30))
      #expect(machine.next(holder: nil, now: time(6_020)) == .end(failure))
    }
  }

  @Test func aRequestThatAHolderMayHaveForgottenIsNotRepeated() {
    let machine = machine(.recognised)
    _ = machine.next(holder: "a", now: time(0))
    let late = time(0) + Self.recognition
    #expect(!machine.ended(.lost, now: late))
    #expect(machine.next(holder: "b", now: late) == .end(.unknown))
    // If no gateway has received the request, sending it is not a repetition.
    let first = self.machine(.recognised)
    _ = first.next(holder: "a", now: time(0))
    _ = first.ended(.unreached, now: late)
    #expect(first.next(holder: "b", now: late) == .send("b"))
  }

  @Test func aWaitForAConnectionCountsAndIsNotTooLongForTheHolder() {
    let machine = machine(.recognised)
    #expect(machine.next(holder: "a", now: time(0)) == .send("a"))
    #expect(machine.wait(at: time(1_000)) == time(7_000))
    #expect(!machine.ended(.unreached, now: time(6_500)))
    #expect(machine.next(holder: "b", now: time(7_000)) == .end(.unavailable))
    // By the time a connection is open, the holder may have forgotten the id.
    let lost = self.machine(.recognised)
    _ = lost.next(holder: "a", now: time(0))
    #expect(!lost.ended(.lost, now: time(44_000)))
    #expect(lost.next(holder: "b", now: time(44_500)) == .send("b"))
    #expect(!lost.begin(at: time(45_000)))
    #expect(lost.next(holder: "b", now: time(45_000)) == .end(.unknown))
  }

  @Test func aRepetitionWaitsUntilTheFirstRequestIsAccepted() {
    let machine = machine(.recognised)
    _ = machine.next(holder: "a", now: time(0))
    _ = machine.ended(.lost, now: time(0))
    _ = machine.next(holder: "a", now: time(100))
    #expect(!machine.ended(.response(status: 409), now: time(110)))
    #expect(machine.next(holder: "a", now: time(110)) == .wait(until: time(210)))
    #expect(machine.next(holder: "a", now: time(210)) == .send("a"))
    let late = machine.copy()
    // The client has sent the request only once, so this response would have no meaning for the client.
    #expect(!late.ended(.response(status: 409), now: time(6_000)))
    #expect(late.next(holder: "a", now: time(6_100)) == .end(.unknown))
    #expect(machine.ended(.response(status: 202), now: time(220)))
  }

  @Test func atTheDeadlineTheOutcomeIsUnknownIfTheRequestMayHaveBeenExecuted() {
    for (repetition, unsent, sent) in [
      (ForwardingRepetition.harmless, Machine.Failure.unavailable, Machine.Failure.unavailable),
      (.harmful, .unavailable, .unknown), (.recognised, .unavailable, .unknown),
    ] {
      let machine = Machine(repetition, .init(patience: Self.patience, recognition: Self.recognition))
      #expect(machine.expired(isSent: false) == unsent && machine.expired(isSent: true) == sent)
    }
  }
}
