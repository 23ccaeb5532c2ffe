import API
import Configuration
import DemoUpstream
import Gateway
import Host
import Reactor
import Sessions
import Upstream
import UpstreamProtocol
import WebSocketCodec

/// `drawbridge demo`.
enum DemoCommand {
  static let name = "demo"

  static let command = Command(
    name,
    summary: "try Drawbridge with a built-in upstream",
    purpose: """
      run the gateway with a built-in upstream, which echoes every message and sends a tick every five seconds. Prints
      commands to try.
      """,
    examples: ["drawbridge demo", "drawbridge demo --listen 127.0.0.1:0", "drawbridge demo --kind socketio"],
    text: """
      The reply to a call is its request: drawbridge call '{"id":1}' prints {"id":1}.

      With --kind socketio, the upstream is a Socket.IO server: it sends every event back, and acknowledges an event
      with its arguments if the sender requests this.
      """,
    flags: ConfigurationSource.flags([
      "kind", "listen", "management", "loops", "access", "log-level", "log-format",
    ]),
    notes: """
      The other settings are read from the file and the environment, except upstream.url, upstream.fallback_urls,
      upstream.proxy and sessions: the demo connects to its own upstream only. Its status page shows payloads.
      """,
    exitCodes: ServeCommand.exitCodes
  ) { (arguments) throws(UsageError) in run(try ConfigurationSource(arguments)) }

  private static func run(_ source: ConfigurationSource) -> Int32 {
    // The signals are blocked before the upstream starts its thread, since threads inherit the mask.
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
    let overrides = ConfigurationReader.SettingOverrides(ignoredPaths: [
      "upstream.url", "upstream.url.file", "upstream.url.command", "upstream.url.timeout", "upstream.url.pointer",
      "upstream.fallback_urls", "upstream.proxy", "sessions", "profiles",
      "status.payloads",
    ]) {
      $0.session.upstream.url = url
      // The status page may show payloads, since they are payloads of the demo.
      $0.api.showsPayloads = true
      // The upstream echoes a request, so the reply has the id at the same place as the request.
      let conventions = $0.session.upstream.conventions
      if conventions.correlation == nil, conventions.kind == .websocket {
        let place = Correlation.jsonRPC.request
        $0.session.upstream.conventions.correlation = Correlation(request: place, reply: place, shape: .any)
      }
    }
    return ConfigurationReader.withPlan(source, overriding: overrides) { outcome, plan, files in
      RunningGateway.run(source, plan, files, outcome.warnings, overriding: overrides) { server in
        guard let client = server.clientAddresses.first else { return }
        let management = server.managementAddresses.first
        let isSocketIO = plan.settings.session.upstream.conventions.kind == .socketIO
        Terminal.print(
          DemoText.lines(
            client: client, management: management, upstream: upstream.address, isSocketIO: isSocketIO))
      }
    }
  }
}
