import ByteStreams
import Configuration
import Reactor
import TLSEngine

/// Makes the TLS contexts of several sessions before they start. Sessions with equal TLS settings share a context, which takes some 60 ms
/// and 0.85 MiB with the system's certificates, and each file is read once.
package struct SecurityPlan: ~Copyable {
  /// What reading all files may take beyond the timeout of one that hangs. On a hung mount each of many files would take its whole timeout
  /// otherwise, one after the other.
  private static var allowance: TimeSpan { .seconds(10) }

  private typealias Outcome = Result<UpstreamSecurity, TLSSettingsError>

  private let limit: TimeSpan
  private let deadline: MonotonicTime
  private var contexts: [(settings: TLSClientSettings, outcome: Outcome)] = []
  private var files: [String: NeededFile.Outcome] = [:]

  /// `fileTimeout`: the longest of the sessions.
  package init(fileTimeout: TimeSpan) {
    limit = fileTimeout + Self.allowance
    deadline = ProcessInformation.monotonicTime() + limit
  }

  /// The context for these settings, which have a `wss` URL. Blocks.
  mutating func security(for settings: UpstreamSettings) throws(TLSSettingsError) -> UpstreamSecurity {
    if let made = contexts.first(where: { $0.settings == settings.tls }) { return try made.outcome.get() }
    do throws(TLSSettingsError) {
      var contents: [String: [UInt8]] = [:]
      for file in settings.tls.files {
        contents[file.path] = try UpstreamSecurity.content(of: file, try read(file, within: settings.fileTimeout))
      }
      let security = try UpstreamSecurity(
        settings.tls, contents, within: min(settings.fileTimeout, deadline - ProcessInformation.monotonicTime()))
      contexts.append((settings.tls, .success(security)))
      return security
    } catch {
      contexts.append((settings.tls, .failure(error)))
      throw error
    }
  }

  private mutating func read(
    _ file: (role: TLSSettingsError.Role, path: String), within fileTimeout: TimeSpan
  ) throws(TLSSettingsError) -> NeededFile.Outcome {
    if let outcome = files[file.path] { return outcome }
    let left = deadline - ProcessInformation.monotonicTime()
    guard left > .zero else {
      throw .unreadable(
        file.role, file: file.path, reason: "reading the files of all sessions took more than \(limit.text)")
    }
    let time = min(fileTimeout, left)
    let outcome = NeededFile.work(file.path, atMost: TLSClientSettings.fileSizeLimit, within: time).wait(atMost: time)
    files[file.path] = outcome
    return outcome
  }
}
