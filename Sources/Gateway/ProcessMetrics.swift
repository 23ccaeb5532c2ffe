import Metrics
import Reactor

/// The process metrics that Prometheus dashboards expect, and the build info.
enum ProcessMetrics {
  static func register(in metrics: MetricsRegistry) {
    let started = Double(ProcessInformation.wallClockSeconds())
    metrics.gauge("process_start_time_seconds", "Start of the process, UNIX time.") { started }
    metrics.gauge("process_resident_memory_bytes", "Resident memory.") { Double(ProcessInformation.residentBytes()) }
    metrics.gauge("process_open_fds", "Open file descriptors.") { Double(ProcessInformation.openDescriptors()) }
    metrics.counter("process_cpu_seconds_total", "User and system time.") { ProcessInformation.processorSeconds() }
    metrics.gauge("drawbridge_build_info", "Always 1; the version is a label.", [("version", DrawbridgeVersion.text)]) {
      1
    }
  }
}
