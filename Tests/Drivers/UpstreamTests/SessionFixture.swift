import ByteStreams
import Dialing
import Glibc
import Host
import Journal
import Logging
import LoopbackSupport
import Metrics
import Outbox
import Synchronization
import Testing
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

@testable import Upstream
@testable import Reactor

/// Creates a test's dialer.
struct DialerOfTest: Sendable {
  let make: @Sendable (LoopContext) -> any Dialer
}

/// A session on its own loop with a test upstream.
final class SessionFixture: UpstreamSink {
  private static let resolver = Resolver()

  struct Received: Sendable {
    var messages: [[UInt8]] = []
    var losses = 0
  }

  private let received = Mutex(Received())
  private let renderings = Atomic(0)
  private let isHoldingRenderings = Atomic(false)
  let loop: EventLoop
  private let holder = Mutex<SessionHandle?>(nil)

  /// - Parameters:
  ///   - owner: the client that has created the session; nil if it is configured.
  ///   - declaration: replaces the protocol that the settings name.
  ///   - opened: the journal that stores the session; nil if the session is not stored.
  ///   - dialing: creates a dialer that replaces the network.
  init(
    _ url: String, attemptLimiter: ConcurrentAttemptLimiter = ConcurrentAttemptLimiter(), owner: String? = nil,
    protocol declaration: (any ProtocolDeclaration)? = nil, opened: OpenedJournal? = nil,
    dialing: DialerOfTest? = nil, _ change: (inout UpstreamSettings) -> Void = { _ in }
  ) throws {
    loop = try EventLoop(index: 0)
    var settings = UpstreamSettings(urls: [try WebSocketURL(url)])
    settings.session.backoff.strategy = .fixed(.milliseconds(5))
    settings.session.backoff.quickReconnect = .milliseconds(5)
    change(&settings)
    let logger = Logger(level: .error, format: .text)
    let shared = try declaration.map { try PreparedSettings(settings, declaration: $0) } ?? PreparedSettings(settings)
    let metrics = MetricsRegistry()
    let handle =
      if let owner {
        SessionHandle(
          shared, ownedBy: owner, sink: self, logger: logger, sharedMetrics: UpstreamMetrics(metrics, session: ""),
          attemptLimiter: attemptLimiter, lineLimiter: LogLineLimiter())
      } else {
        SessionHandle(
          shared, named: "default", sink: self, logger: logger, metrics: metrics, attemptLimiter: attemptLimiter,
          opened: opened)
      }
    holder.withLock { $0 = handle }
    if let dialing {
      handle.start(on: loop, makeDialer: dialing.make)
    } else {
      handle.start(on: loop, resolver: Self.resolver)
    }
  }

  var handle: SessionHandle {
    guard let handle = holder.withLock({ $0 }) else { preconditionFailure("no session") }
    return handle
  }

  func received(_ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, now: Int64) {
    let bytes = [UInt8](copying: payload)
    received.withLock { $0.messages.append(bytes) }
  }

  /// Records the message like `received`, and notes that it was rendered ahead.
  func rendered(_ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, now: Int64) -> RenderedPush? {
    let bytes = [UInt8](copying: payload)
    renderings.add(1, ordering: .acquiringAndReleasing)
    while isHoldingRenderings.load(ordering: .acquiring) { usleep(100) }
    return { [self] _ in received.withLock { $0.messages.append(bytes) } }
  }

  /// The number of large messages that were rendered.
  var renderingCount: Int { renderings.load(ordering: .acquiring) }

  /// Whether the rendering of large messages waits.
  func holdRenderings(_ isHolding: Bool) { isHoldingRenderings.store(isHolding, ordering: .releasing) }

  func connectionLost() { received.withLock { $0.losses += 1 } }

  var messages: [String] { received.withLock { $0.messages.map { String(decoding: $0, as: UTF8.self) } } }
  var losses: Int { received.withLock { $0.losses } }
  var state: SessionState { handle.snapshot().state }

  var now: MonotonicTime { MonotonicTime(nanoseconds: SystemCall.monotonicNanoseconds()) }

  @discardableResult
  func post(_ text: String, ttl: TimeSpan? = .seconds(30)) -> EnqueueResult {
    post(Array(text.utf8), ttl: ttl)
  }

  @discardableResult
  func post(_ bytes: [UInt8], ttl: TimeSpan? = .seconds(30)) -> EnqueueResult {
    return handle.post(PostedMessages(.one(ByteString(bytes)), kind: .text, timeToLive: ttl), now: now).result
  }

  /// Posts all of these messages before the loop does anything else.
  func postInOneTurn(_ texts: [String], ttl: TimeSpan? = nil) {
    let handle = handle
    loop.submit { context in
      for text in texts {
        _ = handle.post(
          PostedMessages(.one(ByteString(Array(text.utf8))), kind: .text, timeToLive: ttl), now: context.now)
      }
      return nil
    }
  }

  /// Posts one of these messages per turn of the loop.
  func postOneATurn(_ texts: [String]) {
    let handle = handle
    loop.submit { OneATurn(loop: $0, handle: handle, texts: texts) }
  }

  /// Polls until `fact` is true. The test fails after a minute.
  func until(_ what: String, sourceLocation: SourceLocation = #_sourceLocation, _ fact: () -> Bool) async throws {
    try await LoopbackSupport.until("\(what) (\(state))", sourceLocation: sourceLocation, fact)
  }

  /// Ends the session and its loop.
  func finish() async throws {
    handle.close(flushWithin: .zero)
    try await until("the session has ended") { handle.hasEnded }
    loop.stop()
    loop.join()
  }
}

private final class OneATurn: LoopTask {
  private let loop: LoopContext
  private let handle: SessionHandle
  private let texts: [String]

  init(loop: LoopContext, handle: SessionHandle, texts: [String]) {
    self.loop = loop
    self.handle = handle
    self.texts = texts
  }

  func run() async {
    for text in texts {
      _ = handle.post(PostedMessages(.one(ByteString(Array(text.utf8))), kind: .text, timeToLive: nil), now: loop.now)
      await loop.yieldTurn()
    }
  }
}
