import ByteStreams
import Configuration
import Consumers
import Inbox
import Logging
import Metrics
import Reactor
import Synchronization
import Upstream
import UpstreamSession

/// A session with one upstream: the connection and its outgoing messages (`upstream`), and the pushes kept for clients (`inbox`).
///
/// Its connection is served by one event loop. Can be used from any thread.
package final class Session: Sendable {
  /// The name of the session that the top-level `upstream` setting configures. Its paths need no name.
  package static let defaultName = SessionName.default

  package let name: String
  /// What the paths below this session begin with: `/v1/sessions/{name}/`, or `/v1/` for the default session.
  package let path: String
  package let inbox: SharedInbox
  package let consumers: SharedConsumers
  package let upstream: SessionHandle
  /// The prefix of this session's delivery ids: `d-`, the epoch of its inbox, and a dot.
  package let deliveryPrefix: String
  private let sink: InboxSink

  /// - Parameters:
  ///   - metrics: the session registers its metrics here, labelled with its name.
  ///   - attemptLimiter: limits connection attempts per host, for all sessions of the process.
  package init(
    _ name: String, _ settings: SharedSettings, retention: Retention, logger: Logger, metrics: MetricsRegistry,
    attemptLimiter: SharedAttemptLimiter
  ) {
    var generator = SystemRandomNumberGenerator()
    let epoch = Epoch(using: &generator)
    self.name = name
    path = name == Self.defaultName ? "/v1/" : "/v1/sessions/\(name)/"
    inbox = SharedInbox(epoch: epoch, retention: retention)
    consumers = SharedConsumers(inbox: inbox)
    sink = InboxSink(inbox, consumers)
    upstream = SessionHandle(
      settings, named: name, sink: sink, logger: logger.with([.text("session", name)]), metrics: metrics,
      attemptLimiter: attemptLimiter)
    var prefix = ByteQueue()
    prefix.append("d-" as StaticString)
    epoch.write(into: &prefix)
    prefix.append("." as StaticString)
    deliveryPrefix = prefix.bytes.text()
    registerMetrics(in: metrics)
  }

  private func registerMetrics(in metrics: MetricsRegistry) {
    let labels = [(name: "session", value: name)]
    let (inbox, upstream, consumers) = (inbox, upstream, consumers)
    metrics.gauge("drawbridge_buffer_messages", "Pushes retained for clients.", labels) {
      Double(inbox.summary.count)
    }
    metrics.gauge("drawbridge_buffer_bytes", "Size of the retained pushes, in bytes.", labels) {
      Double(inbox.summary.bytes)
    }
    metrics.counter("drawbridge_pushes_total", "Pushes received from the upstream and numbered.", labels) {
      Double(inbox.summary.last.sequence)
    }
    metrics.gauge("drawbridge_session_ready", "1 while messages can be sent to the upstream, otherwise 0.", labels) {
      upstream.isReady ? 1 : 0
    }
    metrics.gauge(
      "drawbridge_session_desired", "1 while the session should be open, 0 after an operator has closed it.", labels
    ) { upstream.snapshot().desired == .up ? 1 : 0 }
    metrics.gauge("drawbridge_queue_messages", "Messages queued for the upstream.", labels) {
      Double(upstream.snapshot().queuedMessages)
    }
    metrics.gauge("drawbridge_queue_bytes", "Size of the messages queued for the upstream, in bytes.", labels) {
      Double(upstream.snapshot().queuedBytes)
    }
    // Clients choose the names of consumers, so no metric has them as labels.
    metrics.gauge("drawbridge_consumers", "Consumers.", labels) { Double(consumers.statuses.count) }
    metrics.gauge(
      "drawbridge_consumer_lag_messages", "Pushes after the position of the consumer that is furthest behind.", labels
    ) { Double(consumers.statuses.map(\.lag).max() ?? 0) }
    metrics.gauge("drawbridge_consumer_leases", "Pushes leased to workers, of all consumers.", labels) {
      Double(consumers.statuses.reduce(0) { $0 + $1.leases })
    }
    metrics.gauge("drawbridge_consumer_dead_letters", "Dead letters kept, of all consumers.", labels) {
      Double(consumers.statuses.reduce(0) { $0 + $1.deadLetters })
    }
  }

  /// Starts connecting. All I/O of the session happens on `loop`.
  func start(on loop: EventLoop, resolver: Resolver) {
    let (inbox, upstream, consumers) = (inbox, upstream, consumers)
    loop.submit { context in SessionExpiry(inbox, consumers, upstream, loop: context) }
    loop.submit { context in ConsumerClock(consumers, loop: context) }
    upstream.start(on: loop, resolver: resolver)
  }

  /// Applies other limits to the pushes that are kept.
  package func change(_ retention: Retention) {
    if inbox.change(retention, now: ProcessInformation.monotonicTime()) { consumers.pushed() }
  }

  /// Shuts the session down: sends queued messages for up to `limit`, then closes the connection. This does not count as a gap.
  ///
  /// - Parameter end: called on the session's loop when that is complete.
  func shutDown(flushWithin limit: TimeSpan, whenEnded end: @escaping @Sendable () -> Void) {
    sink.sessionWillEnd()
    upstream.close(flushWithin: limit, whenEnded: end)
  }
}

/// Appends the messages from the upstream to the inbox.
private final class InboxSink: UpstreamSink {
  private let inbox: SharedInbox
  private let consumers: SharedConsumers
  private let isEnding = Atomic(false)

  init(_ inbox: SharedInbox, _ consumers: SharedConsumers) {
    self.inbox = inbox
    self.consumers = consumers
  }

  func sessionWillEnd() { isEnding.store(true, ordering: .releasing) }

  func received(_ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, now: Int64) {
    inbox.append(payload, kind: kind, topic: topic, time: now, now: ProcessInformation.monotonicTime())
    consumers.pushed()
  }

  var hasReaders: Bool { inbox.hasReaders || consumers.hasReaders }

  func stateChanged() { if inbox.hasStateReaders { inbox.notifier.notify() } }

  func connectionLost() {
    guard !isEnding.load(ordering: .acquiring) else { return }
    inbox.recordUpstreamGap()
    consumers.pushed()
  }
}

/// Drops expired pushes and late replies, even when no new ones arrive.
private final class SessionExpiry: LoopTask, TimerTarget {
  private static var interval: TimeSpan { .seconds(5) }

  private let inbox: SharedInbox
  private let consumers: SharedConsumers
  private let upstream: SessionHandle
  private let loop: LoopContext

  init(_ inbox: SharedInbox, _ consumers: SharedConsumers, _ upstream: SessionHandle, loop: LoopContext) {
    self.inbox = inbox
    self.consumers = consumers
    self.upstream = upstream
    self.loop = loop
  }

  func run() async { timerFired(0) }

  func timerFired(_ token: Int) {
    // What is dropped may have blocked others of its key, and is a gap.
    if inbox.expire(now: loop.now) { consumers.pushed() }
    upstream.expireCalls(now: loop.now)
    _ = loop.schedule(at: loop.now + Self.interval, self)
  }
}
