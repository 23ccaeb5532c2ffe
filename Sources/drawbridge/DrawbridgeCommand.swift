import Configuration
import DemoUpstream
import Gateway
import Logging
import Reactor

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
      case .checkConfig: return withSettings(invocation) { checkConfiguration($0) }
      case .healthcheck: return withSettings(invocation) { HealthCheck.run($0.settings) }
      case .serve: return withSettings(invocation) { serve(invocation, $0) }
      case .demo: return withSettings(invocation) { demo(invocation, $0) }
      }
    } catch {
      Terminal.complain("drawbridge: \(error.message)")
      return ExitCode.usage
    }
  }

  private static func withSettings(
    _ invocation: Invocation, _ body: (ConfigurationLoader.Outcome) -> Int32
  ) -> Int32 {
    if let file = configurationFile(of: invocation), SystemFile.bytes(of: file, atMost: 1) == nil {
      Terminal.complain("drawbridge: \(file): cannot be read; is the path right?")
      return ExitCode.noInput
    }
    do throws(ConfigurationErrors) {
      return body(try load(invocation))
    } catch {
      for line in error.errors { Terminal.complain("drawbridge: \(line)") }
      return ExitCode.configuration
    }
  }

  private static func configurationFile(of invocation: Invocation) -> String? {
    invocation.configurationFile ?? SystemFile.environment()["DRAWBRIDGE_CONFIG"]
  }

  private static func load(_ invocation: Invocation) throws(ConfigurationErrors) -> ConfigurationLoader.Outcome {
    try ConfigurationLoader.load(
      file: configurationFile(of: invocation), environment: SystemFile.environment(), flags: invocation.flags,
      readFile: { SystemFile.bytes(of: $0, atMost: 2 << 20) })
  }

  /// The settings as they are written now; nil, and the log says why, where they are wrong.
  private static func reload(_ invocation: Invocation, _ logger: Logger) -> GatewaySettings? {
    do throws(ConfigurationErrors) {
      return try load(invocation).settings
    } catch {
      for line in error.errors {
        logger.error("the new configuration is wrong; the old one stays", [.text("reason", line.description)])
      }
      return nil
    }
  }

  // MARK: Commands

  private static func checkConfiguration(_ outcome: ConfigurationLoader.Outcome) -> Int32 {
    for setting in Setting.all {
      let origin = outcome.origins[setting.path].map { "  # \($0)" } ?? ""
      Terminal.print("\(setting.path): \(outcome.shown(setting))\(origin)")
    }
    for warning in outcome.warnings { Terminal.complain("drawbridge: warning: \(warning)") }
    return ExitCode.ok
  }

  private static func makeLogger(_ settings: GatewaySettings.Log) -> Logger {
    let format: Logger.Format =
      switch settings.format {
      case "text": Logger.suitableFormat() == .coloredText ? .coloredText : .text
      case "json": .json
      default: Logger.suitableFormat()
      }
    let logger = Logger(level: LogLevel(name: settings.level) ?? .info, format: format)
    logger.start()
    return logger
  }

  private static func serve(_ invocation: Invocation, _ outcome: ConfigurationLoader.Outcome) -> Int32 {
    guard !outcome.settings.upstream.url.isEmpty else {
      Terminal.complain(
        """
        drawbridge: no upstream is set. Give one, as in
          drawbridge serve --upstream wss://example.org/socket
        or 'upstream.url' in a file, or DRAWBRIDGE_UPSTREAM_URL. To try it without an upstream: drawbridge demo
        """)
      return ExitCode.configuration
    }
    ProcessSignals.block(GatewayServer.signals)
    return run(invocation, outcome.settings, warnings: outcome.warnings) { _ in }
  }

  private static func demo(_ invocation: Invocation, _ outcome: ConfigurationLoader.Outcome) -> Int32 {
    var settings = outcome.settings
    ProcessSignals.block(GatewayServer.signals)
    let upstream: DemoUpstream
    do throws(SystemError) {
      upstream = try DemoUpstream()
    } catch {
      Terminal.complain("drawbridge: cannot start the demo upstream: \(error)")
      return ExitCode.unavailable
    }
    defer { upstream.stop() }
    settings.upstream.url = "ws://\(upstream.address)/"
    return run(invocation, settings, warnings: outcome.warnings, keeping: settings.upstream.url) { server in
      guard let client = server.clientAddresses.first else { return }
      let management = server.managementAddresses.first
      Terminal.print(Help.demoLines(client: client, management: management, upstream: upstream.address))
    }
  }

  /// `upstream`: the one to stay with, whatever a reload says of it.
  private static func run(
    _ invocation: Invocation, _ settings: GatewaySettings, warnings: [ConfigurationError],
    keeping upstream: String? = nil,
    whenStarted: (GatewayServer) -> Void
  ) -> Int32 {
    let logger = makeLogger(settings.log)
    for warning in warnings {
      logger.warning("questionable configuration", [.text("place", warning.place), .text("reason", warning.message)])
    }
    do throws(StartError) {
      let server = try GatewayServer(settings, logger: logger)
      whenStarted(server)
      return server.runUntilSignalled {
        var settings = reload(invocation, logger)
        if let upstream { settings?.upstream.url = upstream }
        return settings
      }
    } catch {
      GatewayServer.writeLastLines(of: logger)
      // Standard error may be a pipe that nobody reads.
      ProcessSignals.unblock(GatewayServer.signals)
      Terminal.complain("drawbridge: \(error.message)")
      return error.exitCode
    }
  }
}
