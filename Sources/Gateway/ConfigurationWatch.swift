import ByteStreams
import Configuration
import Logging
import Reactor

/// The regular files from which a configuration was read, each with its fingerprint before it was read. Nil: it could not be read as one.
package typealias ConfigurationFiles = [String: FileFingerprint?]

/// Watches the files of the configuration while `reload` is `watch`. Where that is not possible, the log says so, and SIGHUP remains.
final class ConfigurationWatch {
  private let logger: Logger
  private var watcher: FileWatcher?

  init(_ logger: Logger) { self.logger = logger }

  var descriptor: Int32? { watcher?.descriptor }
  var deadline: MonotonicTime { watcher?.deadline ?? .distantFuture }

  func readEvents() { watcher?.readEvents(now: ProcessInformation.monotonicTime()) }

  func takeChanges() -> Set<String> { watcher?.takeChanges(now: ProcessInformation.monotonicTime()) ?? [] }

  /// Watches these files from now on, or none.
  func update(_ mode: GatewaySettings.Reload, _ files: ConfigurationFiles) {
    guard mode == .watch, !files.isEmpty else {
      watcher = nil
      return
    }
    do throws(SystemError) {
      if watcher == nil { watcher = try FileWatcher() }
      try watcher?.watch(files, now: ProcessInformation.monotonicTime())
    } catch {
      logger.warning(
        "cannot watch the configuration for changes: send SIGHUP after a change", [.text("reason", error.description)])
    }
  }
}
