import ByteStreams
import Configuration
import DemoUpstream
import Gateway
import Host
import Logging
import Reactor
import UpstreamProtocol
import WebSocketCodec

/// The command line of the gateway.
@main
enum DrawbridgeCommand {
  /// Exit codes, after sysexits.h.
  enum ExitCode {
    static let ok: Int32 = 0
    static let usage: Int32 = 64
    static let data: Int32 = 65
    static let noInput: Int32 = 66
    static let unavailable: Int32 = 69
    static let output: Int32 = 74
    static let configuration: Int32 = 78
  }

  static func main() {
    StandardStreams.openMissing()
    ProcessSignals.ignoreBrokenPipes()
    let arguments = Array(CommandLine.arguments.dropFirst())
    Terminal.exit(run(arguments))
  }

  private static func run(_ arguments: [String]) -> Int32 {
    do throws(UsageError) {
      let invocation = try Invocation(arguments)
      if invocation.showsHelp {
        Terminal.print(Help.text(for: invocation.command))
        return ExitCode.ok
      }
      switch invocation.command {
      case nil:
        Terminal.printError(Help.text(for: nil))
        return ExitCode.usage
      case .version:
        Terminal.print("drawbridge \(DrawbridgeVersion.text)")
        return ExitCode.ok
      case .checkConfig: return withPlan(invocation) { outcome, _, _ in printSettings(outcome) }
      case .store: return try StoreCommand.run(invocation)
      case .tail: return TailCommand.run(invocation)
      case .token: return TokenCommand.run(invocation)
      case .healthcheck: return withSettings(invocation) { HealthCheck.run($0) }
      case .serve: return serve(invocation)
      case .demo: return demo(invocation)
      }
    } catch {
      Terminal.printError("drawbridge: \(error.message)")
      return ExitCode.usage
    }
  }

  // MARK: Settings

  /// Settings that a command sets itself, each time the configuration is read.
  private struct SettingOverrides {
    /// Paths of the settings that are not read.
    var ignoredPaths: Set<String> = []
    /// Sockets that replace configured listeners.
    var inherited = InheritedSockets.none
    var apply: (inout GatewaySettings) -> Void = { _ in }
  }

  /// Runs `body` with the plan, or reports the errors of the configuration.
  private static func withPlan(
    _ invocation: Invocation, overriding overrides: SettingOverrides = SettingOverrides(),
    _ body: (ConfigurationLoader.Outcome, GatewayPlan, ConfigurationFiles) -> Int32
  ) -> Int32 {
    withOutcome(invocation, ignoring: overrides.ignoredPaths) { outcome, files throws(ConfigurationErrors) in
      body(outcome, try plan(for: outcome, overriding: overrides), files)
    }
  }

  private static func withSettings(
    _ invocation: Invocation, _ body: (ConfigurationLoader.Outcome) -> Int32
  ) -> Int32 {
    withOutcome(invocation) { outcome, _ throws(ConfigurationErrors) in
      try outcome.check()
      return body(outcome)
    }
  }

  private static func withOutcome(
    _ invocation: Invocation, ignoring ignored: Set<String> = [],
    _ body: (ConfigurationLoader.Outcome, ConfigurationFiles) throws(ConfigurationErrors) -> Int32
  ) -> Int32 {
    let files = FileRecorder()
    let content: [UInt8]?
    do throws(FileError) {
      content = try invocation.configurationFile.map(files.contents)
    } catch {
      Terminal.printError("drawbridge: \(invocation.configurationFile ?? "") cannot be read: \(error)")
      return ExitCode.noInput
    }
    do throws(ConfigurationErrors) {
      let outcome = read(invocation, ignoring: ignored, content, files)
      return try body(outcome, files.fingerprints)
    } catch {
      return report(error)
    }
  }

  private static func report(_ errors: ConfigurationErrors) -> Int32 {
    for line in errors.errors { Terminal.printError("drawbridge: \(line)") }
    return ExitCode.configuration
  }

  /// - Parameter content: the content of the configuration file.
  private static func read(
    _ invocation: Invocation, ignoring ignored: Set<String>, _ content: [UInt8]?, _ files: FileRecorder
  ) -> ConfigurationLoader.Outcome {
    ConfigurationLoader.read(
      file: invocation.configurationFile, environment: SystemFile.environment(), flags: invocation.flags,
      ignored: ignored,
      readFile: { $0 == invocation.configurationFile ? content : try? files.contents(of: $0) })
  }

  /// Makes the plan from the settings. Throws the errors of the loader and of the plan together.
  private static func plan(
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
  private static func reload(
    _ invocation: Invocation, overriding overrides: SettingOverrides, _ logger: Logger
  ) -> ReadConfiguration {
    let files = FileRecorder()
    let plan = reload(invocation, overriding: overrides, logger, files)
    return ReadConfiguration(plan: plan, files: files.fingerprints)
  }

  private static func reload(
    _ invocation: Invocation, overriding overrides: SettingOverrides, _ logger: Logger, _ files: FileRecorder
  ) -> GatewayPlan? {
    let content: [UInt8]?
    do throws(FileError) {
      content = try invocation.configurationFile.map(files.contents)
    } catch {
      logger.error(
        "cannot read the new configuration; the old one remains in effect",
        [.text("file", invocation.configurationFile ?? ""), .text("reason", error.description)])
      return nil
    }
    do throws(ConfigurationErrors) {
      return try plan(
        for: read(invocation, ignoring: overrides.ignoredPaths, content, files), overriding: overrides, isReload: true)
    } catch {
      for line in error.errors {
        logger.error(
          "the new configuration is not valid; the old one remains in effect", [.text("reason", line.description)])
      }
      return nil
    }
  }

  // MARK: Commands

  private static func printSettings(_ outcome: ConfigurationLoader.Outcome) -> Int32 {
    for setting in outcome.displayedSettings {
      let origin = outcome.origins[setting.path].map { "  # \($0)" } ?? ""
      Terminal.print("\(setting.path): \(outcome.displayText(of: setting))\(origin)")
    }
    for warning in outcome.warnings { Terminal.printError("drawbridge: warning: \(warning)") }
    return ExitCode.ok
  }

  private static func makeLogger(_ settings: GatewaySettings.Log) -> Logger {
    let format: Logger.Format =
      switch settings.format {
      case .text: Logger.defaultFormat() == .coloredText ? .coloredText : .text
      case .json: .json
      case .auto: Logger.defaultFormat()
      }
    let logger = Logger(level: settings.level, format: format)
    logger.start()
    return logger
  }

  private static func serve(_ invocation: Invocation) -> Int32 {
    let supervisor = ServiceNotifier.take()
    let inherited: InheritedSockets
    do throws(InheritedSockets.Problem) {
      inherited = try InheritedSockets.take()
    } catch {
      Terminal.printError("drawbridge: \(error)")
      return ExitCode.unavailable
    }
    let overrides = SettingOverrides(inherited: inherited)
    return withPlan(invocation, overriding: overrides) { outcome, plan, files in
      var listeners = plan.settings.listeners
      if let unused = listeners.use(inherited).first {
        Terminal.printError(
          "drawbridge: inherited socket \(unused.descriptor) ('\(unused.name)', \(unused.address)) is for no listener: "
            + "name it http, https or management (FileDescriptorName= in systemd), or list its address in listeners.http"
        )
        return ExitCode.configuration
      }
      return run(
        invocation, plan, files, outcome.warnings, overriding: overrides, inherited: inherited, supervisor: supervisor
      ) { _ in }
    }
  }

  private static func demo(_ invocation: Invocation) -> Int32 {
    // Threads inherit the mask, so block the signals before the upstream starts its thread.
    ProcessSignals.block(GatewayServer.handledSignals)
    let upstream: DemoUpstream
    do throws(SystemError) {
      upstream = try DemoUpstream()
    } catch {
      Terminal.printError("drawbridge: cannot start the demo upstream: \(error)")
      return ExitCode.unavailable
    }
    defer { upstream.stop() }
    let url: WebSocketURL
    do throws(WebSocketURLError) {
      url = try WebSocketURL("ws://\(upstream.address)/")
    } catch {
      preconditionFailure("the demo upstream's address makes a URL")
    }
    let overrides = SettingOverrides(ignoredPaths: [
      "upstream.url", "upstream.fallback_urls", "upstream.proxy", "sessions", "profiles",
      "status.payloads",
    ]) {
      $0.session.upstream.url = url
      // The payloads are the demo's own.
      $0.status.payloads = true
    }
    return withPlan(invocation, overriding: overrides) { outcome, plan, files in
      run(invocation, plan, files, outcome.warnings, overriding: overrides) { server in
        guard let client = server.clientAddresses.first else { return }
        let management = server.managementAddresses.first
        let isSocketIO = plan.settings.session.upstream.conventions.kind == .socketIO
        Terminal.print(
          Help.demoLines(
            client: client, management: management, upstream: upstream.address, isSocketIO: isSocketIO))
      }
    }
  }

  private static func run(
    _ invocation: Invocation, _ plan: GatewayPlan, _ files: ConfigurationFiles, _ warnings: [ConfigurationError],
    overriding overrides: SettingOverrides, inherited: InheritedSockets = .none, supervisor: ServiceNotifier = .none,
    onStart: (GatewayServer) -> Void
  ) -> Int32 {
    ProcessSignals.block(GatewayServer.handledSignals)
    let logger = makeLogger(plan.settings.log)
    for warning in warnings {
      logger.warning("configuration warning", [.text("place", warning.place), .text("reason", warning.message)])
    }
    do throws(StartError) {
      let server = try GatewayServer(plan, inherited: inherited, supervisor: supervisor, logger: logger)
      onStart(server)
      return server.runUntilSignalled(files) { reload(invocation, overriding: overrides, logger) }
    } catch {
      GatewayServer.flushLog(logger)
      // Standard error may be a pipe without a reader, so signals must be able to end the process.
      ProcessSignals.unblock(GatewayServer.handledSignals)
      Terminal.printError("drawbridge: \(error.message)")
      return error.concernsConfiguration ? ExitCode.configuration : ExitCode.unavailable
    }
  }
}
