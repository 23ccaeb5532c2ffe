import API
import ByteStreams
import Reactor

/// Samples the gateway's metrics every few seconds, for `GatewayHistory`. Runs on one loop, as long as the loop runs.
final class HistorySampler: LoopTask, TimerTarget {
  private let common: CommonState
  private let loop: LoopContext

  static func start(_ common: CommonState, on loop: EventLoop) {
    loop.submit { HistorySampler(common, loop: $0) }
  }

  private init(_ common: CommonState, loop: LoopContext) {
    self.common = common
    self.loop = loop
  }

  func run() async { timerFired(0) }

  func timerFired(_ token: Int) {
    common.takeSample(at: loop.now)
    _ = loop.schedule(at: loop.now + CommonState.historyInterval, self)
  }
}
