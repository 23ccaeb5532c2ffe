import API
import ByteStreams
import Dialing
import Host
import TLSEngine
import UpstreamSession

/// The process: listeners, limits for all sessions together, shutdown, log and status page.
extension SettingSection {
  static let day = TimeSpan.hours(24)
  static let millisecond = TimeSpan.milliseconds(1)

  static func general(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let listeners = gateway.section("listeners", \.listeners)
    let tls = listeners.section("tls", \.tls)
    return SettingSection(
      settings: [
        listeners(
          "http", \.http, .listeners,
          "addresses for clients: host:port, [v6]:port or unix:/path; port 0: a free one (repeatable)",
          flag: "listen"),
        listeners(
          "https", \.https, .listeners,
          "addresses for clients that use HTTPS: host:port, [v6]:port or unix:/path (repeatable)",
          flag: "listen-https"),
        tls("certificate", \.certificateFile, .path, "PEM file of the HTTPS certificate, followed by its chain"),
        tls("key", \.keyFile, .path, "PEM file of the private key"),
        tls("client_ca", \.clientCAFile, .path, "PEM file of the authorities of client certificates"),
        tls(
          "client_certificates", \.clientCertificates, .choice,
          "client certificates: none, optional or required"),
        tls("minimum_version", \.minimumVersion, .tlsVersion, "minimum TLS version of clients"),
        listeners(
          "management", \.management, .listeners, "addresses for probes, metrics and the status page (repeatable)",
          flag: "management"),
        listeners(
          "peers", \.peers, .listeners,
          "addresses for other gateways, which forward requests for sessions of this gateway (repeatable)"),
        listeners(
          "peer_address", \.peerAddress, .ownAddress,
          "where other gateways reach listeners.peers; empty: the first address of listeners.peers"),
        gateway(
          "loops", \.loops, .automaticCount(0...1024), "event loops, one thread each; auto: one per usable processor",
          flag: "loops"),
        gateway(
          "reload", \.reload, .choice,
          "watch: a change of the configuration file, or of a file that it names by ${file:…}, takes effect; signal: only SIGHUP",
          isReloadable: true),
      ], rules: [listeners.rule(listenerProblems)])
  }

  private static func listenerProblems(_ listeners: GatewaySettings.Listeners) -> [SettingProblem] {
    var problems: [SettingProblem] = []
    var seen: Set<SocketAddress> = []
    for (key, addresses) in [
      ("http", listeners.http), ("https", listeners.https), ("management", listeners.management),
      ("peers", listeners.peers),
    ] {
      // An empty list is a problem for `management`. It is a problem for `http` only if `https` is empty, too.
      if addresses.isEmpty, key != "https", key != "peers", key != "http" || listeners.https.isEmpty {
        problems.append(SettingProblem(key, .none, "it is empty: set at least one address"))
      }
      // Two addresses with port 0 do not conflict, since the kernel picks a different port for each.
      for (index, address) in addresses.enumerated() where !seen.insert(address).inserted && address.port != 0 {
        problems.append(
          SettingProblem(
            key, .item(index), "another listener uses this address",
            comparedWith: ["http", "https", "management", "peers"]))
      }
    }
    for (index, address) in listeners.peers.enumerated() where address.ip == nil {
      problems.append(SettingProblem("peers", .item(index), "other gateways are on other machines: use host:port"))
    }
    let isReachable = listeners.peers.contains { $0.ip?.isUnspecified == false }
    if !listeners.peers.isEmpty, listeners.peerAddress == nil, !isReachable {
      problems.append(
        SettingProblem(
          "peer_address", .missing,
          "'listeners.peers' listens on every address: set the address that other gateways reach"))
    }
    if listeners.peers.isEmpty, listeners.peerAddress != nil {
      problems.append(SettingProblem("peer_address", .none, "it has no effect without 'listeners.peers'"))
    }
    return problems + certificateProblems(listeners)
  }

  private static func certificateProblems(_ listeners: GatewaySettings.Listeners) -> [SettingProblem] {
    let tls = listeners.tls
    var problems: [SettingProblem] = []
    if !listeners.https.isEmpty {
      for (key, path) in [("tls.certificate", tls.certificateFile), ("tls.key", tls.keyFile)] where path.isEmpty {
        problems.append(SettingProblem(key, .missing, "'listeners.https' is set: set it to a PEM file"))
      }
    }
    if tls.clientCertificates != .none, tls.clientCAFile.isEmpty {
      problems.append(
        SettingProblem(
          "tls.client_ca", .missing,
          "'listeners.tls.client_certificates' is \(tls.clientCertificates.rawValue): set it to a PEM file"))
    }
    if tls.clientCertificates == .none, !tls.clientCAFile.isEmpty {
      problems.append(
        SettingProblem(
          "tls.client_certificates", .none, "'listeners.tls.client_ca' has no effect: set it to optional or required",
          comparedWith: ["tls.client_ca"]))
    }
    return problems
  }

  /// The settings below `upstream` that apply to all sessions together.
  static func dials(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let dials = gateway.section("upstream.dials", \.dials)
    let network = gateway.section("upstream.network", \.network)
    return SettingSection(settings: [
      dials(
        "per_second", \.perSecond, .count(1...1_000_000),
        "connection attempts per host and second, of all sessions together"),
      dials("burst", \.burst, .count(1...1_000_000), "connection attempts per host at once after a quiet time"),
      dials(
        "at_once", \.concurrent, .count(1...1_000_000), "connection attempts per host in progress at the same time"),
      network(
        "changes", \.changes, .choice,
        "watch: changes of this machine's network end waits and check open connections; or ignore"),
      network(
        "settle", \.settle, .duration(.zero...(.minutes(1))),
        "how long the network must be stable before a change takes effect"),
    ])
  }

  static func shutdownAndLog(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let shutdown = gateway.section("shutdown", \.shutdown, isReloadable: true)
    let log = gateway.section("log", \.log)
    return SettingSection(settings: [
      shutdown(
        "pause", \.pause, .duration(.zero...(.minutes(10))),
        "how long requests are served after /readyz has begun to fail, so that load balancers notice"),
      shutdown(
        "drain", \.drain, .duration(.zero...(.minutes(10))),
        "time for clients to receive their responses, after listeners have closed"),
      shutdown(
        "flush", \.flush, .duration(.zero...(.minutes(10))), "time to send queued messages, after shutdown.drain"),
      log(
        "level", \.level, .logLevel, "lowest level that is logged: trace, debug, info, warning or error",
        flag: "log-level", isReloadable: true),
      log("format", \.format, .choice, "text, json or auto: text on a terminal, otherwise JSON", flag: "log-format"),
      log(
        "access", \.access, .choice, "lines about requests: off, errors (status 400 or higher, or aborted) or all",
        isReloadable: true),
      gateway(
        "status.payloads", \.api.showsPayloads, .boolean, "whether the status page shows the payloads of messages"),
    ])
  }
}
