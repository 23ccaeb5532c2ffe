import Configuration
import Gateway

/// `drawbridge check-config`.
enum CheckConfigCommand {
  private static let all = Flag("all", .none, "also print the settings that have their defaults")

  static let command = Command(
    "check-config",
    summary: "check a configuration, and print what differs from the defaults",
    purpose: """
      read and check the configuration as 'drawbridge serve' does, without starting anything. Says that it is valid and
      prints the settings that differ from the defaults, each with its origin, or prints every error with its place and
      what is accepted instead.
      """,
    examples: [
      "drawbridge check-config --config config/drawbridge.yaml --upstream wss://example.org/socket",
      "DRAWBRIDGE_UPSTREAM_URL=wss://example.org drawbridge check-config --all",
    ],
    text: """
      Secrets are not printed. Errors and warnings go to standard error. A store that cannot be opened at present is a
      warning.
      """,
    flags: [all] + ConfigurationSource.flags(),
    exitCodes: [
      Command.ExitCode(ExitCode.ok, "the configuration is valid; there may be warnings"), .usage, .noFile,
      .configuration,
    ]
  ) { (arguments) throws(UsageError) in
    let source = try ConfigurationSource(arguments)
    return ConfigurationReader.withPlan(source) { outcome, _, _ in
      report(outcome, of: source, showsAll: arguments.has(all))
    }
  }

  private static func report(
    _ outcome: ConfigurationLoader.Outcome, of source: ConfigurationSource, showsAll: Bool
  ) -> Int32 {
    let shown = showsAll ? outcome.displayedSettings : outcome.changedSettings
    Terminal.print(
      "\(source.title): valid" + (shown.isEmpty ? ", all settings have their defaults" : ""))
    for setting in shown {
      let origin = outcome.origins[setting.path].map { "  # \($0)" } ?? ""
      Terminal.print("\(setting.path): \(outcome.displayText(of: setting))\(origin)")
    }
    if !showsAll, !shown.isEmpty { Terminal.print("# All other settings have their defaults: --all shows them.") }
    for warning in outcome.warnings + storeWarnings(outcome) { Terminal.printError("drawbridge: warning: \(warning)") }
    return ExitCode.ok
  }

  /// Without the store, a start fails. This is not an error of the configuration: the store may be on another machine,
  /// or the start of the service may create its folder.
  private static func storeWarnings(_ outcome: ConfigurationLoader.Outcome) -> [ConfigurationError] {
    guard let reason = GatewayServer.storeFailure(outcome.settings) else { return [] }
    return [
      ConfigurationError(
        place: outcome.origins["store.path"] ?? "", message: "a start would fail at present: \(reason)")
    ]
  }
}
