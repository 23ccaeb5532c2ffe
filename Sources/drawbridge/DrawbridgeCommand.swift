import ByteStreams
import Configuration
import DemoUpstream
import Gateway
import Logging
import Reactor
import WebSocketCodec

/// The command line of the gateway.
@main
enum DrawbridgeCommand {
  /// Exit codes, after sysexits.h.
  enum ExitCode {
    static let ok: Int32 = 0
    static let usage: Int32 = 64
    static let noInput: Int32 = 66
    static let unavailable: Int32 = 69
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
      if invocation.wantsHelp {
        Terminal.print(Help.text(for: invocation.command))
        return ExitCode.ok
      }
      switch invocation.command {
      case nil:
        Terminal.complain(Help.text(for: nil))
        return ExitCode.usage
      case .version:
        Terminal.print("drawbridge \(DrawbridgeVersion.text)")
        return ExitCode.ok
      case .checkConfig: return withPlan(invocation) { outcome, _ in show(outcome) }
      case .healthcheck: return withSettings(invocation) { HealthCheck.run($0) }
      case .serve: return withPlan(invocation) { outcome, plan in run(invocation, plan, outcome.warnings) { _ in } }
      case .demo: return demo(invocation)
      }
    } catch {
      Terminal.complain("drawbridge: \(error.message)")
      return ExitCode.usage
    }
  }

  // MARK: Settings

  /// What a command sets itself, each time the settings are read.
  private struct Change {
    /// Paths of the settings that are not read.
    var ignored: Set<String> = []
    var apply: (inout GatewaySettings) -> Void = { _ in }
  }

  /// Runs `body` with what the settings lead to, or reports what is wrong with them.
  private static func withPlan(
    _ invocation: Invocation, changing change: Change = Change(),
    _ body: (ConfigurationLoader.Outcome, GatewayPlan) -> Int32
  ) -> Int32 {
    withOutcome(invocation, ignoring: change.ignored) { outcome throws(ConfigurationErrors) in
      body(outcome, try plan(for: outcome, changing: change))
    }
  }

  private static func withSettings(
    _ invocation: Invocation, _ body: (ConfigurationLoader.Outcome) -> Int32
  ) -> Int32 {
    withOutcome(invocation) { outcome throws(ConfigurationErrors) in
      try outcome.check()
      return body(outcome)
    }
  }

  private static func withOutcome(
    _ invocation: Invocation, ignoring ignored: Set<String> = [],
    _ body: (ConfigurationLoader.Outcome) throws(ConfigurationErrors) -> Int32
  ) -> Int32 {
    let content: [UInt8]?
    do throws(FileError) {
      content = try invocation.configurationFile.map(contents)
    } catch {
      Terminal.complain("drawbridge: \(invocation.configurationFile ?? "") cannot be read: \(error)")
      return ExitCode.noInput
    }
    do throws(ConfigurationErrors) {
      return try body(read(invocation, ignoring: ignored, content))
    } catch {
      return report(error)
    }
  }

  private static func report(_ errors: ConfigurationErrors) -> Int32 {
    for line in errors.errors { Terminal.complain("drawbridge: \(line)") }
    return ExitCode.configuration
  }

  /// One byte more than a file may have: the loader reports it then.
  private static let fileLimit = ConfigurationLoader.maximumFileBytes + 1

  /// The content of a configuration file, which may be a pipe and is read once.
  private static func contents(of path: String) throws(FileError) -> [UInt8] {
    try SystemFile.contents(of: path, atMost: fileLimit, within: .seconds(10))
  }

  /// `content`: of the configuration file.
  private static func read(
    _ invocation: Invocation, ignoring ignored: Set<String>, _ content: [UInt8]?
  ) -> ConfigurationLoader.Outcome {
    ConfigurationLoader.read(
      file: invocation.configurationFile, environment: SystemFile.environment(), flags: invocation.flags,
      ignored: ignored,
      readFile: { $0 == invocation.configurationFile ? content : SystemFile.bytes(of: $0, atMost: fileLimit) })
  }

  /// What the settings lead to. The errors are those of the loader and those that the plan finds in what could be read.
  private static func plan(
    for outcome: ConfigurationLoader.Outcome, changing change: Change
  ) throws(ConfigurationErrors) -> GatewayPlan {
    var settings = outcome.settings
    change.apply(&settings)
    let plan: GatewayPlan
    do throws(SettingProblems) {
      plan = try GatewayPlan(settings) { !outcome.hasErrors(in: $0) }
    } catch {
      throw outcome.errors(with: error)
    }
    try outcome.check()
    return plan
  }

  /// A plan from the settings as they are written now; nil, and the log says why, where they are wrong.
  private static func reload(
    _ invocation: Invocation, changing change: Change, _ logger: Logger
  ) -> GatewayPlan? {
    let content: [UInt8]?
    do throws(FileError) {
      content = try invocation.configurationFile.map(contents)
    } catch {
      logger.error(
        "the new configuration cannot be read; the old one stays",
        [.text("file", invocation.configurationFile ?? ""), .text("reason", error.description)])
      return nil
    }
    do throws(ConfigurationErrors) {
      return try plan(for: read(invocation, ignoring: change.ignored, content), changing: change)
    } catch {
      for line in error.errors {
        logger.error("the new configuration is wrong; the old one stays", [.text("reason", line.description)])
      }
      return nil
    }
  }

  // MARK: Commands

  private static func show(_ outcome: ConfigurationLoader.Outcome) -> Int32 {
    for setting in outcome.shownSettings {
      let origin = outcome.origins[setting.path].map { "  # \($0)" } ?? ""
      Terminal.print("\(setting.path): \(outcome.shown(setting))\(origin)")
    }
    for warning in outcome.warnings { Terminal.complain("drawbridge: warning: \(warning)") }
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

  private static func demo(_ invocation: Invocation) -> Int32 {
    // Before its upstream starts a thread.
    ProcessSignals.block(GatewayServer.signals)
    let upstream: DemoUpstream
    do throws(SystemError) {
      upstream = try DemoUpstream()
    } catch {
      Terminal.complain("drawbridge: cannot start the demo upstream: \(error)")
      return ExitCode.unavailable
    }
    defer { upstream.stop() }
    let url: WebSocketURL
    do throws(WebSocketURLError) {
      url = try WebSocketURL("ws://\(upstream.address)/")
    } catch {
      preconditionFailure("the demo upstream's address makes a URL")
    }
    let change = Change(ignored: ["upstream.url", "upstream.fallback_urls", "upstream.proxy", "sessions"]) {
      $0.session.upstream.url = url
    }
    return withPlan(invocation, changing: change) { outcome, plan in
      run(invocation, plan, outcome.warnings, changing: change) { server in
        guard let client = server.clientAddresses.first else { return }
        let management = server.managementAddresses.first
        Terminal.print(Help.demoLines(client: client, management: management, upstream: upstream.address))
      }
    }
  }

  private static func run(
    _ invocation: Invocation, _ plan: GatewayPlan, _ warnings: [ConfigurationError],
    changing change: Change = Change(), whenStarted: (GatewayServer) -> Void
  ) -> Int32 {
    ProcessSignals.block(GatewayServer.signals)
    let logger = makeLogger(plan.settings.log)
    for warning in warnings {
      logger.warning("questionable configuration", [.text("place", warning.place), .text("reason", warning.message)])
    }
    do throws(StartError) {
      let server = try GatewayServer(plan, logger: logger)
      whenStarted(server)
      return server.runUntilSignalled { reload(invocation, changing: change, logger) }
    } catch {
      GatewayServer.writeLastLines(of: logger)
      // Standard error may be a pipe that nobody reads.
      ProcessSignals.unblock(GatewayServer.signals)
      Terminal.complain("drawbridge: \(error.message)")
      return ExitCode.unavailable
    }
  }
}
