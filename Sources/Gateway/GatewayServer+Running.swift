import Configuration
import Host
import Logging
import Reactor

/// A configuration as it was read.
package struct ReadConfiguration: Sendable {
  /// The plan; nil if the configuration is invalid, in which case the log contains the errors.
  package let plan: GatewayPlan?
  package let files: ConfigurationFiles

  package init(plan: GatewayPlan?, files: ConfigurationFiles) {
    self.plan = plan
    self.files = files
  }
}

/// The main thread between start and shutdown.
extension GatewayServer {
  enum ReloadReason {
    case signal
    case changedFile
  }

  /// Waits for a shutdown signal, shuts down in order, and returns the exit code. While it waits, it applies the result
  /// of `read` on each SIGHUP and on each change of the configuration's files.
  ///
  /// - Parameter files: the files of the configuration with which the gateway was started.
  package func runUntilSignalled(_ files: ConfigurationFiles, read: () -> ReadConfiguration) -> Int32 {
    var running = RunningSettings(settings)
    let watch = ConfigurationWatch(logger)
    var known = files
    watch.update(running.effective.reload, known)
    func reload(because reason: ReloadReason) {
      supervisor.notify(.reloading)
      let configuration = read()
      let isApplied = configuration.plan.map { self.reload($0, because: reason, &running) } ?? false
      // Credential files take effect at once on SIGHUP, before the reload is reported, so a new token is then valid.
      // After other events, a file takes effect when it is known to be complete.
      if reason == .signal { credentialFiles?.reload() }
      reloadStatus.record(isApplied)
      // An invalid configuration may not have been read to its end, so the files of the previous configuration stay
      // watched, too.
      let files = configuration.files
      known = isApplied ? files : known.merging(files) { _, new in new }
      watch.update(running.effective.reload, known)
      supervisor.notify(.ready)
    }
    while true {
      switch events.wait(until: watch.deadline, orReadable: watch.descriptor) {
      case .signal(Self.reloadSignal): reload(because: .signal)
      case .signal(let signal):
        shutDown(after: signal, running.effective)
        return 0
      case .readable: watch.readEvents()
      case .deadline:
        if !watch.takeChanges().isDisjoint(with: known.keys) { reload(because: .changedFile) }
      case .woken: break
      }
    }
  }
}
