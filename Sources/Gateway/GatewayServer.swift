import ByteStreams
import Configuration
import Delivery
import Logging
import Metrics
import Reactor
import Synchronization

/// What keeps the gateway from starting, with the exit code that says so (sysexits.h).
package struct StartError: Error, Sendable {
  package let message: String
  package let exitCode: Int32

  package static func configuration(_ message: String) -> StartError { StartError(message: message, exitCode: 78) }
  package static func unavailable(_ message: String) -> StartError { StartError(message: message, exitCode: 69) }
}

/// The gateway as a whole: starts loops, listeners and the session, and ends them in order.
package final class GatewayServer: Sendable {
  /// Signals that end the process; the main thread takes them.
  package static let endingSignals: [Int32] = [15, 2]
  /// SIGHUP: the configuration is read again.
  package static let reloadSignal: Int32 = 1

  private let shared: GatewayShared
  private let sink: StoreSink
  private let loops: [EventLoop]
  /// Addresses in use, with the ports that were picked: for clients, and for management.
  package let clientAddresses: [SocketAddress]
  package let managementAddresses: [SocketAddress]

  /// Starts everything. The session begins to dial; nothing waits for it.
  package init(_ settings: GatewaySettings, logger: Logger) throws(StartError) {
    let descriptors = Sockets.raiseDescriptorLimit()
    if descriptors < settings.http.connections + 64 {
      logger.warning(
        "the descriptor limit is below http.connections",
        [.number("limit", descriptors), .number("connections", settings.http.connections)])
    }
    let loopCount = settings.loops > 0 ? settings.loops : ProcessorCount.usable
    do throws(SystemError) {
      var loops: [EventLoop] = []
      for index in 0..<loopCount { loops.append(try EventLoop(index: index)) }
      self.loops = loops
    } catch {
      throw .unavailable("cannot start an event loop: \(error)")
    }

    var generator = SystemRandomNumberGenerator()
    let retention = Retention(
      count: settings.delivery.messages, bytes: settings.delivery.bytes, age: settings.delivery.age)
    let store = PushStore(epoch: Epoch(using: &generator), retention: retention)
    let metrics = MetricsRegistry()
    ProcessMetrics.register(in: metrics)
    sink = StoreSink(store)
    let session = try SessionHandle(
      settings: settings.upstream, logger: logger, metrics: metrics, sink: sink,
      dials: DialGate(settings.upstream.dials))
    shared = try GatewayShared(settings: settings, logger: logger, metrics: metrics, store: store, session: session)

    let clients = try Self.bind(settings.listeners.http, key: "listeners.http", loops: loopCount)
    let management = try Self.bind(settings.listeners.management, key: "listeners.management", loops: 1)
    clientAddresses = clients.map(\.address)
    managementAddresses = management.map(\.address)

    for (index, loop) in loops.enumerated() {
      let own = clients.compactMap { index < $0.descriptors.count ? ($0.descriptors[index], $0.address.reach) : nil }
      let ownManagement =
        index == 0 ? management.flatMap { bound in bound.descriptors.map { ($0, bound.address.reach) } } : []
      let shared = self.shared
      loop.submit { context in
        let worker = HTTPWorker(loop: context, shared: shared)
        context.resident = worker
        for (descriptor, reach) in own { Self.serve(descriptor, .client, reach, worker) }
        for (descriptor, reach) in ownManagement { Self.serve(descriptor, .management, reach, worker) }
        return index == 0 ? Housekeeping(loop: context, store: store) : nil
      }
    }
    session.start(on: loops[0])
    let network = settings.upstream.network
    if network.changes == "watch" {
      NetworkWatcher.start(for: session, settle: network.settle, logger: logger, metrics: metrics, on: loops[0])
    }
    shared.enter(.serving)
    for address in clientAddresses {
      logger.info("listening", [.text("listener", "api"), .text("address", address.description)])
    }
    for address in managementAddresses {
      logger.info("listening", [.text("listener", "management"), .text("address", address.description)])
    }
  }

  private static func serve(
    _ descriptor: Int32, _ role: HTTPConnection.Role, _ reach: ListenerReach, _ worker: HTTPWorker
  ) {
    do throws(SystemError) {
      worker.listen(try Channel(descriptor: descriptor, loop: worker.loop), role, reach)
    } catch {
      worker.shared.logger.error("cannot listen", [.text("reason", error.description)])
    }
  }

  private struct Bound {
    let address: SocketAddress
    /// One a loop, except for Unix sockets, which cannot share an address.
    let descriptors: [Int32]
  }

  private static func bind(_ texts: [String], key: String, loops: Int) throws(StartError) -> [Bound] {
    guard !texts.isEmpty else { throw .configuration("'\(key)' is empty: give at least one address") }
    var result: [Bound] = []
    for text in texts {
      guard let wanted = ListenerAddress.parse(text) else {
        throw .configuration("'\(text)' in '\(key)' is no address: it takes \(ListenerAddress.expectation)")
      }
      do throws(SystemError) {
        if case .unix = wanted {
          result.append(Bound(address: wanted, descriptors: [try Sockets.listen(on: wanted, sharedPort: false)]))
          continue
        }
        try Sockets.claim(wanted)
        let first = try Sockets.listen(on: wanted, sharedPort: true)
        let address = try Sockets.localAddress(of: first)
        var descriptors = [first]
        for _ in 1..<max(1, loops) { descriptors.append(try Sockets.listen(on: address, sharedPort: true)) }
        result.append(Bound(address: address, descriptors: descriptors))
      } catch {
        throw .unavailable("cannot listen on \(text): \(error)")
      }
    }
    return result
  }

  // MARK: Ending

  /// Sleeps until a signal asks for the end, and then ends in order: stop accepting, answer held polls, send what is
  /// queued within its time, close the upstream with 1001. A second signal ends at once. Answers the exit code.
  /// SIGHUP asks `reload` for the settings anew; it answers nil, and has said why, where they cannot be read.
  package func runUntilSignalled(reload: () -> GatewaySettings?) -> Int32 {
    var settings = shared.settings
    var signal = ProcessSignals.wait(for: Self.endingSignals + [Self.reloadSignal])
    while signal == Self.reloadSignal {
      if let read = reload() { settings = self.reload(read, from: settings) }
      signal = ProcessSignals.wait(for: Self.endingSignals + [Self.reloadSignal])
    }
    end(after: signal)
    return 0
  }

  var logger: Logger { shared.logger }
  var session: SessionHandle { shared.session }

  private func end(after signal: Int32) {
    shared.logger.info("shutting down", [.text("signal", signal == 15 ? "SIGTERM" : "SIGINT")])
    shared.enter(.draining)
    sink.end()
    let settings = shared.settings.shutdown
    for loop in loops {
      loop.submit { context in
        (context.resident as? HTTPWorker)?.drain()
        return nil
      }
    }
    shared.session.close(flushWithin: settings.flush)
    let isOrderly = waitForEnd(atMost: max(settings.drain, settings.flush + shared.settings.upstream.timeouts.closing))
    for loop in loops { loop.stop() }
    for loop in loops { loop.join() }
    removeUnixSockets()
    shared.logger.info("stopped", [.flag("orderly", isOrderly)])
    shared.logger.flush()
  }

  private func waitForEnd(atMost limit: TimeSpan) -> Bool {
    var left = limit
    let step = TimeSpan.milliseconds(5)
    while shared.openConnections.current > 0 || !shared.session.hasEnded {
      guard left > .zero else { return false }
      if ProcessSignals.wait(for: Self.endingSignals, atMost: step) != nil { return false }
      left = left - step
    }
    return true
  }

  private func removeUnixSockets() {
    for case .unix(let path) in clientAddresses + managementAddresses { Sockets.removeFile(at: path) }
  }
}

/// What arrives from the upstream goes into the store.
private final class StoreSink: UpstreamSink {
  private let store: PushStore
  private let isEnding = Atomic(false)

  init(_ store: PushStore) { self.store = store }

  /// The process ends: the loss of the upstream that follows is our own doing, and no gap in what this process could tell.
  func end() { isEnding.store(true, ordering: .releasing) }

  func received(_ payload: Span<UInt8>, isText: Bool, now: Int64) {
    store.append(payload, kind: isText ? .text : .binary, now: now)
  }

  func lost() {
    if !isEnding.load(ordering: .acquiring) { store.noteUpstreamGap() }
  }
}

/// Lets old pushes go also when nothing arrives.
private final class Housekeeping: LoopTask, TimerTarget {
  private let loop: LoopContext
  private let store: PushStore

  init(loop: LoopContext, store: PushStore) {
    self.loop = loop
    self.store = store
  }

  func run() async { timerFired(0) }

  func timerFired(_ token: Int) {
    store.expire(now: loop.wallClock)
    _ = loop.schedule(at: loop.now + .seconds(5), self)
  }
}
