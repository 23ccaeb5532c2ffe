import API
import Access
import ByteStreams
import Configuration
import Logging
import Metrics
import Reactor
import Threading

/// The files of tokens and keys: read at the start, and again when they have changed.
package final class CredentialFiles: Sendable {
  /// Time between two looks at the files. They are small, so their contents are compared: that misses no change, also on file systems that report
  /// none. A change takes effect when two looks in a row have found the same, so that a file can be written in place.
  private static var interval: TimeSpan { .seconds(1) }
  /// Timeout for a file that is a FIFO or a device.
  private static var timeout: TimeSpan { .seconds(5) }

  private struct Contents: Equatable {
    var tokens: [UInt8]?
    var keys: [UInt8]?
  }

  private let settings: AuthenticationSettings
  private let state: AccessState
  private let logger: Logger
  private let isValid: Gauge
  private let loadedAt: Gauge
  /// Locked while the files are read.
  private let last = Locked(Memory())

  private struct Memory {
    /// What was found last, in effect or not.
    var found: Result<Contents, SettingProblem>?
    /// What is in effect, or was found to be invalid.
    var decided: Result<Contents, SettingProblem>?
  }

  /// Watches the files of `settings` for as long as the process runs.
  static func watch(
    _ settings: AuthenticationSettings, for state: AccessState, logger: Logger, metrics: MetricsRegistry
  ) -> CredentialFiles? {
    guard settings.tokens != nil || settings.jwt.keys != nil else { return nil }
    let files = CredentialFiles(settings, state, logger, metrics)
    let isStarted = DetachedThread.start(named: "credentials") {
      while true {
        // No signal: it sleeps.
        _ = ProcessSignals.wait(for: [], atMost: interval)
        files.reload(ifStable: true)
      }
    }
    if !isStarted { logger.warning("cannot watch the files of tokens and keys: send SIGHUP after a change") }
    return files
  }

  private init(
    _ settings: AuthenticationSettings, _ state: AccessState, _ logger: Logger, _ metrics: MetricsRegistry
  ) {
    self.settings = settings
    self.state = state
    self.logger = logger
    isValid = metrics.gauge(
      "drawbridge_access_files_valid", "1 if the files of tokens and keys are in effect as they are now, else 0.")
    loadedAt = metrics.gauge(
      "drawbridge_access_files_loaded_timestamp_seconds",
      "UNIX time when the files of tokens and keys last took effect.")
    noteSuccess()
  }

  /// Reads the files, and uses them if they have changed. Invalid files change nothing and are logged once. Blocks; any thread.
  ///
  /// - Parameter ifStable: whether a change is left alone until the next look finds the same.
  func reload(ifStable: Bool = false) {
    last.withLock { last in
      let found = Result { () throws(SettingProblem) in try Self.read(settings) }
      let isStable = found == last.found
      last.found = found
      guard found != last.decided, isStable || !ifStable else { return }
      // The start has read the same, most likely.
      let isFirst = last.decided == nil
      last.decided = found
      do throws(SettingProblem) {
        state.use(try Self.credentials(try found.get(), settings, replacing: state.credentials, logger))
        noteSuccess()
        if !isFirst { logger.info("tokens and keys were read again") }
      } catch {
        isValid.set(0)
        logger.error(
          "the new files of tokens and keys are not valid; the old ones remain in effect",
          [.text("reason", error.description)])
      }
    }
  }

  private func noteSuccess() {
    isValid.set(1)
    loadedAt.set(Int(ProcessInformation.wallClockMilliseconds() / 1_000))
  }

  // MARK: Reading

  /// Reads the files at the start. Blocks.
  static func load(_ settings: AuthenticationSettings) throws(SettingProblem) -> Credentials {
    try credentials(try read(settings), settings, replacing: nil, nil)
  }

  private static func read(_ settings: AuthenticationSettings) throws(SettingProblem) -> Contents {
    Contents(
      tokens: try read(settings.tokens, atMost: TokenTable.maximumBytes, "authentication.tokens"),
      keys: try read(settings.jwt.keys, atMost: KeySet.maximumBytes, "authentication.jwt.keys"))
  }

  /// Reads one byte more than the limit, so that a larger file is refused.
  private static func read(_ path: String?, atMost limit: Int, _ key: String) throws(SettingProblem) -> [UInt8]? {
    guard let path else { return nil }
    do throws(FileError) {
      return try SystemFile.contents(of: path, atMost: limit + 1, within: timeout)
    } catch {
      throw SettingProblem(key, .none, "\(path) cannot be read: \(error)")
    }
  }

  private static func credentials(
    _ contents: Contents, _ settings: AuthenticationSettings, replacing previous: Credentials?, _ logger: Logger?
  ) throws(SettingProblem) -> Credentials {
    var tokens: TokenTable?
    var jwt: Credentials.JWT?
    if let text = contents.tokens {
      do throws(TokenTable.Invalid) {
        tokens = try TokenTable(text, sharingGrantsOf: previous?.tokens)
      } catch {
        throw SettingProblem("authentication.tokens", .none, "\(settings.tokens ?? ""): \(error)")
      }
    }
    if let text = contents.keys {
      do throws(KeySet.Invalid) {
        let keys = try KeySet(text)
        for warning in keys.warnings {
          logger?.warning("a key is not used", [.text("file", settings.jwt.keys ?? ""), .text("reason", warning)])
        }
        jwt = Credentials.JWT(
          keys: keys,
          policy: JWTPolicy(
            audiences: settings.jwt.audiences, issuers: settings.jwt.issuers, leeway: settings.jwt.leeway))
      } catch {
        throw SettingProblem("authentication.jwt.keys", .none, "\(settings.jwt.keys ?? ""): \(error)")
      }
    }
    return Credentials(tokens: tokens, jwt: jwt, replacing: previous)
  }
}
