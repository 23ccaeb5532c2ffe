import API
import Host
import Metrics

/// The outcome of the last reload, as metrics and for `GET /v1/reload`. The start counts as a successful reload.
struct ReloadStatus: Sendable {
  private let isSuccess: Gauge
  private let successTime: Gauge
  /// Makes the main thread reload the configuration, as SIGHUP does.
  let control = ReloadControl { ProcessSignals.raise(GatewayServer.reloadSignal) }

  init(_ metrics: MetricsRegistry) {
    isSuccess = metrics.gauge(
      "drawbridge_config_reload_success", "1 if the configuration that was read last is in effect, 0 if it was refused."
    )
    successTime = metrics.gauge(
      "drawbridge_config_reload_success_time_seconds",
      "When a configuration last took effect, in seconds since the Unix epoch.")
    show(true)
  }

  func record(_ success: Bool) {
    show(success)
    control.record(isValid: success)
  }

  private func show(_ success: Bool) {
    isSuccess.set(success ? 1 : 0)
    if success { successTime.set(Int(ProcessInformation.wallClockSeconds())) }
  }
}
