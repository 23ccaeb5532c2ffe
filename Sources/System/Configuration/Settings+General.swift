import ByteStreams
import Reactor
import UpstreamSession

/// The process: where it listens, what its sessions share, how it ends, what it logs.
extension SettingSection {
  static let day = TimeSpan.hours(24)
  static let millisecond = TimeSpan.milliseconds(1)

  static func general(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let listeners = gateway.section("listeners", \.listeners)
    return SettingSection(
      settings: [
        listeners(
          "http", \.http, .listeners, "where clients connect: host:port, [v6]:port or unix:/path; port 0 picks one",
          flag: "listen"),
        listeners("management", \.management, .listeners, "where probes and metrics are served", flag: "management"),
        gateway(
          "loops", \.loops, .automaticCount(0...1024), "event loops; auto is one a usable processor", flag: "loops"),
      ], rules: [listeners.rule(listenerProblems)])
  }

  private static func listenerProblems(_ listeners: GatewaySettings.Listeners) -> [SettingProblem] {
    var problems: [SettingProblem] = []
    var seen: Set<SocketAddress> = []
    for (key, addresses) in [("http", listeners.http), ("management", listeners.management)] {
      if addresses.isEmpty { problems.append(SettingProblem(key, .none, "it is empty: give at least one address")) }
      // Port 0 is another one each time.
      for (index, address) in addresses.enumerated() where !seen.insert(address).inserted && address.port != 0 {
        problems.append(
          SettingProblem(
            key, .item(index), "another listener has this address", comparedWith: ["http", "management"]))
      }
    }
    return problems
  }

  /// What all sessions share of `upstream`.
  static func dials(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let dials = gateway.section("upstream.dials", \.dials)
    let network = gateway.section("upstream.network", \.network)
    return SettingSection(settings: [
      dials("per_second", \.perSecond, .count(1...1_000_000), "dials of one host a second, of all sessions together"),
      dials("burst", \.burst, .count(1...1_000_000), "dials of one host after a quiet time"),
      dials("at_once", \.concurrent, .count(1...1_000_000), "dials of one host under way at once"),
      network(
        "changes", \.changes, .choice, "whether changes of this machine's network end a wait and probe a connection"),
      network(
        "settle", \.settle, .duration(.zero...(.minutes(1))), "time the network must have been at rest before that"),
    ])
  }

  static func ending(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let shutdown = gateway.section("shutdown", \.shutdown)
    let log = gateway.section("log", \.log)
    return SettingSection(settings: [
      shutdown("flush", \.flush, .duration(.zero...(.minutes(10))), "time to send what is queued at the end"),
      shutdown(
        "drain", \.drain, .duration(.zero...(.minutes(10))), "time for clients to take their answers at the end"),
      log("level", \.level, .logLevel, "least level that is written", flag: "log-level", isReloadable: true),
      log("format", \.format, .choice, "auto: text on a terminal, JSON elsewhere", flag: "log-format"),
    ])
  }
}
