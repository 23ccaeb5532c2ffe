import ByteStreams
import Glibc
import Host
import Logging
import Metrics
import Reactor
import Upstream
import UpstreamSession
import WebSocketCodec

/// Opens thousands of upstream sessions in one process, each with its own connection, on one event loop. The tests
/// measure the memory per session with it.
///
///     session-herd ws://127.0.0.1:9001 10000
///
/// prints `starting`, and creates the first session after it has read a line. It prints a JSON object once all sessions
/// are ready or after two minutes, and ends when its standard input ends.
///
/// The sessions connect in small groups, so no attempt waits for others or fails. Each attempt adds transitions to the
/// history of its session, so a slow machine would otherwise measure larger sessions.
@main
enum SessionHerd {
  private static let timeout = Duration.seconds(120)
  private static let groupSize = 64

  static func main() {
    let arguments = CommandLine.arguments
    guard arguments.count == 3, let count = Int(arguments[2]), count > 0 else {
      end("usage: session-herd ws://HOST:PORT COUNT", status: 64)
    }
    Sockets.raiseDescriptorLimit()
    do {
      let url = try WebSocketURL(arguments[1])
      let loop = try EventLoop(index: 0)
      say("starting")
      guard readLine() != nil else { return }
      let began = ContinuousClock.now
      let sessions = try open(count, to: url, on: loop, until: began + timeout)
      let took = (ContinuousClock.now - began) / .seconds(1)
      let first = sessions.count { $0.isReady && $0.snapshot().generation.number == 1 }
      say("{\"ready\":\(sessions.count { $0.isReady }),\"at_first_attempt\":\(first),\"seconds\":\(took)}")
      while getchar() != EOF {}
    } catch {
      end("\(error)", status: 69)
    }
  }

  /// Default settings, except compression, whose memory belongs to zlib, and the limits per host, which would delay the
  /// connections.
  private static func open(
    _ count: Int, to url: WebSocketURL, on loop: EventLoop, until deadline: ContinuousClock.Instant
  ) throws -> [SessionHandle] {
    var settings = UpstreamSettings(urls: [url])
    settings.compression = nil
    var limits = AttemptLimits()
    limits.perSecond = 100_000
    limits.burst = groupSize
    limits.concurrent = groupSize
    let shared = (
      logger: Logger(level: .error, format: .text), metrics: UpstreamMetrics(MetricsRegistry(), session: "herd"),
      attemptLimiter: ConcurrentAttemptLimiter(limits), resolver: Resolver(), sink: DiscardingSink()
    )
    var sessions: [SessionHandle] = []
    sessions.reserveCapacity(count)
    var connecting: [SessionHandle] = []
    for _ in 0..<count {
      let session = try SessionHandle(
        settings, sink: shared.sink, logger: shared.logger, metrics: shared.metrics,
        attemptLimiter: shared.attemptLimiter)
      session.start(on: loop, resolver: shared.resolver)
      sessions.append(session)
      connecting.append(session)
      guard connecting.count == groupSize || sessions.count == count else { continue }
      while connecting.contains(where: { !$0.isReady }), ContinuousClock.now < deadline { usleep(200) }
      connecting.removeAll(keepingCapacity: true)
    }
    return sessions
  }

  private static func say(_ line: String) {
    print(line)
    // A pipe is buffered.
    fflush(nil)
  }

  private static func end(_ message: String, status: Int32) -> Never {
    print("session-herd: \(message)")
    exit(status)
  }
}

/// The upstream of this measurement sends no messages.
private final class DiscardingSink: UpstreamSink {
  func received(_ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, now: Int64) {}
  func connectionLost() {}
}
