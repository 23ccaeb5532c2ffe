import ByteStreams
import HTTPCodec
import HTTPServer
import Inbox
import Outbox
import ProxyCodec
import Sessions
import TLSEngine
import Testing
import Upstream
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

@testable import Configuration

/// The settings below `upstream`, in the form in which the program uses them.
@Suite struct UpstreamSettingsTests {
  private func upstream(_ yaml: String) throws -> UpstreamSettings {
    try load("upstream: {url: 'ws://first/', \(yaml)}").settings.session.upstream
  }

  /// Each type is defined in the target that uses its values. The settings must have the defaults of these types.
  @Test func theDefaultsEqualTheDefaultsOfTheParts() {
    let settings = GatewaySettings()
    #expect(settings.http.limits == HTTPLimits() && settings.session.retention == Retention())
    #expect(settings.dials == AttemptLimits())
    let ours = settings.session.upstream
    #expect(ours.outbox == OutboxSettings() && ours.limits == WebSocketLimits() && ours.tls == TLSClientSettings())
    #expect(ours.compression == CompressionOffer() && ours.conventions == UpstreamConventions())
    var machine = SessionSettings()
    machine.limits.preparing = ours.fileTimeout + ours.fileTimeout
    #expect(ours.session == machine)
  }

  @Test func everyStrategyCanBeChosen() throws {
    func strategy(_ name: String) throws -> BackoffStrategy {
      let bounds = "minimum: 1ms, base: 2s, maximum: 3s, factor: 1.5, when_exhausted: stop"
      return try upstream("reconnect: {strategy: \(name), \(bounds)}").session.backoff.strategy
    }
    let (least, base, most) = (TimeSpan.milliseconds(1), TimeSpan.seconds(2), TimeSpan.seconds(3))
    let strategies: [String: BackoffStrategy] = [
      "fixed": .fixed(base), "exponential": .exponential(first: base, factor: 1.5, cap: most),
      "random": .random(minimum: least, maximum: most),
      "full-jitter": .fullJitter(minimum: least, base: base, cap: most),
      "decorrelated-jitter": .decorrelatedJitter(base: base, cap: most),
      "doubling": .doubling(step: base, cap: most, whenExhausted: .stop),
    ]
    #expect(Set(strategies.keys) == Set(BackoffSettings.Kind.allCases.map(\.rawValue)))
    for (name, expected) in strategies { #expect(try strategy(name) == expected) }
  }

  @Test func everyKeySetsItsOwnProperty() throws {
    let ours = try upstream(
      """
      fallback_urls: ['ws://second/', 'wss://third/'], url_order: round-robin, on_demand: true, maximum_age: 23h,
      reconnect: {maximum_attempts: 7}, close_codes: {4000: stop, 4001-4009: refresh-credential},
      compression: {offer: false, level: 9}, tls: {verify: false, minimum_version: '1.3', ca_file: /ca.pem},
      proxy: 'http://user:secret@proxy', no_proxy: ['10.0.0.0/8'], payload_codec: auto, heartbeat: {ping: false}
      """)
    #expect(ours.session.endpoints.count == 3 && ours.session.endpoints.order == .roundRobin && ours.session.onDemand)
    #expect(ours.session.maximumAge == .hours(23) && ours.session.backoff.maximumAttempts == 7)
    #expect(ours.session.closing.ranges.map(\.codes) == [4000...4000, 4001...4009])
    #expect(ours.session.closing.ranges.map(\.reaction) == [.stop, .refreshCredential])
    #expect(ours.compression == nil && ours.compressionOffer.level == 9)
    #expect(ours.tls.verification == .offForTestsOnly && ours.tls.minimumVersion == .v1_3)
    #expect(ours.tls.trust.caFile == "/ca.pem" && ours.tls.clientCertificate == nil)
    #expect(ours.proxy?.credentials?.password == "secret" && ours.proxyBypass.covers(host: "10.1.1.1", port: 1))
    #expect(ours.conventions.codec == .auto && ours.conventions.examinesMessages && !ours.session.liveness.isEnabled)
  }

  @Test func absenceIsWrittenAsZeroOrEmpty() throws {
    let ours = try upstream("maximum_age: 0s, reconnect: {maximum_attempts: 00}, proxy: '', tls: {ca_file: ''}")
    #expect(ours.session.maximumAge == nil && ours.session.backoff.maximumAttempts == nil)
    #expect(ours.proxy == nil && ours.tls.trust.caFile == nil && ours.outbox.pace == nil)
  }

  @Test func readsTheQueue() throws {
    let rate = "rate: 20, rate_interval: 1m, burst: 3"
    let outbox = try upstream(
      "queue: {overflow: drop-oldest, redeliver: unconfirmed, max_attempts: 7, ttl: 5s, \(rate)}"
    ).outbox
    #expect(outbox.overflow == .dropOldest && outbox.redelivery == .unconfirmed && outbox.maximumAttempts == 7)
    #expect(outbox.pace == Pace(messages: 20, interval: .minutes(1), burst: 3) && outbox.timeToLive == .seconds(5))
  }

  @Test func readsBothFilesOfTheClientCertificate() throws {
    let ours = try upstream("tls: {client_key: k.pem, client_certificate: c.pem}")
    #expect(ours.tls.clientCertificate?.certificateFile == "c.pem" && ours.tls.clientCertificate?.keyFile == "k.pem")
    for half in ["client_key: k.pem", "client_certificate: c.pem"] {
      #expect(errors("upstream: {url: 'wss://h/', tls: {\(half)}}").count == 1)
    }
  }

  @Test func setupAndHeartbeatsReachTheSession() throws {
    let ours = try upstream(
      """
      on_open: [{send: a}, {expect: b, timeout: 3s}], timeouts: {files: 1s}, credential: {command: [x], timeout: 2s, query: q},
      heartbeat: {client: {message: ping, interval: 7s, expect: pong, timeout: 4s}, server: {within: 9s}}
      """)
    #expect(ours.session.setup.map(\.expectsResponse) == [false, true])
    #expect(ours.session.setup[1].timeLimit == .seconds(3))
    #expect(ours.session.limits.preparing == .seconds(1 + 1 + 2) + UpstreamSettings.killGracePeriod)
    let heartbeat = ours.session.heartbeat
    #expect(heartbeat.interval == .seconds(7) && heartbeat.timeout == .seconds(4) && heartbeat.within == .seconds(9))
  }

  @Test func everyRuleThatIsBrokenIsReported() {
    let found = errors(
      """
      upstream:
        url: ws://h:99999/
        proxy: ftp://p
        no_proxy: [a.example, 10.0.0.0/33]
        subprotocols: [v1, 'v 2', v1]
        headers: {Host: x, Upgrade: y}
        tls: {pins: [abc], client_key: k}
        heartbeat: {client: {expect: x}}
        credential: {file: /f}
        subscriptions: {add: {key: /k}}
        queue: {confirm: false, redeliver: unconfirmed}

      """)
    // `tls` has only one error, since the certificate may be missing because of the error in the pin. The credential
    // without a use has no error, since the reader may have failed to read the key with its use.
    let places = ["2:8", "3:10", "4:25", "7:16", "5:22", "5:29", "6:13", "6:22", "10:30", "8:32", "11:38"]
    #expect(found.map { $0.split(separator: ":").dropFirst().prefix(2).joined(separator: ":") } == places, "\(found)")
  }

  @Test func everyConventionThatIsBrokenIsReported() {
    let found = errors(
      """
      upstream:
        url: ws://h/
        credential: {file: /f, command: [x], header: x, query: 'a b'}
        subscriptions: {add: {key: /k}, ended: {key: /k}}
        heartbeat: {client: {expect: x}, server: {reply: y}}

      """)
    let keys = found.map { $0.split(separator: "'")[1] }
    #expect(
      keys == [
        "upstream.credential.header", "upstream.credential.query", "upstream.credential",
        "upstream.subscriptions.add", "upstream.subscriptions.ended", "upstream.heartbeat.client.expect",
        "upstream.heartbeat.server.reply",
      ], "\(found)")
  }
}
