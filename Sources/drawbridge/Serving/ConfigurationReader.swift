import ByteStreams
import Configuration
import Gateway
import Glibc
import Logging
import Host
import Reactor
import Sessions
import Upstream
import WebSocketCodec

/// Where a command reads the configuration from: a built-in profile, a file, the environment, and flags.
struct ConfigurationSource {
  static let fileFlag = Flag("config", .file, "YAML file with settings (or DRAWBRIDGE_CONFIG)")
  static let profileFlag = Flag(
    "profile", .text("NAME"), "begin with a built-in profile; 'drawbridge profiles' lists them (or DRAWBRIDGE_PROFILE)")
  static let setFlag = Flag(
    "set", .assignment, "set any setting by its path, such as upstream.heartbeat.interval=10s", isRepeatable: true)

  let file: String?
  let profile: BuiltInProfile?
  let assignments: [(path: String, value: String)]
  let flags: [(name: String, value: String)]

  init(_ arguments: Arguments) throws(UsageError) {
    file = arguments[Self.fileFlag] ?? Self.variable("DRAWBRIDGE_CONFIG")
    // The demo has an upstream of its own. The other commands must read the same configuration as 'serve'.
    let name =
      arguments.command.name == DemoCommand.name
      ? nil : arguments[Self.profileFlag] ?? Self.variable("DRAWBRIDGE_PROFILE")
    if let name { profile = try BuiltInProfile.named(name) } else { profile = nil }
    assignments = arguments.all(Self.setFlag).map { text in
      let path = text.prefix { $0 != "=" }
      return (String(path), String(text.dropFirst(path.count + 1)))
    }
    flags = arguments.settings
  }

  /// The name of the source in messages.
  var title: String { file ?? (profile == nil ? "the configuration" : profileTitle) }

  /// The name of the built-in profile in messages.
  var profileTitle: String { "profile \(profile?.name ?? "")" }

  /// The value of a variable. An empty variable is treated as if it were not set, since an empty value is the only way
  /// to override a variable of a container's environment.
  private static func variable(_ name: String) -> String? {
    SystemFile.environment()[name].flatMap { $0.isEmpty ? nil : $0 }
  }

  /// The flags of a command that reads settings.
  ///
  /// - Parameter names: the settings that have a flag, without `--profile` and `--set`; nil for all.
  static func flags(_ names: Set<String>? = nil) -> [Flag] {
    (names == nil ? [profileFlag, fileFlag, setFlag] : [fileFlag])
      + Setting.all.compactMap { setting in
        guard let flag = setting.flag, names?.contains(flag) ?? true else { return nil }
        return Flag(flag, .text(placeholders[flag] ?? "VALUE"), setting.summary)
      }
  }

  /// The placeholder in the help for a flag's value.
  private static let placeholders = [
    "kind": "websocket|socketio", "listen": "ADDRESS", "listen-https": "ADDRESS", "management": "ADDRESS",
    "loops": "NUMBER", "access": "auto|none", "upstream": "URL", "subprotocol": "NAME", "header": "'NAME: VALUE'",
    "proxy": "URL", "ca-file": "FILE", "log-level": "LEVEL", "log-format": "FORMAT",
  ]
}

/// Reads the configuration of the commands that need one, and reports its errors.
enum ConfigurationReader {
  /// Settings that a command sets itself each time that the configuration is read.
  struct SettingOverrides {
    /// Paths of the settings that are not read.
    var ignoredPaths: Set<String> = []
    /// Sockets that replace configured listeners.
    var inherited = InheritedSockets.none
    var apply: (inout GatewaySettings) -> Void = { _ in }
  }

  /// Runs `body` with the plan, or reports the errors of the configuration.
  static func withPlan(
    _ source: ConfigurationSource, overriding overrides: SettingOverrides = SettingOverrides(),
    _ body: (ConfigurationLoader.Outcome, GatewayPlan, ConfigurationFiles) -> Int32
  ) -> Int32 {
    withOutcome(source, ignoring: overrides.ignoredPaths) { outcome, files throws(ConfigurationErrors) in
      try checkAddress(of: source, outcome)
      return body(outcome, try plan(for: outcome, overriding: overrides), files)
    }
  }

  /// The address in most built-in profiles is an example. Another program, or nobody, would get the connections.
  private static func checkAddress(
    of source: ConfigurationSource, _ outcome: ConfigurationLoader.Outcome
  ) throws(ConfigurationErrors) {
    guard let profile = source.profile, !profile.hasAddress, let url = outcome.settings.session.upstream.url,
      let origin = outcome.origins["upstream.url"], origin.hasPrefix("\(source.profileTitle):")
    else { return }
    let reason =
      "the address in a profile is only an example: give the address of your service, as in --upstream \(url.redacted)"
    throw outcome.errors(with: SettingProblems([SettingProblem("upstream.url", .none, reason)]))
  }

  static func withSettings(
    _ source: ConfigurationSource, _ body: (ConfigurationLoader.Outcome) -> Int32
  ) -> Int32 {
    withOutcome(source) { outcome, _ throws(ConfigurationErrors) in
      try outcome.check()
      return body(outcome)
    }
  }

  static func withOutcome(
    _ source: ConfigurationSource, ignoring ignored: Set<String> = [],
    _ body: (ConfigurationLoader.Outcome, ConfigurationFiles) throws(ConfigurationErrors) -> Int32
  ) -> Int32 {
    let files = FileRecorder()
    let content: [UInt8]?
    do throws(FileError) {
      content = try source.file.map(files.contents)
    } catch {
      Terminal.printError("drawbridge: \(source.file ?? "") cannot be read: \(error)")
      return ExitCode.noInput
    }
    do throws(ConfigurationErrors) {
      let outcome = read(source, ignoring: ignored, content, files)
      return try body(outcome, files.fingerprints)
    } catch {
      return report(error)
    }
  }

  static func report(_ errors: ConfigurationErrors) -> Int32 {
    for line in errors.errors { Terminal.printError("drawbridge: \(line)") }
    return ExitCode.configuration
  }

  /// The folders for relative paths. Paths in the file are relative to the folder of the file, and other paths to the
  /// working directory. nil if the working directory is not known, for example because it was removed.
  private static var paths: ConfigurationPaths? {
    guard let folder = unsafe getcwd(nil, 0) else { return nil }
    defer { unsafe free(folder) }
    return unsafe ConfigurationPaths(workingDirectory: String(cString: folder)) { unsafe access($0, F_OK) == 0 }
  }

  /// - Parameter content: the content of the configuration file.
  static func read(
    _ source: ConfigurationSource, ignoring ignored: Set<String>, _ content: [UInt8]?, _ files: FileRecorder
  ) -> ConfigurationLoader.Outcome {
    ConfigurationLoader.read(
      profile: source.profile.map { ConfigurationLoader.BuiltIn(title: source.profileTitle, text: $0.text) },
      file: source.file, environment: SystemFile.environment(), assignments: source.assignments, flags: source.flags,
      ignored: ignored, paths: paths,
      readFile: { $0 == source.file ? content : try? files.contents(of: $0) })
  }

  /// Makes the plan from the settings. Throws the errors of the loader and of the plan together.
  static func plan(
    for outcome: ConfigurationLoader.Outcome, overriding overrides: SettingOverrides, isReload: Bool = false
  ) throws(ConfigurationErrors) -> GatewayPlan {
    var settings = outcome.settings
    settings.listeners.use(overrides.inherited)
    overrides.apply(&settings)
    let plan: GatewayPlan
    do throws(SettingProblems) {
      plan = try GatewayPlan(settings, inherited: overrides.inherited, isReload: isReload) {
        !outcome.hasErrors(in: $0)
      }
    } catch {
      throw outcome.errors(with: error)
    }
    try outcome.check()
    return plan
  }

  /// Reads the current configuration. If it is invalid, the log contains the errors.
  static func reload(
    _ source: ConfigurationSource, overriding overrides: SettingOverrides, _ logger: Logger
  ) -> ReadConfiguration {
    let files = FileRecorder()
    let plan = reload(source, overriding: overrides, logger, files)
    return ReadConfiguration(plan: plan, files: files.fingerprints)
  }

  static func reload(
    _ source: ConfigurationSource, overriding overrides: SettingOverrides, _ logger: Logger, _ files: FileRecorder
  ) -> GatewayPlan? {
    let content: [UInt8]?
    do throws(FileError) {
      content = try source.file.map(files.contents)
    } catch {
      logger.error(
        "cannot read the new configuration; the old one remains in effect",
        [.text("file", source.file ?? ""), .text("reason", error.description)])
      return nil
    }
    do throws(ConfigurationErrors) {
      let outcome = read(source, ignoring: overrides.ignoredPaths, content, files)
      try checkAddress(of: source, outcome)
      return try plan(for: outcome, overriding: overrides, isReload: true)
    } catch {
      for line in error.errors {
        logger.error(
          "the new configuration is not valid; the old one remains in effect", [.text("reason", line.description)])
      }
      return nil
    }
  }
}
