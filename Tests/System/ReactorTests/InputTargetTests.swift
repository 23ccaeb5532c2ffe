import ByteStreams
import CLinux
import Glibc
import Testing

@testable import Reactor

/// A wait whose input is processed by a target.
@Suite struct InputTargetTests {
  /// Reads each event's input, and runs `step` with the number of events so far.
  private final class Target: InputTarget {
    let channel: Channel
    var inputDeadline: MonotonicTime
    var events = 0
    private var waiter: UnsafeContinuation<WaitOutcome, Never>?
    private let step: (Target) -> Bool

    init(_ channel: Channel, until deadline: MonotonicTime, _ step: @escaping (Target) -> Bool) {
      self.channel = channel
      inputDeadline = deadline
      self.step = step
    }

    func processInput() -> Bool {
      guard case .bytes = channel.receive() else { return true }
      events += 1
      return step(self)
    }

    func inputWaitEnded(_ outcome: WaitOutcome) { unsafe waiter.take()?.resume(returning: outcome) }

    func wait() async -> WaitOutcome {
      channel.wait(for: self)
      return await unsafe withUnsafeContinuation { unsafe waiter = $0 }
    }
  }

  /// Runs `step` for each event of a socket, which then gets another byte, and finally `check` with the outcome of the
  /// wait.
  private static func wait(
    until delay: TimeSpan, _ step: @escaping @Sendable (Target, LoopContext) -> Bool,
    check: @escaping @Sendable (WaitOutcome, Target, LoopContext) -> Void
  ) async throws {
    try await onLoop { loop in
      do {
        var ends: [Int32] = [0, 0]
        #expect(unsafe socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0, &ends) == 0)
        let peer = ends[1]
        func fill() { #expect(unsafe write(peer, "x", 1) == 1) }
        let channel = try Channel(descriptor: ends[0], loop: loop)
        let target = Target(channel, until: loop.now + delay) { target in
          let continues = step(target, loop)
          if !target.channel.isClosed { fill() }
          return continues
        }
        fill()
        let outcome = await target.wait()
        check(outcome, target, loop)
        channel.close()
        close(peer)
      } catch {
        Issue.record(error)
      }
    }
  }

  @Test func theWaitLastsUntilTheTargetForwardsAnEvent() async throws {
    try await Self.wait(until: .seconds(60)) { target, _ in
      target.events < 3
    } check: { outcome, target, _ in
      #expect(outcome == .ready)
      #expect(target.events == 3)
    }
  }

  @Test func theTargetIsCalledOnlyWhileItWaits() async throws {
    try await Self.wait(until: .seconds(60)) { _, _ in
      false
    } check: { _, target, _ in
      #expect(!target.channel.processInput())
      #expect(target.events == 1)
    }
  }

  @Test func aWaitThatIsWokenCanBeginAgain() async throws {
    try await Self.wait(until: .seconds(60)) { target, _ in
      target.channel.wake()
      return true
    } check: { outcome, target, _ in
      #expect(outcome == .woken)
      #expect(!target.channel.hasWaitingReader)
      target.channel.wait(for: target)
      #expect(target.channel.hasWaitingReader)
      #expect(target.channel.wake())
    }
  }

  @Test func aTargetThatClosesItsChannelEndsTheWait() async throws {
    try await Self.wait(until: .seconds(60)) { target, _ in
      target.channel.close()
      return true
    } check: { outcome, target, _ in
      #expect(outcome == .closed)
      #expect(target.events == 1)
    }
  }

  @Test func aTargetThatMovesItsDeadlineForwardEndsTheWaitEarlier() async throws {
    try await Self.wait(until: .seconds(3_600)) { target, loop in
      if target.events == 2 { target.inputDeadline = loop.now + .milliseconds(20) }
      return true
    } check: { outcome, target, loop in
      #expect(outcome == .deadline)
      #expect(loop.now >= target.inputDeadline)
    }
  }

  @Test func aTargetThatMovesItsDeadlineBackExtendsTheWait() async throws {
    try await Self.wait(until: .milliseconds(20)) { target, loop in
      if target.events == 1 { target.inputDeadline = loop.now + .milliseconds(60) }
      return true
    } check: { outcome, target, loop in
      #expect(outcome == .deadline)
      #expect(loop.now >= target.inputDeadline)
    }
  }
}
