import ByteStreams
import Inbox
import Outbox
import Sessions
import Testing
import Upstream
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

@testable import Configuration

/// The settings below `sessions`.
@Suite struct NamedSessionTests {
  @Test func aSessionHasItsOwnSettings() throws {
    let outcome = try load(
      """
      upstream: {url: 'ws://a/', headers: {A: b}, queue: {messages: 5}}
      delivery: {messages: 7}
      sessions:
        market:
          upstream: {url: 'ws://b/', queue: {messages: 100}}
          delivery: {messages: 1000}
        news.2-x_Y: {upstream: {url: 'ws://c/'}}

      """)
    let sessions = outcome.settings.configuredSessions
    #expect(sessions.map(\.name) == ["default", "market", "news.2-x_Y"])
    #expect(sessions.map { $0.configuration.upstream.url?.host } == ["a", "b", "c"])
    #expect(sessions.map { $0.configuration.upstream.outbox.maximumMessages } == [5, 100, 1024])
    #expect(sessions.map { $0.configuration.retention.count } == [7, 1000, 10_000])
    #expect(sessions.map { $0.configuration.upstream.fields.count } == [1, 0, 0], "nothing is inherited")
    #expect(outcome.origins["sessions.market.upstream.queue.messages"] == "d.yaml:5:50")
    #expect(outcome.warnings == [])
  }

  @Test func theDefaultSessionMayBeLeftOut() throws {
    let outcome = try load("upstream: {queue: {messages: 5}}\nsessions: {market: {upstream: {url: 'ws://b/'}}}\n")
    #expect(outcome.settings.configuredSessions.map(\.name) == ["market"])
    #expect(
      outcome.warnings.map(\.description) == [
        "d.yaml:1:30: 'upstream.queue.messages' has no effect: 'upstream.url' is not set, so there is no default session, and named sessions and profiles do not inherit its settings"
      ])
  }

  @Test(arguments: [
    (
      "sessions: x",
      "d.yaml:1:11: 'sessions' must map names to settings, as in 'market: {upstream: {url: wss://example.org/feed}}'"
    ),
    (
      "sessions: {default: {}}",
      "d.yaml:1:12: the session 'default' is not configured here, but by 'upstream' at the top of the file"
    ),
    (
      "sessions: {'a b': {}}",
      "d.yaml:1:12: 'a b' is not a valid name of a session: use 1 to 64 letters, digits, '.', '_' and '-', not beginning with '.'"
    ),
    (
      "sessions: {m: }",
      "d.yaml:1:12: 'sessions.m.upstream.url' is not set, but every named session needs a URL"
    ),
    (
      "sessions: {m: {upstream: {url: 'ws://h:0/'}}}",
      "d.yaml:1:32: 'ws://h:0/' is not valid for 'sessions.m.upstream.url': the port is not a number from 1 to 65535"
    ),
    ("sessions: {m: {upstream: {ulr: x}}}", "d.yaml:1:27: unknown key 'sessions.m.upstream.ulr' (did you mean 'url'?)"),
    ("sessions: {m: 1}", "d.yaml:1:15: 'sessions.m' must contain keys and values, and its keys are upstream, delivery"),
    (
      "sessions: {m: {http: {fields: 9}}}",
      "d.yaml:1:16: 'sessions.m.http' applies to the whole gateway: set it at the top of the file"
    ),
    (
      "sessions: {m: {upstream: {dials: {burst: 9}}}}",
      "d.yaml:1:27: 'sessions.m.upstream.dials' applies to the whole gateway: set it at the top of the file"
    ),
    (
      "sessions: {m: {delivery: {wait: 1s}}}",
      "d.yaml:1:27: 'sessions.m.delivery.wait' applies to the whole gateway: set it at the top of the file"
    ),
    (
      "sessions: {m: {upstream: {url: 'ws://h/', subprotocols: [a, a]}}}",
      "d.yaml:1:61: 'a' is not valid for 'sessions.m.upstream.subprotocols': "
    ),
    (
      "sessions: {m: {upstream: {url: 'ws://h/', credential: {file: /f}}}}",
      "d.yaml:1:62: 'sessions.m.upstream.credential' cannot be used: it is not sent anywhere"
    ),
    (
      "sessions: {m: {upstream: {url: 'ws://h/', credential: {env: NOPE, query: q}}}}",
      "d.yaml:1:61: environment variable 'NOPE' is not set"
    ),
    (
      "sessions: {m: {upstream: {url: 'ws://h/', queue: {low_water: 1MiB}}}}",
      "d.yaml:1:62: 'sessions.m.upstream.queue.low_water' (1MiB) is above 'sessions.m.upstream.queue.high_water' (256KiB, the default)"
    ),
    ("sessions: {m: {upstream: {url: 'ws://h/'}}, m: {}}", "d.yaml:1:45: 'sessions.m' is set twice"),
  ])
  func reportsFaultsOfASession(text: String, message: String) {
    let found = errors(text)
    #expect(found.count == 1 && found[0].hasPrefix(message), "\(found)")
  }

  @Test(arguments: ["", ".a", "a/b", "ä", "a~", String(repeating: "x", count: 65)])
  func refusesInvalidSessionNames(name: String) { #expect(!SessionName.isValid(name)) }

  @Test(arguments: ["a", "A.b", "-", "_", "0", "default2", String(repeating: "x", count: 64)])
  func acceptsNamesThatNeedNoEscape(name: String) { #expect(SessionName.isValid(name)) }

  @Test func theNumberOfSessionsIsLimited() throws {
    let names = (0..<SessionName.maximumCount).map { "  s\($0): {upstream: {url: 'ws://h/'}}\n" }.joined()
    #expect(try load("sessions:\n" + names).settings.configuredSessions.count == SessionName.maximumCount)
    #expect(
      errors("sessions:\n" + names + "  more: {upstream: {url: 'ws://h/'}}\n  again: {}\n") == [
        "d.yaml:1002:3: more than 1000 named sessions: run several gateways"
      ])
  }

  @Test func noVariableAndNoFlagSetsANamedSession() throws {
    #expect(Setting.named("m").allSatisfy { $0.flag == nil })
    let text = "sessions: {m: {upstream: {url: '${env:URL}'}}}"
    let outcome = try load(
      text, environment: ["URL": "ws://h/?s3cret", "DRAWBRIDGE_SESSIONS_M_UPSTREAM_ON_DEMAND": "true"],
      flags: [("subprotocol", "v1")])
    let session = try #require(outcome.settings.sessions.first?.configuration.upstream)
    #expect(session.url?.target == "/?s3cret" && !session.session.onDemand && session.subprotocols == [])
    #expect(outcome.warnings.contains { $0.place == "environment variable DRAWBRIDGE_SESSIONS_M_UPSTREAM_ON_DEMAND" })
  }

  @Test func reportsThatNoVariableSetsANamedSession() throws {
    let outcome = try load("upstream: {url: 'ws://h/'}", environment: ["DRAWBRIDGE_SESSIONS_M_UPSTREAM_URL": "ws://a/"])
    #expect(
      outcome.warnings.map(\.message) == [
        "named sessions cannot be configured by variables: use 'sessions' in the file, where ${env:NAME} works; it is ignored"
      ])
  }

  /// A name may begin with another name and a dot, or look like the path of a setting.
  @Test func namesWithDotsDoNotConfuseThePlacesOfErrors() {
    let text = """
      sessions:
        a: {upstream: {url: 'ws://h/'}}
        a.b:
        a.upstream.url:
        a.upstream: {upstream: {url: 'ws://h/', tls: {client_key: k}}}

      """
    let missing = "every named session needs a URL"
    #expect(
      errors(text) == [
        "d.yaml:5:61: 'sessions.a.upstream.upstream.tls.client_key' cannot be used: client_certificate and client_key belong together: set both or none",
        "d.yaml:3:3: 'sessions.a.b.upstream.url' is not set, but \(missing)",
        "d.yaml:4:3: 'sessions.a.upstream.url.upstream.url' is not set, but \(missing)",
      ])
  }

  @Test func theErrorsOfManySessionsAreCutToTheLimit() {
    let names = (0..<SessionName.maximumCount).map { "  s\($0):\n" }.joined()
    let found = errors("sessions:\n" + names)
    #expect(found.count == ConfigurationErrors.limit)
    #expect(found.first?.contains("s0") == true)
  }

  @Test func errorsAreNotAttributedToASessionWithASimilarName() {
    let outcome = ConfigurationLoader.read(
      file: "d.yaml", environment: [:], flags: [],
      readFile: { _ in
        Array("sessions: {a: {upstream: {url: 'ws://h/', tls: {client_certificate: c}}}, a.upstream: {}}".utf8)
      })
    #expect(outcome.hasErrors(in: "sessions.a.upstream.tls") && outcome.hasErrors(in: "sessions.a.upstream.upstream"))
    #expect(!outcome.hasErrors(in: "sessions.a.upstream.upstream.tls") && !outcome.hasErrors(in: "upstream.tls"))
  }

  @Test func showsTheChangedSettingsOfASessionWithoutSecrets() throws {
    let outcome = try load(
      """
      sessions:
        m:
          upstream:
            url: wss://u:s3cret@h/?s3cret
            headers: {A: s3cret}
            queue: {high_water: 32KiB}

      """)
    let shown = outcome.displayedSettings.filter { $0.path.hasPrefix("sessions.") }
    #expect(
      shown.map { "\($0.path): \(outcome.displayText(of: $0))" } == [
        #"sessions.m.upstream.url: "wss://***@h/?***""#, "sessions.m.upstream.headers: (secret)",
        "sessions.m.upstream.queue.high_water: 32KiB", "sessions.m.upstream.queue.low_water: 32KiB",
      ])
  }

  @Test func aDeeplyNestedSettingOfASessionIsRead() throws {
    let text = "sessions: {m: {upstream: {url: 'ws://h/', on_open: [{expect: {json_has: [/a]}}]}}}"
    #expect(try load(text).settings.sessions[0].configuration.upstream.conventions.onOpen.count == 1)
  }
}
