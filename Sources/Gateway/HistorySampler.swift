import API
import ByteStreams
import Reactor

/// Takes a sample for the history of the gateway every few seconds. Runs on one loop for as long as it runs.
final class HistorySampler: LoopTask, TimerTarget {
  private let shared: CommonState
  private let loop: LoopContext

  static func start(_ shared: CommonState, on loop: EventLoop) {
    loop.submit { HistorySampler(shared, loop: $0) }
  }

  private init(_ shared: CommonState, loop: LoopContext) {
    self.shared = shared
    self.loop = loop
  }

  func run() async { timerFired(0) }

  func timerFired(_ token: Int) {
    shared.takeSample(at: loop.now)
    _ = loop.schedule(at: loop.now + CommonState.historyInterval, self)
  }
}
