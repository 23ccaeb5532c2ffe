import ByteStreams
import Reactor

/// Ends leases and delays of a session's consumers, and removes idle consumers.
final class ConsumerClock: LoopTask, TimerTarget, SignalTarget {
  /// The minimum time between two passes over the consumers. Deadlines that are closer together are handled in one
  /// pass.
  private static var resolution: TimeSpan { .milliseconds(10) }

  private let consumers: ConcurrentConsumers
  private let loop: LoopContext
  private var timer: LoopTimer?
  private var lastPass = MonotonicTime.zero

  init(_ consumers: ConcurrentConsumers, loop: LoopContext) {
    self.consumers = consumers
    self.loop = loop
  }

  func run() async { consumers.start(loop.makeSignal(for: self)) }

  /// The next deadline may have changed, or the session has been closed.
  func signalled() {
    if consumers.isClosed {
      setTimer(nil)
      consumers.stop()
    } else {
      setTimer(consumers.nextAlarm)
    }
  }

  func timerFired(_ token: Int) {
    timer = nil
    lastPass = loop.now
    setTimer(consumers.tick(at: loop.now))
  }

  private func setTimer(_ deadline: MonotonicTime?) {
    loop.reschedule(&timer, at: deadline.map { max($0, lastPass + Self.resolution) }, self)
  }
}
