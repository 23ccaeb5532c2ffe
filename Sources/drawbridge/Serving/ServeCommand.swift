import Configuration
import Gateway
import Host
import Reactor

/// `drawbridge serve`.
enum ServeCommand {
  static let command = Command(
    "serve",
    summary: "run the gateway",
    purpose: "run the gateway, which connects HTTP clients to a WebSocket service.",
    examples: [
      "drawbridge serve --upstream wss://example.org/socket",
      "drawbridge serve --upstream ws://127.0.0.1:9000/ --listen 127.0.0.1:0 --loops 2",
      "drawbridge serve --profile graphql-transport-ws --upstream wss://example.org/graphql",
      "drawbridge serve --config /etc/drawbridge/drawbridge.yaml",
    ],
    text: """
      Send and receive messages with any HTTP client, or with 'drawbridge send' and 'drawbridge tail':

        curl -d 'hello' http://127.0.0.1:8080/v1/messages
        curl 'http://127.0.0.1:8080/v1/messages?cursor=earliest'
      """,
    flags: ConfigurationSource.flags(),
    notes: """
      A flag overrides --set, which overrides an environment variable, which overrides the file, which overrides the
      profile. Every setting, with its default, is in config/drawbridge.yaml. In a value of --set, commas separate the
      elements of a list, and a setting with several keys is YAML: --set 'upstream.close_codes={4401: stop}'. Other users
      of the machine can read flags: keep secrets in a file or in the environment, and refer to them as ${file:PATH} or
      ${env:NAME}.

      SIGTERM and SIGINT let the gateway respond to held polls, send queued messages, close the upstream connection
      and exit. A second signal exits at once. SIGHUP reloads the configuration.
      """,
    exitCodes: exitCodes
  ) { (arguments) throws(UsageError) in run(try ConfigurationSource(arguments)) }

  static let exitCodes = [
    Command.ExitCode(ExitCode.ok, "stopped by a signal"), .usage, .noFile,
    Command.ExitCode(
      ExitCode.unavailable,
      "an address or another resource of the system is not available, or another process has the store open"),
    Command.ExitCode(
      ExitCode.configuration, "invalid configuration, or a store that is damaged or of a newer version"),
  ]

  private static func run(_ source: ConfigurationSource) -> Int32 {
    let supervisor = ServiceNotifier.take()
    let inherited: InheritedSockets
    do throws(InheritedSockets.Problem) {
      inherited = try InheritedSockets.take()
    } catch {
      Terminal.printError("drawbridge: \(error)")
      return ExitCode.unavailable
    }
    let overrides = ConfigurationReader.SettingOverrides(inherited: inherited)
    return ConfigurationReader.withPlan(source, overriding: overrides) { outcome, plan, files in
      var listeners = plan.settings.listeners
      if let unused = listeners.use(inherited).first {
        Terminal.printError(
          "drawbridge: inherited socket \(unused.descriptor) ('\(unused.name)', \(unused.address)) is for no listener: "
            + "name it http, https, management or peers (FileDescriptorName= in systemd), or list its address in listeners"
        )
        return ExitCode.configuration
      }
      return RunningGateway.run(
        source, plan, files, outcome.warnings, overriding: overrides, inherited: inherited, supervisor: supervisor
      ) { _ in }
    }
  }
}
