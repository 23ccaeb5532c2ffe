import ByteStreams
import Host
import Reactor
import TLSEngine

/// Creates the TLS contexts of several sessions before they start. Sessions with equal TLS settings get the same
/// context, and each file is read once. A context with the system's certificates takes about 60 ms and 0.85 MiB.
package struct TLSContextCache: ~Copyable {
  /// The maximum time for reading all files is the timeout of one file plus this time. Without this limit, each of many
  /// files on a mount that hangs would take a whole timeout, one after the other.
  private static var extraTime: TimeSpan { .seconds(10) }

  private typealias Outcome = Result<RefreshableTLSContext, TLSSettingsError>

  private let limit: TimeSpan
  private let deadline: MonotonicTime
  private var contexts: [(settings: TLSClientSettings, outcome: Outcome)] = []
  private var files: [String: RequiredFile.Outcome] = [:]

  /// `fileTimeout`: the longest file timeout of the sessions.
  package init(fileTimeout: TimeSpan) {
    limit = fileTimeout + Self.extraTime
    deadline = ProcessInformation.monotonicTime() + limit
  }

  /// The context for these settings. Blocks.
  package mutating func context(
    for settings: TLSClientSettings, fileTimeout: TimeSpan
  ) throws(TLSSettingsError) -> RefreshableTLSContext {
    if let entry = contexts.first(where: { $0.settings == settings }) { return try entry.outcome.get() }
    do throws(TLSSettingsError) {
      var contents: [String: [UInt8]] = [:]
      for file in settings.files {
        contents[file.path] = try RefreshableTLSContext.content(of: file, try read(file, within: fileTimeout))
      }
      let context = try RefreshableTLSContext(
        settings, contents, within: min(fileTimeout, deadline - ProcessInformation.monotonicTime()))
      contexts.append((settings, .success(context)))
      return context
    } catch {
      contexts.append((settings, .failure(error)))
      throw error
    }
  }

  private mutating func read(
    _ file: (role: TLSSettingsError.Role, path: String), within fileTimeout: TimeSpan
  ) throws(TLSSettingsError) -> RequiredFile.Outcome {
    if let outcome = files[file.path] { return outcome }
    let remaining = deadline - ProcessInformation.monotonicTime()
    guard remaining > .zero else {
      throw .unreadable(
        file.role, file: file.path, reason: "reading the files of all sessions took more than \(limit.text)")
    }
    let time = min(fileTimeout, remaining)
    let outcome = RequiredFile.work(file.path, atMost: TLSClientSettings.fileSizeLimit, within: time).wait(atMost: time)
    files[file.path] = outcome
    return outcome
  }
}
