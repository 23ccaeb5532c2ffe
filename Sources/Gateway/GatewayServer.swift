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

/// Why the gateway cannot start with valid settings: the system refuses a resource.
package struct StartError: Error, Sendable {
  package let message: String
}

/// The whole gateway: starts event loops, listeners and sessions, and shuts them down in order. Owned by the main thread.
package final class GatewayServer: Sendable {
  /// Signals that shut the process down. The main thread waits for them.
  package static let shutdownSignals: [Int32] = [15, 2]
  /// SIGHUP reloads the configuration.
  package static let reloadSignal: Int32 = 1
  /// All signals that `runUntilSignalled` handles. They must be blocked before any thread is started.
  package static let handledSignals = shutdownSignals + [reloadSignal]

  private let settings: GatewaySettings
  let logger: Logger
  private let lifecycle = Lifecycle()
  let server: HTTPServer
  private let loops: [EventLoop]
  let sessions: SessionDirectory
  /// Addresses of the listeners, with their actual ports.
  package let clientAddresses: [SocketAddress]
  package let managementAddresses: [SocketAddress]
  private let socketFiles: [SocketFile]

  /// Timeout for writing the last log lines: a pipe that nobody reads must not prevent the process from exiting.
  package static let logFlushTimeout = TimeSpan.seconds(2)

  /// Starts everything. Returns while the sessions are still connecting.
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
        "the upstream's certificate is not verified: anyone on the path can read and change all messages",
        [.text("session", planned.name)])
    }
    let attemptLimiter = SharedAttemptLimiter(settings.dials)
    sessions = SessionDirectory(
      plan.sessions.map { planned in
        Session(
          planned.name, planned.settings, retention: planned.retention, logger: logger, metrics: metrics,
          attemptLimiter: attemptLimiter)
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
        "fewer connections are accepted than configured",
        [
          .text("reason", warning), .number("connections", descriptors.clients),
          .number("management_connections", descriptors.management),
        ])
    }
    let httpMetrics = HTTPServerMetrics(metrics)
    server = HTTPServer(
      settings.http, HTTPServer.ConnectionLimits(clients: descriptors.clients, management: descriptors.management),
      logger: logger, access: settings.log.access, metrics: httpMetrics)
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

  // MARK: Shutdown

  /// Waits for a shutdown signal, then shuts down in order: stop accepting, respond to held polls, send queued messages within
  /// `shutdown.flush`, close the upstream connections with 1001. A second signal exits at once. Returns the exit code.
  ///
  /// On SIGHUP, applies the plan that `reload` returns. It returns nil, and has logged the errors, if the configuration is invalid.
  package func runUntilSignalled(reload: () -> GatewayPlan?) -> Int32 {
    var running = RunningSettings(settings)
    var signal = ProcessSignals.wait(for: Self.handledSignals)
    while signal == Self.reloadSignal {
      if let plan = reload() { self.reload(plan, &running) }
      signal = ProcessSignals.wait(for: Self.handledSignals)
    }
    shutDown(after: signal)
    return 0
  }

  private func shutDown(after signal: Int32) {
    logger.info("shutting down", [.text("signal", signal == 15 ? "SIGTERM" : "SIGINT")])
    lifecycle.enter(.draining)
    let limits = settings.shutdown
    for file in socketFiles { file.remove() }
    // The rest of the time is for the last streams to be sent.
    server.drain(loops, endingStreamsOver: limits.drain / 2)
    sessions.shutDown(flushWithin: limits.flush)
    var result = Self.wait(atMost: limits.drain) { server.isDrained && sessions.haveEnded }
    if result == .timedOut {
      // The time of the clients is over. The sessions may have more time, counted from the same start.
      let closing = settings.configuredSessions.map(\.configuration.upstream.session.limits.closing).max() ?? .zero
      let left = limits.flush + closing - limits.drain
      result = Self.wait(atMost: left) { sessions.haveEnded }
      if result == .reached, !server.isDrained { result = .timedOut }
    }
    // From now on nothing is sent, even if a second signal or the timeout ended the wait.
    sessions.refuseMessages()
    for loop in loops { loop.stop() }
    for loop in loops { loop.join() }
    sessions.abandon()
    logger.info("stopped", [.flag("orderly", result == .reached)])
    Self.flushLog(logger, timeout: result == .interrupted ? .milliseconds(100) : Self.logFlushTimeout)
  }

  /// Waits until the log is written, the timeout expires or a signal arrives.
  package static func flushLog(_ logger: Logger, timeout: TimeSpan = logFlushTimeout) {
    _ = wait(atMost: timeout) { logger.isWritten }
  }

  private enum WaitResult { case reached, timedOut, interrupted }

  /// Waits until `isReached` returns true, the limit expires or a signal arrives.
  private static func wait(atMost limit: TimeSpan, until isReached: () -> Bool) -> WaitResult {
    var left = limit
    let step = TimeSpan.milliseconds(5)
    while !isReached() {
      guard left > .zero else { return .timedOut }
      if ProcessSignals.wait(for: shutdownSignals, atMost: step) != nil { return .interrupted }
      left = left - step
    }
    return .reached
  }
}
