import Foundation
import Inbox
import Profiles
import Sessions
import Testing
import Upstream
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

@testable import Configuration

/// `profiles`: the settings of a profile, and the settings of a session with given values.
@Suite struct ProfileTests {
  private let text = """
    profiles:
      market:
        variables:
          symbol: {pattern: "[A-Z]{3,8}"}
          depth: {maximum_length: 2, default: 5}
        hosts: [feed.example]
        upstream:
          url: wss://feed.example/{symbol}?depth={depth}
          fallback_urls: ["wss://feed.example/b/{symbol}"]
          headers: {X-Symbol: "sym {symbol}"}
          on_open: [{send: '{"subscribe":"{symbol}","depth":{depth}}'}]
          on_close: 'end {symbol}'
          heartbeat:
            client: {message: '{"beat":"{symbol}"}'}
            server: {match: ping, reply: '{"pong":"{symbol}"}'}
        delivery: {messages: 7}
    """

  @Test func aProfileWithValuesIsASession() throws {
    let settings = try load(text).settings
    #expect(settings.profiles.count == 1)
    let profile = settings.profiles[0]
    #expect(profile.name == "market" && profile.configuration.retention.count == 7)
    let upstream = try profile.upstream(profile.variables.values(["symbol": "BTC"]))
    #expect(upstream.urls.map(\.text) == ["wss://feed.example/BTC?depth=5", "wss://feed.example/b/BTC"])
    #expect(upstream.fields == [RequestField(name: "X-Symbol", value: "sym BTC")])
    let message = try #require(upstream.conventions.onOpen.first?.send)
    #expect(try message.rendered(with: TemplateValues()) == Array(#"{"subscribe":"BTC","depth":5}"#.utf8))
    let (client, server) = (upstream.conventions.client.message, upstream.conventions.server.reply)
    #expect(try client?.rendered(with: TemplateValues()) == Array(#"{"beat":"BTC"}"#.utf8))
    #expect(try server?.rendered(with: TemplateValues()) == Array(#"{"pong":"BTC"}"#.utf8))
    #expect(try upstream.conventions.onClose.first?.rendered(with: TemplateValues()) == Array("end BTC".utf8))
    #expect(upstream.connectionRules?.hosts.texts == ["feed.example"])
    #expect(upstream.session.endpoints.count == 2 && upstream.session.setup.count == 1)
  }

  @Test func aGatewayNeedsNoSessionBesidesProfiles() throws {
    let outcome = try load(text)
    #expect(outcome.settings.configuredSessions.isEmpty)
    #expect(outcome.warnings == [])
  }

  @Test func aValueThatIsNotANumberIsRefusedOutsideOfAString() throws {
    let profile = try load(text).settings.profiles[0]
    #expect(throws: VariableError.self) { try profile.upstream(["symbol": "BTC", "depth": "x"]) }
  }

  @Test(arguments: [
    (
      "profiles: x",
      "d.yaml:1:11: 'profiles' must map names to settings, as in 'market: {upstream: {url: \"wss://example.org/{symbol}\"}}'"
    ),
    (
      "profiles: {a.b: {}}",
      "d.yaml:1:12: 'a.b' is not a valid name of a profile: use 1 to 64 letters, digits, '_' and '-'"
    ),
    ("profiles: {m: }", "d.yaml:1:12: 'profiles.m.upstream.url' is not set, but every profile needs a URL"),
    (
      "profiles: {m: {upstream: {url: 'http://a/'}}}",
      "d.yaml:1:32: 'http://a/' is not valid for 'profiles.m.upstream.url': 'http' is not a WebSocket scheme: write ws:// or wss://"
    ),
    (
      "profiles: {m: {upstream: {url: 'wss://a/{x}'}}}",
      "d.yaml:1:32: 'wss://a/{x}' is not valid for 'profiles.m.upstream.url': variable '{x}' is not declared in 'variables'"
    ),
    (
      "profiles: {m: {variables: {x: }, upstream: {url: 'wss://{x}/'}}}",
      "d.yaml:1:50: 'wss://***' is not valid for 'profiles.m.upstream.url': a variable is part of the host: list the hosts that are possible in 'hosts'"
    ),
    (
      "profiles: {m: {upstream: {url: 'ws://127.0.0.1/'}}}",
      "d.yaml:1:32: 'ws://127.0.0.1/' is not valid for 'profiles.m.upstream.url': the address is loopback, which is refused unless 'addresses.allow' of the profile has it"
    ),
    (
      "profiles: {m: {upstream: {url: 'ws://a/', proxy: 'http://p:1'}}}",
      "d.yaml:1:32: 'ws://a/' is not valid for 'profiles.m.upstream.url': a proxy would resolve the host 'a', which needs 'hosts' of the profile"
    ),
    (
      "profiles: {m: {variables: {1x: }, upstream: {url: 'ws://a/'}}}",
      "d.yaml:1:28: '1x' is not valid as the name of a variable: use 1 to 32 letters, digits and underscores, beginning with a letter"
    ),
    (
      "profiles: {m: {variables: {x: {pattern: '(a)'}}, upstream: {url: 'ws://a/'}}}",
      "d.yaml:1:41: '(a)' is not valid for 'profiles.m.variables.x.pattern': use characters and classes, each with ?, *, + or {m,n}, such as [A-Z]{3,8} or order-\\d+; groups and alternatives are not supported"
    ),
    (
      "profiles: {m: {variables: {x: {pattern: 'a', default: b}}, upstream: {url: 'ws://a/'}}}",
      "d.yaml:1:31: the default of 'profiles.m.variables.x' is not accepted: it does not match the pattern a"
    ),
    (
      "profiles: {m: {hosts: ['*a'], upstream: {url: 'ws://a/'}}}",
      "d.yaml:1:24: '*a' is not valid for 'profiles.m.hosts': use a name, an address, '*.example.org' for its subdomains, or '*' for any host"
    ),
    (
      "profiles: {m: {addresses: {allow: [10.0.0.0/40]}, upstream: {url: 'ws://a/'}}}",
      "d.yaml:1:36: '10.0.0.0/40' is not valid for 'profiles.m.addresses.allow': use a block such as 10.0.0.0/8 or fd00::/8, or an address"
    ),
    (
      "profiles: {m: {upstream: {url: 'ws://a/', headers: {A: '{x}'}}}}",
      "d.yaml:1:53: this value is not valid for 'profiles.m.upstream.headers': variable '{x}' is not declared in 'variables'"
    ),
    (
      "profiles: {m: {upstream: {ulr: 'ws://a/'}}}",
      "d.yaml:1:27: unknown key 'profiles.m.upstream.ulr' (did you mean 'url'?)"
    ),
    (
      "profiles: {m: {loops: 1, upstream: {url: 'ws://a/'}}}",
      "d.yaml:1:16: 'profiles.m.loops' applies to the whole gateway: set it at the top of the file"
    ),
  ])
  func reportsFaultsOfAProfile(text: String, message: String) { #expect(errors(text + "\n") == [message]) }

  /// With `*`, a client could send the configured secrets to its own host.
  @Test(
    arguments: [
      ("headers: {X-Key: secret}", "the header field 'X-Key'"),
      ("credential: {env: F, header: 'Authorization: Bearer ${credential}'}", "'upstream.credential'"),

      ("headers: {Origin: 'https://a', X-User: '{host}'}", nil), ("on_open: [{send: 'a {host}'}]", nil),
      ("on_open: [{send: '${file:/f}'}]", "a file of 'upstream.on_open'"),
      ("on_close: ['a {host}', '${hmac_sha256_hex:${file:/f}:a}']", "a file of 'upstream.on_close'"),
      ("heartbeat: {client: {message: '${file:/f}'}}", "a file of 'upstream.heartbeat'"),
      (
        "credential: {header: 'X-Sign: ${hmac_sha256_hex:${file:/f}:${now}}'}", "a file of 'upstream.credential.header'"
      ),
    ] as [(String, String?)])
  func secretsNeedHostsThatAreListed(setting: String, secret: String?) {
    func found(_ hosts: String, _ url: String = "ws://{host}/") -> [String] {
      errors(
        "profiles: {m: {variables: {host: }, hosts: ['\(hosts)'], upstream: {url: '\(url)', \(setting)}}}\n",
        environment: ["F": "a"], files: ["/f": "a"])
    }
    let reason = secret.map {
      "with '*', a client chooses the host, which would receive \($0): list the hosts that may receive it"
    }
    #expect(found("*").count == (secret == nil ? 0 : 1))
    if let reason { #expect(found("*").first?.hasSuffix(reason) == true, "\(found("*"))") }
    #expect(found("*.example.org") == [] && found("*", "ws://a.example/{host}") == [])
    if secret != nil { #expect(found("*", "ws://user:pass@{host}/").count == 1) }
  }

  @Test func aReloadChangesProfilesWithoutARestart() throws {
    let old = try load(text).settings
    let new = try load(text.replacingOccurrences(of: "messages: 7", with: "messages: 8") + "\n").settings
    let (effective, requiringRestart) = new.effective(after: old)
    #expect(effective.profiles == new.profiles && requiringRestart.isEmpty)
    #expect(try load("upstream: {url: 'ws://a/'}").settings.effective(after: old).settings.profiles.isEmpty)
  }
}
