import ByteStreams
import Host
import Logging
import Metrics
import Reactor
import RouteNetlink

/// Reports changes of this machine's network. If the kernel does not report changes, heartbeats still detect dead
/// connections, but later.
package final class NetworkWatcher: LoopTask {
  /// Reactions to changes of this machine's network.
  package struct Settings: Equatable, Sendable {
    package enum Changes: String, CaseIterable, Sendable { case watch, ignore }

    package var changes = Changes.watch
    package var settle = TimeSpan.milliseconds(500)

    package init() {}
  }

  /// Maximum number of datagrams per turn, so that frequent changes do not delay the loop's connections.
  private static var datagramsPerTurn: Int { 64 }

  private let channel: Channel
  private let report: Report
  private let logger: Logger
  private let changes: Counter
  private var debouncer: NetworkChangeDebouncer

  package typealias Report = @Sendable (NetworkChange) -> Void

  /// Watches on `loop` for as long as the loop runs.
  ///
  /// - Parameters:
  ///   - settle: how long the network must have been stable before a change is reported.
  ///   - report: called on `loop`.
  package static func start(
    settle: TimeSpan, logger: Logger, metrics: MetricsRegistry, on loop: EventLoop, report: @escaping Report
  ) {
    let changes = metrics.counter(
      "drawbridge_network_changes_total", "Changes of this machine's links, addresses or routes.")
    loop.submit { context in
      do throws(SystemError) {
        let channel = try Channel(descriptor: NetlinkSocket.open(), loop: context)
        return NetworkWatcher(channel, settle: settle, logger: logger, changes: changes, report: report)
      } catch {
        warnNotWatching(error.description, logger)
        return nil
      }
    }
  }

  private static func warnNotWatching(_ reason: String, _ logger: Logger) {
    logger.warning(
      "cannot watch the network for changes: only heartbeats will detect a dead connection",
      [.text("reason", reason)])
  }

  private init(
    _ channel: Channel, settle: TimeSpan, logger: Logger, changes: Counter, report: @escaping Report
  ) {
    self.channel = channel
    self.report = report
    self.logger = logger
    self.changes = changes
    debouncer = NetworkChangeDebouncer(quiet: settle)
  }

  package func run() async {
    while true {
      switch await channel.readable(until: debouncer.deadline) {
      case .ready:
        guard drain() else { return }
      case .deadline, .woken:
        break
      case .closed:
        return
      }
      if let change = debouncer.take(now: channel.loop.now) { reportChange(change) }
      await channel.loop.yieldTurn()
    }
  }

  /// Reads pending datagrams, up to the limit per turn. Returns false if no more datagrams will arrive.
  private func drain() -> Bool {
    let channel = self.channel
    let now = channel.loop.now
    for _ in 0..<Self.datagramsPerTurn {
      switch NetlinkSocket.receive(from: channel) {
      case .datagram:
        let events = RouteMessages.events(in: channel.received)
        for event in events { debouncer.add(event, now: now) }
      case .ignored:
        break
      case .overrun:
        debouncer.add(.overrun, now: now)
      case .wouldBlock:
        return true
      case .failed(let code):
        channel.close()
        Self.warnNotWatching(SystemError.reason(of: code), logger)
        return false
      }
    }
    return true
  }

  private func reportChange(_ change: NetworkChange) {
    changes.add()
    logger.debug(
      "the network changed", [.flag("gained", change.hasGained), .number("addresses_gone", change.vanished.count)])
    report(change)
  }
}
