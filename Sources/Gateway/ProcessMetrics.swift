import Host
import Metrics

/// The process metrics that Prometheus dashboards expect, and the build info.
enum ProcessMetrics {
  static func register(in metrics: MetricsRegistry) {
    let started = Double(ProcessInformation.wallClockSeconds())
    metrics.gauge("process_start_time_seconds", "Start time of the process, in seconds since the Unix epoch.") {
      started
    }
    metrics.gauge("process_resident_memory_bytes", "Resident memory size in bytes.") {
      Double(ProcessInformation.residentBytes())
    }
    metrics.gauge("process_open_fds", "Number of open file descriptors.") {
      Double(ProcessInformation.openDescriptors())
    }
    metrics.counter("process_cpu_seconds_total", "User and system CPU time in seconds.") {
      ProcessInformation.processorSeconds()
    }
    metrics.gauge(
      "drawbridge_build_info", "Always 1. The label is the version of this build.",
      [("version", DrawbridgeVersion.text)]
    ) {
      1
    }
  }
}
