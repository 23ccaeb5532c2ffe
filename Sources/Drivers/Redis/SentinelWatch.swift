import ByteStreams
import Dialing
import Reactor
import RedisProtocol

/// Subscribes to the failover notifications of each Sentinel. After the promotion of a new primary, the old primary may
/// accept data for seconds, and this data is lost. So the owner must close its connections when this watch reports the
/// new address.
///
/// Used on one event loop only.
package final class SentinelWatch {
  /// - sentinel: the index of the Sentinel that has reported the new address.
  package typealias Report = (_ sentinel: Int, _ address: RedisAddress) -> Void

  /// The time between the end of a subscription and the next attempt. A missing Sentinel does no harm while others
  /// respond.
  private static var pause: TimeSpan { .seconds(1) }

  private let name: String
  private let dialer: any Dialer
  private let loop: LoopContext
  private let report: Report
  private var subscriptions: [Subscription] = []

  /// - Parameters:
  ///   - name: the name of the primary.
  ///   - report: called for each change, by each Sentinel.
  package init(
    _ sentinels: [RedisEndpoint], of name: String, dialer: any Dialer, loop: LoopContext, report: @escaping Report
  ) {
    self.name = name
    self.dialer = dialer
    self.loop = loop
    self.report = report
    subscriptions = sentinels.indices.map { Subscription(self, $0, sentinels[$0]) }
  }

  package func start() { for subscription in subscriptions { subscription.start() } }

  package func stop() {
    for subscription in subscriptions { subscription.stop() }
    subscriptions = []
  }

  private final class Subscription: RedisConnectionOwner, TimerTarget {
    private unowned let watch: SentinelWatch
    private let index: Int
    private let sentinel: RedisEndpoint
    private var connection: RedisConnection?
    private var timer: LoopTimer?

    init(_ watch: SentinelWatch, _ index: Int, _ sentinel: RedisEndpoint) {
      self.watch = watch
      self.index = index
      self.sentinel = sentinel
    }

    func start() {
      var settings = RedisConnectionSettings()
      settings.peer = .sentinel
      settings.purpose = .subscriptions([SentinelAnswer.switchChannel])
      let connection = RedisConnection(to: sentinel, settings, dialer: watch.dialer, loop: watch.loop, owner: self)
      self.connection = connection
      connection.start()
    }

    func stop() {
      if let timer { watch.loop.cancel(timer) }
      timer = nil
      connection?.close()
      connection = nil
    }

    func connection(_ connection: RedisConnection, reports event: RedisConnection.Event) {
      switch event {
      case .subscription(.message(_, let payload)):
        if let address = SentinelAnswer.newAddress(in: payload, of: watch.name) { watch.report(index, address) }
      case .subscription, .ready: break
      case .ended:
        self.connection = nil
        timer = watch.loop.schedule(at: watch.loop.now + SentinelWatch.pause, self)
      }
    }

    func timerFired(_ token: Int) {
      // The watch may have been stopped in the same turn.
      guard timer != nil else { return }
      timer = nil
      start()
    }
  }
}
