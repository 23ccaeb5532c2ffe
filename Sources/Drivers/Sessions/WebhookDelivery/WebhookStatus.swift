import ByteStreams
import HTTPCodec
import Metrics
import Threading
import Webhooks

/// The state of a webhook, for clients.
package struct WebhookStatus: Sendable {
  private let url: HTTPURL
  /// Whether the receiver has responded with 410 since the last reload.
  package let isDisabled: Bool
  /// Number of requests in progress.
  package let inProgress: Int
  /// The time before which no request begins.
  package let pausedUntil: MonotonicTime
  /// The last attempt that failed, and its time in milliseconds since 1970.
  package let lastFailure: (failure: WebhookFailure, time: Int64)?

  init(_ machine: WebhookMachine, lastFailureTime: Int64) {
    url = machine.settings.url
    isDisabled = machine.isDisabled
    inProgress = machine.inProgress
    pausedUntil = machine.pausedUntil
    lastFailure = machine.lastFailure.map { ($0, lastFailureTime) }
  }

  /// Scheme, host and port of the URL. The other parts of the URL may be secret.
  package var origin: String { url.origin }
}

/// The metrics of a session's webhooks since the start, including removed webhooks. All session objects of a slot use
/// one table. Thread-safe.
final class WebhookMetricsTable: Sendable {
  private struct State {
    var metrics: [String: WebhookMetrics] = [:]
    /// The webhooks of the present session. The reference is weak, since these webhooks refer to this table.
    weak var webhooks: SessionWebhooks?
  }

  private let state = Locked(State())
  private let registry: MetricsRegistry
  private let session: String

  init(_ registry: MetricsRegistry, session: String) {
    self.registry = registry
    self.session = session
  }

  /// Reads lags and states from these webhooks from now on.
  func use(_ webhooks: SessionWebhooks) { state.withLock { $0.webhooks = webhooks } }

  func metrics(of name: String) -> WebhookMetrics {
    state.withLock { state in
      if let metrics = state.metrics[name] { return metrics }
      let metrics = WebhookMetrics(registry, session: session, webhook: name) { [weak self] in
        self?.present?.lag(of: name) ?? 0
      } isDisabled: { [weak self] in
        self?.present?.status(of: name)?.isDisabled ?? false
      }
      state.metrics[name] = metrics
      return metrics
    }
  }

  private var present: SessionWebhooks? { state.withLock { $0.webhooks } }
}

/// The metrics of one webhook. They are kept after a reload has removed the webhook, since a time series must not end.
final class WebhookMetrics: Sendable {
  private let attempts: [WebhookResult: Counter]
  private let seconds: Histogram

  /// - Parameters:
  ///   - lag: returns the number of pushes after the position of the webhook's consumer.
  ///   - isDisabled: returns whether the webhook is disabled.
  init(
    _ registry: MetricsRegistry, session: String, webhook: String, lag: @escaping @Sendable () -> UInt64,
    isDisabled: @escaping @Sendable () -> Bool
  ) {
    let labels: MetricsRegistry.Labels = [("session", session), ("webhook", webhook)]
    attempts = Dictionary(
      uniqueKeysWithValues: WebhookResult.allCases.map { result in
        (
          result,
          registry.counter(
            "drawbridge_webhook_attempts_total", "Finished requests to webhooks, by result.",
            labels + [("result", result.rawValue)])
        )
      })
    seconds = registry.histogram(
      "drawbridge_webhook_attempt_seconds", "Duration of requests to webhooks.", labels)
    registry.gauge("drawbridge_webhook_lag_messages", "Pushes after the position of the webhook.", labels) {
      Double(lag())
    }
    registry.gauge(
      "drawbridge_webhook_disabled",
      "1 while the webhook is disabled, because its receiver responded with 410, otherwise 0.", labels
    ) { isDisabled() ? 1 : 0 }
  }

  func ended(_ result: WebhookResult, after time: TimeSpan) {
    attempts[result]?.add()
    seconds.observe(time)
  }
}
