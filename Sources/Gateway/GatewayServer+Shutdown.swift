import API
import ByteStreams
import Configuration
import HTTPServer
import Host
import Logging
import Peers
import Reactor
import Sessions
import UpstreamSession

/// The shutdown, in steps with time limits.
extension GatewayServer {
  /// Time to send the last responses after the sessions have ended, for example to calls without a reply.
  static var lastResponses: TimeSpan { .seconds(1) }
  /// Interval between the releases of two held requests or streams. It spreads the return of their clients over time.
  /// The interval is shorter if the releases would otherwise take more than half of `shutdown.drain`.
  private static var releaseInterval: TimeSpan { .milliseconds(5) }
  /// How long requests of other gateways get 421 after the sessions were released. Within this time, the other gateways
  /// learn of the release from Redis. That takes one notification and one read, a few milliseconds in one network. This
  /// gateway does not read a request that arrives after this time. The gateway that sent the request must then assume
  /// that the request may have been executed.
  private static var lastReferrals: TimeSpan { .milliseconds(150) }
  /// Interval of log lines about a step that still waits.
  private static var progressInterval: TimeSpan { .seconds(2) }
  /// Timeout for writing the last log lines: a pipe without a reader must not prevent the process from exiting.
  package static var logFlushTimeout: TimeSpan { .seconds(2) }

  /// Shuts down:
  ///
  /// 1. `/readyz` fails, and this gateway acquires no more sessions. All requests are served for `shutdown.pause`.
  /// 2. Within `shutdown.drain`: the listeners of clients close. Held requests and streams end one after another, calls
  ///    end when they have their replies, and each connection closes after its response. Requests of webhooks end.
  /// 3. Queued messages are sent within `shutdown.flush`. Before this step, all requests that could post messages have
  ///    got their responses, except requests that did not arrive completely in time. The messages of such a request are
  ///    refused, since nothing can be sent any more.
  /// 4. The upstream connections close with 1001, and the requests that waited for the end of a session get their
  ///    responses.
  /// 5. Sessions that several gateways share are released to the next holders. Until the other gateways know of the
  ///    release, their requests for these sessions get 421.
  ///
  /// A second signal ends the wait of each step.
  func shutDown(after signal: Int32, _ settings: GatewaySettings) {
    let limits = settings.shutdown
    logger.info("shutting down", [.text("signal", signal == 15 ? "SIGTERM" : "SIGINT")])
    supervisor.notify(.stopping)
    lifecycle.enter(.draining)
    replicas?.drain()
    var result = WaitResult.reached
    if limits.pause > .zero {
      logger.info("readiness fails, requests are served", [.seconds("seconds", limits.pause)])
      result = wait(
        atMost: limits.pause,
        reporting: { rest in
          logger.info(
            "requests are still served",
            [.number("connections", server.clientConnections), .seconds("seconds_left", rest)])
        }, until: { false })
    }
    // The drain closes the clients' listeners and removes their socket files. After the drain, files at these paths may
    // belong to the next process, and must not be removed.
    var files = clientSocketFiles + managementSocketFiles
    if result != .interrupted {
      files = managementSocketFiles
      result = drain(within: limits.drain)
    }
    if result != .interrupted {
      // Requests that were incomplete at the end of the drain get a little more time.
      result = flush(within: limits.flush, closing: settings.longestClosing)
      let last = result == .interrupted ? result : wait(atMost: Self.lastResponses) { server.isDrained && haveMovedOn }
      if last != .reached { result = last }
    }
    // From now on nothing is sent upstream, even if a second signal or the timeout ended the wait.
    sessions.refuseMessages()
    for file in files { file.remove() }
    let areReleased = releaseSessions()
    if replicas != nil, result != .interrupted { _ = wait(atMost: Self.lastReferrals) { false } }
    for loop in loops { loop.stop() }
    for loop in loops { loop.join() }
    sessions.abandon()
    replicas?.stop()
    let isStored = closeStore()
    logger.info("stopped", [.flag("orderly", result == .reached && areReleased && isStored)])
    Self.flushLog(logger, timeout: result == .interrupted ? .milliseconds(100) : Self.logFlushTimeout)
  }

  private func drain(within limit: TimeSpan) -> WaitResult {
    let connections = server.clientConnections
    logger.info("draining", [.number("connections", connections), .seconds("seconds", limit)])
    for file in clientSocketFiles { file.remove() }
    // Waits end in the first half of `limit`. The second half is for sending the last responses.
    let spread = min(limit / 2, Self.releaseInterval * Int64(connections))
    server.drain(loops, releasingOver: spread) { [events] in events.wake() }
    sessions.stopWebhooks { [events] in events.wake() }
    return wait(
      atMost: limit,
      reporting: { rest in
        logger.info(
          "waiting for clients",
          [
            .number("connections", server.clientConnections), .number("calls", sessions.callCount),
            .flag("webhooks", !sessions.webhooksAreIdle), .seconds("seconds_left", rest),
          ])
      }, until: { server.isDrained && sessions.webhooksAreIdle })
  }

  private func flush(within limit: TimeSpan, closing: TimeSpan) -> WaitResult {
    logger.info(
      "sending queued messages",
      [.number("connections", server.clientConnections), .seconds("seconds", limit)])
    peers?.whenHoldingEnds { [events] in events.wake() }
    replicas?.leave()
    sessions.shutDown(flushWithin: limit) { [events] in events.wake() }
    return wait(
      atMost: limit + closing,
      reporting: { rest in
        logger.info(
          "waiting for upstreams",
          [
            .number("sessions", sessions.endingCount), .number("messages", sessions.sums.queuedMessages),
            .seconds("seconds_left", rest),
          ])
      }, until: { sessions.haveEnded })
  }

  /// Whether all requests that other gateways forwarded to this gateway, and that waited here, have been sent to the
  /// next holders.
  private var haveMovedOn: Bool { peers?.holdsRequests != true }

  /// Releases the sessions, so that other gateways can acquire them at once. The loops still run: another gateway may
  /// send a request before it knows of the release, and gets a referral to the next holder. If this gateway did not
  /// read that request, the other gateway could not know whether the request was executed. Returns whether the sessions
  /// were released.
  private func releaseSessions() -> Bool {
    guard let replicas else { return true }
    replicas.leave()
    // The connections end before the release is sent, since the next holder may connect to the upstream as soon as it
    // learns of the release.
    sessions.abort { [events] in events.wake() }
    _ = wait(atMost: Self.lastResponses) { sessions.haveEnded }
    sessions.abandon()
    replicas.release { [events] in events.wake() }
    if wait(atMost: Self.storeClosing, until: { replicas.isReleased }) == .reached { return true }
    logger.error("the sessions were not released in time: other gateways take them after 'store.lease'", [])
    return false
  }

  /// Waits until the log is written, the timeout expires or a signal arrives.
  package static func flushLog(_ logger: Logger, timeout: TimeSpan = logFlushTimeout) {
    var left = timeout
    let step = TimeSpan.milliseconds(5)
    while !logger.isWritten, left > .zero {
      if ProcessSignals.wait(for: shutdownSignals, atMost: step) != nil { return }
      left = left - step
    }
  }

  private enum WaitResult { case reached, timedOut, interrupted }

  /// Waits until `isReached` returns true (checked after each wake-up), the limit expires, or a shutdown signal
  /// arrives. Calls `report` with the time that is left every `progressInterval`.
  private func wait(
    atMost limit: TimeSpan, reporting report: (TimeSpan) -> Void = { _ in }, until isReached: () -> Bool
  ) -> WaitResult {
    let deadline = ProcessInformation.monotonicTime() + limit
    var nextReport = ProcessInformation.monotonicTime() + Self.progressInterval
    while !isReached() {
      switch events.wait(until: min(deadline, nextReport)) {
      case .deadline:
        let now = ProcessInformation.monotonicTime()
        guard now < deadline else { return isReached() ? .reached : .timedOut }
        report(deadline - now)
        nextReport = now + Self.progressInterval
      case .signal(Self.reloadSignal):
        logger.info("the gateway is shutting down: the configuration is not reloaded", [])
      case .signal: return .interrupted
      case .woken, .readable: break
      }
    }
    return .reached
  }
}
