import Host
import Metrics

/// The outcome of the last reload, as metrics. The start counts as a success.
struct ReloadStatus: Sendable {
  private let isSuccess: Gauge
  private let successTime: Gauge

  init(_ metrics: MetricsRegistry) {
    isSuccess = metrics.gauge(
      "drawbridge_config_reload_success", "1 if the configuration that was read last is in effect, 0 if it was refused."
    )
    successTime = metrics.gauge(
      "drawbridge_config_reload_success_time_seconds",
      "When a configuration last took effect, in seconds since the Unix epoch.")
    record(true)
  }

  func record(_ success: Bool) {
    isSuccess.set(success ? 1 : 0)
    if success { successTime.set(Int(ProcessInformation.wallClockSeconds())) }
  }
}
