import ByteStreams
import CLinux
import Glibc
import Host
import Synchronization
import Testing
import Threading

@testable import Reactor

/// Input that arrived before a deadline counts, however late the loop processes it.
@Suite struct TurnOrderTests {
  /// Keeps the loop's thread busy until timers for `moment` are due, so that the next turn is late.
  private static func block(until moment: MonotonicTime) {
    let due = moment + .milliseconds(5)
    while SystemCall.monotonicNanoseconds() <= due.nanoseconds { usleep(1_000) }
  }

  /// Returns the channel of an eventfd, which becomes readable when `fill` is called.
  private static func makeChannel(on loop: LoopContext) throws -> Channel {
    try Channel(descriptor: eventfd(0, O_NONBLOCK | O_CLOEXEC), loop: loop)
  }

  private static func fill(_ channel: Channel) {
    var one: UInt64 = 1
    #expect(write(channel.descriptor, &one, 8) == 8)
  }

  @Test func workAtTheEndOfATurnRunsAfterItsOutput() async throws {
    final class Recorder: TurnEndTarget, @unchecked Sendable {
      static let names = Locked<[String]>([])
      let name: String
      init(_ name: String) { self.name = name }
      func turnEnded() { Self.names.withLock { $0.append(name) } }
    }
    // On a thread without a loop, the call happens at once.
    LoopContext.atVeryEndOfTurn(Recorder("elsewhere"))
    try await onLoop { loop in
      LoopContext.atVeryEndOfTurn(Recorder("wake"))
      loop.atEndOfTurn(Recorder("output"))
      Recorder.names.withLock { $0.append("work") }
      await loop.yieldTurn()
      await loop.yieldTurn()
      #expect(Recorder.names.withLock { $0 } == ["elsewhere", "work", "output", "wake"])
    }
  }

  @Test func inputIsProcessedBeforeATimerOfTheSameTurnFires() async throws {
    final class Judge: TimerTarget {
      var hasInput = false
      var verdict: Bool?
      let done: Channel
      init(done: Channel) { self.done = done }
      func timerFired(_ token: Int) {
        verdict = hasInput
        done.wake()
      }
    }
    try await onLoop { loop in
      do {
        let input = try Self.makeChannel(on: loop)
        input.markDrained()
        let done = try Self.makeChannel(on: loop)
        done.markDrained()
        let judge = Judge(done: done)
        loop.spawn(
          Job {
            #expect(await input.readable() == .ready)
            judge.hasInput = true
          })
        await loop.yieldTurn()
        let deadline = loop.now + .milliseconds(20)
        _ = loop.schedule(at: deadline, judge)
        Self.fill(input)
        Self.block(until: deadline)
        #expect(await done.readEvent(until: loop.now + .seconds(60)) == .woken)
        #expect(judge.verdict == true)
        input.close()
        done.close()
      } catch {
        Issue.record(error)
      }
    }
  }

  /// Attack: input ends the wait of a connection that another connection resets in the same turn. Reading it would end
  /// the process.
  @Test func aChannelThatIsClosedAfterTheEventIsReportedAsClosed() async throws {
    final class Outcomes { var all: [WaitOutcome] = [] }
    try await onLoop { loop in
      do {
        let outcomes = Outcomes()
        for isReader in [true, false] {
          let channel = try Self.makeChannel(on: loop)
          channel.markDrained()
          loop.spawn(
            Job { outcomes.all.append(await isReader ? channel.readEvent(until: .distantFuture) : channel.readable()) })
          await loop.yieldTurn()
          channel.wake()
          channel.close()
          await loop.yieldTurn()
          await loop.yieldTurn()
        }
        #expect(outcomes.all == [.closed, .closed])
      } catch {
        Issue.record(error)
      }
    }
  }

  /// There are more descriptors than one call of `epoll_wait` reports.
  @Test func readinessTakesPrecedenceOverADeadlineOfTheSameTurn() async throws {
    Sockets.raiseDescriptorLimit()
    try await onLoop { loop in
      do {
        let channels = try (0..<700).map { _ in try Self.makeChannel(on: loop) }
        let deadline = loop.now + .seconds(1)
        var outcomes: [WaitOutcome] = []
        let done = try Self.makeChannel(on: loop)
        done.markDrained()
        for channel in channels {
          channel.markDrained()
          loop.spawn(
            Job {
              outcomes.append(await channel.readable(until: deadline))
              if outcomes.count == channels.count { done.wake() }
            })
        }
        // The events of the registration (each descriptor is writable) have been processed, and every reader waits.
        while !channels.allSatisfy(\.hasWaitingReader) { await loop.yieldTurn() }
        for channel in channels { Self.fill(channel) }
        Self.block(until: deadline)
        #expect(await done.readEvent(until: loop.now + .seconds(60)) == .woken)
        #expect(outcomes.filter { $0 == .ready }.count == channels.count)
        for channel in channels { channel.close() }
        done.close()
      } catch {
        Issue.record(error)
      }
    }
  }

  @Test func aSilentChannelStillMeetsItsDeadlineWhileOthersAreBusy() async throws {
    try await onLoop { loop in
      do {
        let silent = try Self.makeChannel(on: loop)
        silent.markDrained()
        let busy = try Self.makeChannel(on: loop)
        busy.markDrained()
        var isOver = false
        loop.spawn(
          Job {
            while !isOver {
              Self.fill(busy)
              _ = await busy.readEvent(until: loop.now + .seconds(60))
            }
          })
        #expect(await silent.readable(until: loop.now + .milliseconds(20)) == .deadline)
        isOver = true
        silent.close()
        busy.close()
      } catch {
        Issue.record(error)
      }
    }
  }

  /// A turn lasts until the loop sleeps, so it includes its jobs and the output at its end.
  @Test func theObserverIsCalledForEachTurnWithItsOutput() async throws {
    final class Observer: TurnObserver {
      var turns: [(start: MonotonicTime, end: MonotonicTime)] = []
      func turnEnded(from start: MonotonicTime, to end: MonotonicTime) { turns.append((start, end)) }
    }
    final class SlowOutput: TurnEndTarget {
      func turnEnded() { usleep(20_000) }
    }
    try await onLoop { loop in
      let observer = Observer()
      loop.turnObserver = observer
      let output = SlowOutput()
      // The first turn is followed at once by another turn. After the second turn, the loop sleeps.
      for isLast in [false, true] {
        let start = loop.now
        loop.atEndOfTurn(output)
        if isLast {
          let done = try? Self.makeChannel(on: loop)
          done?.markDrained()
          #expect(await done?.readable(until: loop.now + .milliseconds(1)) == .deadline)
          done?.close()
        } else {
          await loop.yieldTurn()
        }
        let turn = observer.turns.first { $0.start == start }
        #expect(turn.map { $0.end - $0.start >= .milliseconds(20) } == true)
      }
      #expect(zip(observer.turns, observer.turns.dropFirst()).allSatisfy { $0.end <= $1.start })
    }
  }
}
