import API
import Access
import ByteStreams
import Configuration
import Host
import Logging
import Metrics
import Reactor
import Threading

/// The files of tokens and keys. They are read at the start, and again when they have changed.
package final class CredentialFiles: Sendable {
  /// Time between two reads of the files. The files are small, so each read compares the whole contents. The comparison
  /// detects every change, even on file systems that do not report changes. New contents take effect when two reads in
  /// a row have found them, so that a file can be written in place.
  private static var interval: TimeSpan { .seconds(1) }
  /// Timeout for a file that is a FIFO or a device.
  private static var timeout: TimeSpan { .seconds(5) }

  /// The content of a file, or why it cannot be read; nil if there is no such file in the settings.
  private typealias Contents = Result<[UInt8], SettingProblem>?

  private let settings: AuthenticationSettings
  private let state: AccessState
  private let logger: Logger
  private let isValid: Gauge
  private let loadedAt: Gauge
  /// Stays locked while the files are read.
  private let last = Locked(Memory())

  private struct Memory {
    var tokens = FileMemory()
    var keys = FileMemory()
    /// Whether contents have been judged since the start. The first read usually finds the contents that were in effect
    /// from the start, so its success is not logged.
    var isJudged = false
  }

  /// The state of one file. Each file is judged alone: an invalid file of keys does not keep a removed token in effect.
  private struct FileMemory {
    /// The contents of the last read, in effect or not.
    private var found: Contents = nil
    /// The contents that are in effect, or that were found invalid.
    private var decided: Contents = nil
    var isValid = true

    init() {}

    /// Whether `new` must be judged now.
    mutating func isChange(_ new: Contents, ifStable: Bool) -> Bool {
      let isStable = new == found
      found = new
      guard new != decided, isStable || !ifStable else { return false }
      decided = new
      return true
    }
  }

  /// Watches the files of `settings` for as long as the process runs.
  static func watch(
    _ settings: AuthenticationSettings, for state: AccessState, logger: Logger, metrics: MetricsRegistry
  ) -> CredentialFiles? {
    guard settings.tokens != nil || settings.jwt.keys != nil else { return nil }
    let files = CredentialFiles(settings, state, logger, metrics)
    let isStarted = DetachedThread.start(named: "credentials") {
      while true {
        // The list of signals is empty, so this call only sleeps.
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
      "drawbridge_access_files_valid", "1 if the present files of tokens and keys are in effect, else 0.")
    loadedAt = metrics.gauge(
      "drawbridge_access_files_loaded_timestamp_seconds",
      "UNIX time when the files of tokens and keys last took effect.")
    noteSuccess()
  }

  /// Reads the files, and uses the changed files. An invalid file changes nothing and is logged once. Blocks. Can be
  /// called on any thread.
  ///
  /// - Parameter ifStable: whether new contents take effect only if the previous read found the same contents.
  func reload(ifStable: Bool = false) {
    last.withLock { last in
      let (tokens, keys) = (Self.readTokens(settings), Self.readKeys(settings))
      let hasNewTokens = last.tokens.isChange(tokens, ifStable: ifStable)
      let hasNewKeys = last.keys.isChange(keys, ifStable: ifStable)
      guard hasNewTokens || hasNewKeys else { return }
      let current = state.credentials
      var new = (tokens: current.tokens, jwt: current.jwt)
      if hasNewTokens {
        last.tokens.isValid = judge(settings.tokens, isFirst: !last.isJudged) { () throws(SettingProblem) in
          new.tokens = try Self.table(tokens, settings, sharingGrantsOf: current.tokens)
        }
      }
      if hasNewKeys {
        last.keys.isValid = judge(settings.jwt.keys, isFirst: !last.isJudged) { () throws(SettingProblem) in
          new.jwt = try Self.jwt(keys, settings, logger)
        }
      }
      last.isJudged = true
      if hasNewTokens && last.tokens.isValid || hasNewKeys && last.keys.isValid {
        state.use(Credentials(tokens: new.tokens, jwt: new.jwt, replacing: current))
      }
      if last.tokens.isValid && last.keys.isValid { noteSuccess() } else { isValid.set(0) }
    }
  }

  /// Calls `read`, and returns whether it succeeded. Logs an error. Logs a success, too, unless `isFirst`.
  private func judge(_ file: String?, isFirst: Bool, _ read: () throws(SettingProblem) -> Void) -> Bool {
    do throws(SettingProblem) {
      try read()
      if !isFirst { logger.info("a file of tokens or keys was read again", [.text("file", file ?? "")]) }
      return true
    } catch {
      logger.error(
        "a new file of tokens or keys is not valid; its previous content remains in effect",
        [.text("reason", error.description)])
      return false
    }
  }

  private func noteSuccess() {
    isValid.set(1)
    loadedAt.set(Int(ProcessInformation.wallClockMilliseconds() / 1_000))
  }

  // MARK: Reading

  /// Reads the files at the start. Blocks.
  static func load(_ settings: AuthenticationSettings) throws(SettingProblem) -> Credentials {
    Credentials(
      tokens: try table(readTokens(settings), settings, sharingGrantsOf: nil),
      jwt: try jwt(readKeys(settings), settings, nil))
  }

  private static func readTokens(_ settings: AuthenticationSettings) -> Contents {
    read(settings.tokens, atMost: TokenTable.maximumBytes, "authentication.tokens")
  }

  private static func readKeys(_ settings: AuthenticationSettings) -> Contents {
    read(settings.jwt.keys, atMost: KeySet.maximumBytes, "authentication.jwt.keys")
  }

  /// Reads one byte more than the limit, so that a larger file is refused.
  private static func read(_ path: String?, atMost limit: Int, _ key: String) -> Contents {
    guard let path else { return nil }
    do throws(FileError) {
      return .success(try SystemFile.contents(of: path, atMost: limit + 1, within: timeout))
    } catch {
      return .failure(SettingProblem(key, .none, "\(path) cannot be read: \(error)"))
    }
  }

  private static func table(
    _ contents: Contents, _ settings: AuthenticationSettings, sharingGrantsOf previous: TokenTable?
  ) throws(SettingProblem) -> TokenTable? {
    guard let text = try contents?.get() else { return nil }
    do throws(TokenTable.Invalid) {
      return try TokenTable(text, sharingGrantsOf: previous)
    } catch {
      throw SettingProblem("authentication.tokens", .none, "\(settings.tokens ?? ""): \(error)")
    }
  }

  private static func jwt(
    _ contents: Contents, _ settings: AuthenticationSettings, _ logger: Logger?
  ) throws(SettingProblem) -> Credentials.JWT? {
    guard let text = try contents?.get() else { return nil }
    do throws(KeySet.Invalid) {
      let keys = try KeySet(text)
      for warning in keys.warnings {
        logger?.warning("a key is not used", [.text("file", settings.jwt.keys ?? ""), .text("reason", warning)])
      }
      return try Credentials.JWT(
        keys: keys,
        policy: JWTPolicy(
          audiences: settings.jwt.audiences, issuers: settings.jwt.issuers, leeway: settings.jwt.leeway))
    } catch {
      throw SettingProblem("authentication.jwt.keys", .none, "\(settings.jwt.keys ?? ""): \(error)")
    }
  }
}
