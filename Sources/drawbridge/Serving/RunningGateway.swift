import Configuration
import Gateway
import Logging
import Host
import Reactor

/// Runs a gateway until a signal ends it.
enum RunningGateway {
  static func run(
    _ source: ConfigurationSource, _ plan: GatewayPlan, _ files: ConfigurationFiles, _ warnings: [ConfigurationError],
    overriding overrides: ConfigurationReader.SettingOverrides, inherited: InheritedSockets = .none,
    supervisor: ServiceNotifier = .none,
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
      return server.runUntilSignalled(files) { ConfigurationReader.reload(source, overriding: overrides, logger) }
    } catch {
      GatewayServer.flushLog(logger)
      // Signals must be able to end the process now, since standard error may be a pipe that is not read.
      ProcessSignals.unblock(GatewayServer.handledSignals)
      Terminal.printError("drawbridge: \(error.message)")
      return error.concernsConfiguration ? ExitCode.configuration : ExitCode.unavailable
    }
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
}
