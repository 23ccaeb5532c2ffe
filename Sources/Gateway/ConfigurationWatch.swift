import ByteStreams
import Configuration
import Host
import Logging

/// The files of a configuration, each with its fingerprint from before it was read; nil for a path that is not a
/// regular file.
package typealias ConfigurationFiles = [String: FileFingerprint?]

/// Watches the files of the configuration while `reload` is `watch`. If that is not possible, the log says so, and
/// SIGHUP still works.
final class ConfigurationWatch {
  private let logger: Logger
  private var watcher: FileWatcher?

  init(_ logger: Logger) { self.logger = logger }

  var descriptor: Int32? { watcher?.descriptor }
  var deadline: MonotonicTime { watcher?.deadline ?? .distantFuture }

  func readEvents() { watcher?.readEvents(now: ProcessInformation.monotonicTime()) }

  func takeChanges() -> Set<String> { watcher?.takeChanges(now: ProcessInformation.monotonicTime()) ?? [] }

  /// Watches these files from now on, or none, depending on `mode`.
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
