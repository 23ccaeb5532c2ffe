import ByteStreams
import Configuration
import Glibc
import Logging
import Metrics
import Outbox
import Reactor
import Synchronization
import Upstream
import UpstreamSession
import WebSocketCodec

/// One connection of one session, from the dial to the close; the server decides when it is over.
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

  /// Runs it to its end. With `echoes` every message goes back.
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

  /// The last text that came; what the server answers to a question.
  var lastText: String? { state.withLock { $0.lastText } }

  /// The session as it is configured for everybody, its limits included, but for what would blur the judgement: pings that
  /// nobody asked for, a second dial (each dial runs its case anew), and a queue too small for what is to be sent back.
  private static func settings(for url: WebSocketURL) -> UpstreamSettings {
    var settings = UpstreamSettings(urls: [url])
    settings.session.liveness.isEnabled = false
    settings.session.backoff.strategy = .fixed(.hours(1))
    settings.session.backoff.quickRedial = .hours(1)
    settings.outbox.maximumMessages = 100_000
    settings.outbox.maximumBytes = 1 << 30
    settings.outbox.confirms = false
    return settings
  }

  /// A case is over when its connection is; one that never opened is over too, and the server will say so.
  private func waitForEnd(of session: SessionHandle) {
    while !state.withLock({ $0.isOver }), session.snapshot().lastFailure == nil { usleep(500) }
    session.close(flushWithin: .zero)
    while !session.hasEnded { usleep(500) }
  }

  // MARK: UpstreamSink

  var flushesAfterEachMessage: Bool { echoes }

  func received(_ payload: Span<UInt8>, kind: MessageKind, now: Int64) {
    let session = state.withLock { state in
      if kind.isText, !echoes { state.lastText = payload.text() }
      return state.session
    }
    guard echoes, let session else { return }
    _ = session.post(SharedBytes(copying: payload), kind: kind, timeToLive: nil, now: .zero)
  }

  func connectionLost() { state.withLock { $0.isOver = true } }
}
