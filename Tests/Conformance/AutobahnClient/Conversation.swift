import ByteStreams
import Glibc
import Logging
import Metrics
import Outbox
import Reactor
import Synchronization
import Upstream
import UpstreamSession
import WebSocketCodec

/// One connection of one session, from the attempt to the close. The server decides when the connection ends.
final class Conversation: UpstreamSink {
  private struct State: ~Copyable {
    var session: SessionHandle?
    var lastText: String?
    var isOver = false
  }
  private let state = Mutex(State())
  private let echoes: Bool

  static let logger = Logger(level: .error, format: .text)
  private static let resolver = Resolver()

  private init(echoes: Bool) { self.echoes = echoes }

  /// Runs the conversation to its end. With `echoes`, the session sends every message back.
  static func run(_ url: String, on loop: EventLoop, echoes: Bool = false) -> Conversation {
    let conversation = Conversation(echoes: echoes)
    do {
      let settings = Self.settings(for: try WebSocketURL(url))
      let session = try SessionHandle(settings, sink: conversation, logger: logger, metrics: MetricsRegistry())
      conversation.state.withLock { $0.session = session }
      session.start(on: loop, resolver: resolver)
      conversation.waitForEnd(of: session)
    } catch {
      logger.error("not a URL", [.text("url", url), .text("reason", String(describing: error))])
      logger.flush()
    }
    return conversation
  }

  /// The last text received, such as the server's reply to a query.
  var lastText: String? { state.withLock { $0.lastText } }

  /// Default settings and limits, except for the settings that would affect the results. There are no pings and no
  /// second connection, since each connection runs the case again, and the queue is large enough for all echoes.
  private static func settings(for url: WebSocketURL) -> UpstreamSettings {
    var settings = UpstreamSettings(urls: [url])
    settings.session.liveness.isEnabled = false
    settings.session.backoff.strategy = .fixed(.hours(1))
    settings.session.backoff.quickReconnect = .hours(1)
    settings.outbox.maximumMessages = 100_000
    settings.outbox.maximumBytes = 1 << 30
    settings.outbox.confirms = false
    return settings
  }

  /// A case ends when its connection ends, or when the connection cannot be opened. The server reports the case in both
  /// events.
  private func waitForEnd(of session: SessionHandle) {
    while !state.withLock({ $0.isOver }), session.snapshot().lastFailure == nil { usleep(500) }
    session.close(flushWithin: .zero)
    while !session.hasEnded { usleep(500) }
  }

  // MARK: UpstreamSink

  var flushesAfterEachMessage: Bool { echoes }

  func received(_ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, now: Int64) {
    let session = state.withLock { state in
      if kind.isText, !echoes { state.lastText = payload.text() }
      return state.session
    }
    guard echoes, let session else { return }
    _ = session.post(PostedMessages(.one(ByteString(copying: payload)), kind: kind, timeToLive: nil), now: .zero)
  }

  func connectionLost() { state.withLock { $0.isOver = true } }
}
