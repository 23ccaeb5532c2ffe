import API
import ByteStreams
import Configuration
import HTTPServer
import Inbox
import Logging
import Metrics
import Reactor
import Sessions
import TLSEngine
import Upstream
import UpstreamSession

/// What keeps the gateway from starting although its settings are right: the system refuses a resource.
package struct StartError: Error, Sendable {
  package let message: String
}

/// The gateway as a whole: starts loops, listeners and the session, and ends them in order.
package final class GatewayServer: Sendable {
  /// Signals that end the process; the main thread takes them.
  package static let endingSignals: [Int32] = [15, 2]
  /// SIGHUP: the configuration is read again.
  package static let reloadSignal: Int32 = 1
  /// All that `runUntilSignalled` takes: to be blocked before any thread is started.
  package static let signals = endingSignals + [reloadSignal]

  private let settings: GatewaySettings
  let logger: Logger
  private let lifecycle = Lifecycle()
  private let server: HTTPServer
  private let loops: [EventLoop]
  let sessions: SessionDirectory
  /// Addresses in use, with the ports that were picked: for clients, and for management.
  package let clientAddresses: [SocketAddress]
  package let managementAddresses: [SocketAddress]
  private let socketFiles: [SocketFile]

  /// How long the last log lines may take to be written: a pipe that nobody reads must not keep the process from ending.
  package static let logPatience = TimeSpan.seconds(2)

  /// Starts everything. The session begins to dial; nothing waits for it.
  package init(_ plan: GatewayPlan, logger: Logger) throws(StartError) {
    let settings = plan.settings
    self.settings = settings
    self.logger = logger
    let descriptorLimit = Sockets.raiseDescriptorLimit()
    let loopCount = settings.loops > 0 ? settings.loops : ProcessorCount.usable
    do throws(SystemError) {
      var loops: [EventLoop] = []
      for index in 0..<loopCount { loops.append(try EventLoop(index: index)) }
      self.loops = loops
    } catch {
      throw StartError(message: "cannot start an event loop: \(error)")
    }

    let metrics = MetricsRegistry()
    ProcessMetrics.register(in: metrics)
    for planned in plan.sessions where planned.settings.value.tls.verification == .offForTestsOnly {
      logger.warning(
        "the upstream's certificate is not verified: anyone on the path can read and change everything",
        [.text("session", planned.name)])
    }
    let dials = DialGate(settings.dials)
    sessions = SessionDirectory(
      plan.sessions.map { planned in
        Session(
          planned.name, planned.settings, retention: planned.retention, logger: logger, metrics: metrics, dials: dials)
      })

    let clients = try Self.bind(plan.clients, loops: loopCount)
    let management = try Self.bind(plan.management, loops: 1)
    clientAddresses = clients.map(\.address)
    managementAddresses = management.map(\.address)
    socketFiles = (clients + management).compactMap(\.file)

    let descriptors = DescriptorBudget(
      limit: descriptorLimit, inUse: ProcessInformation.openDescriptors(), loops: loopCount,
      sessions: plan.sessions.count,
      clients: settings.http.connections, management: settings.http.managementConnections)
    if let warning = descriptors.warning {
      logger.warning(
        "fewer connections are accepted than the settings allow",
        [
          .text("reason", warning), .number("connections", descriptors.clients),
          .number("management_connections", descriptors.management),
        ])
    }
    let httpMetrics = HTTPServerMetrics(metrics)
    server = HTTPServer(
      settings.http, HTTPServer.ConnectionLimits(clients: descriptors.clients, management: descriptors.management),
      logger: logger, metrics: httpMetrics)
    let api = APIShared(
      settings, access: Access(BrowserAccess(settings.http)), sessions: sessions, lifecycle: lifecycle,
      registry: metrics,
      openConnections: httpMetrics.openConnections, version: DrawbridgeVersion.text)
    server.start(clients: clients, management: management, on: loops) { API(api, loopIndex: $0.index) }
    sessions.start(on: loops)
    let network = settings.network
    if network.changes == .watch {
      NetworkWatcher.start(settle: network.settle, logger: logger, metrics: metrics, on: loops[0]) { [sessions] in
        sessions.networkChanged($0)
      }
    }
    lifecycle.enter(.serving)
    for address in clientAddresses {
      logger.info("listening", [.text("listener", "api"), .text("address", address.description)])
    }
    for address in managementAddresses {
      logger.info("listening", [.text("listener", "management"), .text("address", address.description)])
    }
  }

  private static func bind(_ addresses: [SocketAddress], loops: Int) throws(StartError) -> [BoundListener] {
    var result: [BoundListener] = []
    for address in addresses {
      do throws(SystemError) {
        result.append(try BoundListener(address, loops: loops))
      } catch {
        throw StartError(message: "cannot listen on \(address): \(error)")
      }
    }
    return result
  }

  // MARK: Ending

  /// Sleeps until a signal asks for the end, and then ends in order: stop accepting, answer held polls, send what is
  /// queued within its time, close the upstream with 1001. A second signal ends at once. Answers the exit code.
  /// SIGHUP asks `reload` for a plan from the configuration as it is written now; it returns nil, and has logged why, where that
  /// cannot be used.
  package func runUntilSignalled(reload: () -> GatewayPlan?) -> Int32 {
    var running = RunningSettings(settings)
    var signal = ProcessSignals.wait(for: Self.signals)
    while signal == Self.reloadSignal {
      if let plan = reload() { self.reload(plan, &running) }
      signal = ProcessSignals.wait(for: Self.signals)
    }
    end(after: signal)
    return 0
  }

  private func end(after signal: Int32) {
    logger.info("shutting down", [.text("signal", signal == 15 ? "SIGTERM" : "SIGINT")])
    lifecycle.enter(.draining)
    let limits = settings.shutdown
    for file in socketFiles { file.remove() }
    server.drain(loops)
    sessions.shutDown(flushWithin: limits.flush)
    var ending = Self.wait(atMost: limits.drain) { server.isDrained && sessions.haveEnded }
    if ending == .timedOut {
      // The time of the clients is over. That of the sessions began together with it, and may be longer.
      let closing = settings.configuredSessions.map(\.configuration.upstream.session.limits.closing).max() ?? .zero
      let left = limits.flush + closing - limits.drain
      ending = Self.wait(atMost: left) { sessions.haveEnded }
      if ending == .reached, !server.isDrained { ending = .timedOut }
    }
    // Nothing is sent any more, also where a second signal or the time ended it all.
    sessions.refuseMessages()
    for loop in loops { loop.stop() }
    for loop in loops { loop.join() }
    sessions.abandon()
    logger.info("stopped", [.flag("orderly", ending == .reached)])
    Self.writeLastLines(of: logger, atMost: ending == .interrupted ? .milliseconds(100) : Self.logPatience)
  }

  /// Waits until the log is written, but not for ever, and no longer than until the next signal.
  package static func writeLastLines(of logger: Logger, atMost limit: TimeSpan = logPatience) {
    _ = wait(atMost: limit) { logger.isWritten }
  }

  private enum Ending { case reached, timedOut, interrupted }

  /// Waits until `isReached`, or a signal asks to end at once.
  private static func wait(atMost limit: TimeSpan, until isReached: () -> Bool) -> Ending {
    var left = limit
    let step = TimeSpan.milliseconds(5)
    while !isReached() {
      guard left > .zero else { return .timedOut }
      if ProcessSignals.wait(for: endingSignals, atMost: step) != nil { return .interrupted }
      left = left - step
    }
    return .reached
  }
}
