import ByteStreams
import Configuration
import Host
import Logging

/// The paths of a configuration's files. The value is the fingerprint that the file had before it was read, or nil if
/// the path does not lead to a regular file.
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

  /// From now on, watches `files` if `mode` is `watch`, and otherwise no files.
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
