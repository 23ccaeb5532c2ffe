import ByteStreams
import Configuration
import Logging
import Metrics
import Reactor
import UpstreamSession
protocol UpstreamSink: AnyObject, Sendable {
  func received(_ payload: Span<UInt8>, isText: Bool, now: Int64)
  func lost()
}
struct SessionSnapshot: Sendable {
  var state = "stub"; var url = ""; var lastFailure: String?; var queuedMessages = 0; var queuedBytes = 0
  func write(now: MonotonicTime, into output: inout ByteQueue) { output.append("{}") }
}
final class SessionHandle: Sendable {
  init(settings: GatewaySettings.Upstream, logger: Logger, metrics: MetricsRegistry, sink: any UpstreamSink)
    throws(StartError)
  {}
  func start(on loop: EventLoop) {}
  var isReady: Bool { false }
  var hasEnded: Bool { true }
  func post(_ payload: SharedBytes, isText: Bool, timeToLive: TimeSpan?, topic: String?, now: MonotonicTime)
    -> EnqueueResult
  { .full }
  func deliveryState(_ sequence: UInt64) -> DeliveryState? { nil }
  func snapshot() -> SessionSnapshot { SessionSnapshot() }
  func close(flushWithin: TimeSpan) {}
}
