import ByteStreams
import Sessions
import Upstream
import UpstreamProtocol
import JSONCodec
import Profiles
import Testing
import WebSocketCodec

@testable import Configuration

/// Settings that consist of several values.
@Suite struct StructureTests {
  private static let environment = ["TOKEN": "t0p"]
  private static let opening = """
    upstream:
      on_open:
        - expect: {json: {/type: auth_required}}
        - send: '{"type":"auth","access_token":"${env:TOKEN}"}'
          expect:
            json: {/type: auth_ok, /version: 2}
            json_prefix: {/id: hb-}
            json_has: [/a, /b]
            prefix: "{"
          refuse: {json: {/type: auth_invalid}}
          resumed: {json: {/type: resumed}}
          timeout: 500ms
        - send: hello
      heartbeat:
        client: {message: "ping ${counter} ${capture:s_1-A}", interval_from: "beat:seconds", expect: pong}
        server:
          match: [ping, {json_has: /ping}]
          reply: '{"pong":${raw:/ping}}'
          within: 1m
      failure: [{match: {json: {/a: timeout}}, cause: 'too "late"'}, {match: bye, cause: b}]
      payload_codec: gzip
      cursor: {pointer: /seq, match: {prefix: "{"}, initial: "0"}
      capture:
        s_1-A: {match: {json_has: /s}, pointer: [/s, {prefix: 'a "', until: " "}, {after: "\nid:"}], show: true, keep: true}
        beat: {pointer: /beat}
      binary: text
      acknowledge: [{match: {json_has: /ack}, send: '{"ack":${raw:/ack}}', when: stored}, {match: a, send: b}]
      topic: {pointer: [/channel, {prefix: "t "}], rules: [{match: {prefix: tick}, topic: ticks}, {match: hello, topic: "a b"}, {match: {contains: [a, 'b"']}, topic: c}]}
      subscriptions: {add: {match: {prefix: "{", graphql: {/q: subscription}}, key: /id}}
      correlation: {request: /1, reply: /reply/id, match: {json: {/0: "3"}}, ids: sequence}

    """

  private func load(
    _ text: String?, environment: [String: String] = environment, files: [String: String] = [:]
  ) throws(ConfigurationErrors) -> GatewaySettings {
    try ConfigurationLoader.load(
      file: text == nil ? nil : "d.yaml", environment: environment, flags: [],
      readFile: { $0 == "d.yaml" ? text.map { Array($0.utf8) } : files[$0].map { Array($0.utf8) } }
    ).settings
  }

  @Test func readsOnOpenAndHeartbeats() throws {
    let conventions = try load(Self.opening).session.upstream.conventions
    #expect(conventions.onOpen.count == 3)
    #expect(conventions.onOpen[0].send == nil && conventions.onOpen[0].expect?.alternatives.map(\.count) == [1])
    #expect(conventions.onOpen[1].expect?.alternatives.map(\.count) == [6] && conventions.onOpen[1].refuse != nil)
    #expect(conventions.onOpen[1].timeout == .milliseconds(500))
    #expect(conventions.onOpen[2].expect == nil && conventions.onOpen[2].timeout == .seconds(10))
    #expect(conventions.client.expect == Matcher([.text("pong")]))
    #expect(conventions.server.match?.alternatives.count == 2)
    #expect(conventions.subscriptions.add.match?.alternatives.map(\.count) == [2])
    #expect(conventions.server.within == .minutes(1) && conventions.server.reply != nil)
    #expect(conventions.cursor.pointer?.description == "/seq" && conventions.cursor.initial != nil)
    #expect(conventions.codec == .gzip && conventions.failures.map(\.cause) == ["too \"late\"", "b"])
    #expect(conventions.topics.source?.places.count == 2 && conventions.topics.rules.count == 3)
    #expect(conventions.onOpen[1].resumed != nil && conventions.binary == .text)
    #expect(conventions.acknowledgements.map(\.moment) == [.stored, .received])
    #expect(conventions.client.intervalCapture == CapturedInterval("beat:seconds"))
    #expect(conventions.captures.map(\.name) == ["s_1-A", "beat"] && conventions.keptCaptures == ["s_1-A"])
    #expect(conventions.captures[0].isShown && !conventions.captures[1].isShown)
    #expect(conventions.captures[0].match != nil && conventions.captures[0].source.places.count == 3)
    let correlation = try #require(conventions.correlation)
    #expect(correlation.request.description == "/1" && correlation.ids == .sequence)
    let reply = Correlation.Reply(
      try #require(JSONPointer("/reply/id")), .matching(Matcher([.value(try #require(JSONPointer("/0")), "3")])))
    #expect(correlation.replies == [reply])
    #expect(conventions.topics.rules[1] == TopicSource.Rule(match: Matcher([.text("hello")]), topic: "a b"))
  }

  @Test func messagesMayBeBinary() throws {
    let text = """
      upstream:
        on_open: [{send: !!binary EAAA, expect: ok}, {send: text}]
        on_close: ["bye ${env:TOKEN}", !!binary "4A A="]
        heartbeat: {client: {message: !!binary wP8=}, server: {match: a, reply: !!binary ''}}
      """
    let settings = try load(text)
    let conventions = settings.session.upstream.conventions
    let values = TemplateValues()
    #expect(conventions.onOpen.map { $0.send?.kind } == [.binary, .text])
    #expect(try conventions.onOpen[0].send?.rendered(with: values) == [0x10, 0, 0])
    #expect(try conventions.onClose.map { try $0.rendered(with: values) } == [Array("bye t0p".utf8), [0xE0, 0]])
    #expect(conventions.onClose.map(\.kind) == [.text, .binary])
    #expect(try conventions.client.message?.rendered(with: values) == [0xC0, 0xFF])
    #expect(conventions.server.reply?.kind == .binary)
    for path in ["upstream.on_open", "upstream.on_close"] {
      let setting = try #require(Setting.all.first { $0.path == path })
      let shown = setting.format(settings)
      #expect(shown.contains("!!binary \""))
      let environment = Self.environment.merging([setting.environmentName: shown]) { $1 }
      #expect(setting.format(try load(nil, environment: environment)) == shown)
    }
    #expect(try load("upstream: {on_close: bye}").session.upstream.conventions.onClose.count == 1)
    #expect(try load("upstream: {on_close: ''}").session.upstream.conventions.onClose.isEmpty)
  }

  @Test func correlationMayBeAPreset() throws {
    #expect(try load("upstream: {correlation: jsonrpc}").session.upstream.conventions.correlation == .jsonRPC)
    #expect(try load("upstream: {correlation: ''}").session.upstream.conventions.correlation == nil)
    #expect(
      try load("upstream: {correlation: {protocol: jsonrpc, ids: string}}").session.upstream.conventions.correlation
        == .jsonRPC(.string))
    let environment = ["DRAWBRIDGE_UPSTREAM_CORRELATION": "jsonrpc"]
    let settings = try load(nil, environment: environment)
    #expect(settings.session.upstream.conventions.correlation == .jsonRPC)
    let setting = try #require(Setting.all.first { $0.path == "upstream.correlation" })
    #expect(setting.format(settings) == "jsonrpc")
  }

  @Test func repliesMayHaveSeveralForms() throws {
    let value =
      "{request: /1, reply: [{pointer: /1, match: {json: {/0: 50}}}, {pointer: /2}], ignore: {json: {/a: ack}}}"
    let settings = try load("upstream: {correlation: \(value)}")
    let correlation = try #require(settings.session.upstream.conventions.correlation)
    #expect(correlation.replies.map(\.pointer.description) == ["/1", "/2"])
    #expect(correlation.replies[1].shape == .any && correlation.ignore != nil && correlation.ids == .keepType)
    let setting = try #require(Setting.all.first { $0.path == "upstream.correlation" })
    let shown = setting.format(settings)
    #expect(try load("upstream: {correlation: \(shown)}").session.upstream.conventions.correlation == correlation)
    // The short form has the same meaning.
    let short = try load("upstream: {correlation: {request: /a, reply: /b, match: x}}")
    let long = try load("upstream: {correlation: {request: /a, reply: [{pointer: /b, match: x}]}}")
    #expect(setting.format(short) == #"{request: "/a", reply: "/b", match: {text: "x"}}"# && short == long)
  }

  /// The text that `check-config` shows for a setting has the same meaning in an environment variable.
  @Test func readsValuesAsItShowsThem() throws {
    let settings = try load(Self.opening)
    for setting in Setting.all where setting.isStructured {
      let shown = setting.format(settings)
      guard shown != setting.format(GatewaySettings()) else { continue }
      let isText = if case .structure(isText: true, _) = setting.shape { true } else { false }
      let value = isText ? String(shown.dropFirst().dropLast()).replacing("\\\"", with: "\"") : shown
      // The value alone may violate a rule between settings, so the test only reads it and checks no rules.
      let other = ConfigurationLoader.read(
        file: nil, environment: Self.environment.merging([setting.environmentName: value]) { $1 }, flags: [],
        readFile: { _ in nil }
      ).settings
      #expect(setting.format(other) == shown)
    }
  }

  @Test(arguments: [
    ("on_close: [a, '']", "d.yaml:2:17: 'upstream.on_close[1]' is empty"),
    (
      "on_close: ['${counter}']",
      "d.yaml:2:14: in 'upstream.on_close[0]': '${counter}' is not allowed here, only in 'upstream.heartbeat.client.message'"
    ),
    (
      "failure: {match: a}",
      "d.yaml:2:12: 'upstream.failure' needs 'match' and a 'cause' of 1 to 256 bytes, as in {match: {json: {/type: timeout}}, cause: the session has timed out}"
    ),
    (
      "failure: [{match: {contains: a}, cause: b}]",
      "d.yaml:2:21: 'upstream.failure[0].match' must not use 'contains', since any text in a message could then trigger it: use text, prefix, json, json_prefix, json_has, graphql"
    ),
    (
      "correlation: json-rpc",
      "d.yaml:2:16: 'json-rpc' is not valid for 'upstream.correlation': use jsonrpc, or {request: /id, reply: /id}"
    ),
    (
      "correlation: {request: /id}",
      "d.yaml:2:16: 'upstream.correlation' needs 'request' and 'reply': the JSON pointers of the id in each, such as /id"
    ),
    (
      "correlation: {request: /id, reply: /id, ids: sequenc}",
      "d.yaml:2:48: 'sequenc' is not valid for 'upstream.correlation.ids': use keep-type, string, sequence (did you mean 'sequence'?)"
    ),
    (
      "correlation: {protocol: jsonrpc, match: a}",
      "d.yaml:2:16: 'upstream.correlation.protocol' already says where the id is: leave out 'request', 'reply' and 'match'"
    ),
    (
      "correlation: {request: /id, reply: [{match: a}]}",
      "d.yaml:2:39: 'upstream.correlation.reply[0]' needs 'pointer': the JSON pointer of the id, such as /id"
    ),
    (
      "correlation: {request: /id, reply: [{pointer: /id}, {pointer: /a}], match: a}",
      "d.yaml:2:16: 'upstream.correlation.match' has no effect on a list: write 'match' into each entry of 'upstream.correlation.reply'"
    ),
    (
      "correlation: {request: /id, reply: []}",
      "d.yaml:2:16: 'upstream.correlation' needs 'request' and 'reply': the JSON pointers of the id in each, such as /id"
    ),
    (
      "{correlation: {protocol: jsonrpc, ids: sequence}, subscriptions: {add: {match: a, key: /id}}}",
      "d.yaml:2:90: 'upstream.subscriptions.add.key' cannot be used: with 'upstream.correlation.ids: sequence', the id at '/id' is a different number on each connection: choose another key, or subscribe in upstream.on_open"
    ),
    (
      "correlation: {request: /id, reply: /id, ids: sequence}",
      "d.yaml:2:16: 'upstream.correlation' cannot be used: with 'ids: sequence', another message of the upstream may have the number of a call: set 'match', which only replies match"
    ),
    (
      "correlation: {request: id, reply: /id}",
      "d.yaml:2:26: 'id' is not a JSON pointer: it must begin with '/', as in /data/sequence"
    ),
    (
      "heartbeat: {server: {match: [ping, '']}}",
      "d.yaml:2:38: 'upstream.heartbeat.server.match[1]' is empty and would match every message"
    ),
    (
      "heartbeat: {server: {match: {graphql: {/q: subscribe}}}}",
      "d.yaml:2:41: 'subscribe' is not valid for 'upstream.heartbeat.server.match.graphql': use query, mutation, subscription"
    ),
    ("on_open: [{sned: x}]", "d.yaml:2:14: unknown key 'upstream.on_open[0].sned' (did you mean 'send'?)"),
    (
      "on_open: [{timeout: 1s}]",
      "d.yaml:2:13: 'upstream.on_open[0]' does nothing: set 'send', 'expect' or both"
    ),
    (
      "on_open: [{send: x, refuse: y}]",
      "d.yaml:2:13: 'upstream.on_open[0]' has 'refuse' without 'expect': set 'expect' as well"
    ),
    (
      "on_open: [{send: x, timeout: soon}]",
      "d.yaml:2:32: 'soon' is not valid for 'upstream.on_open[0].timeout': use a duration such as 500ms, 20s or 10m"
    ),
    (
      "on_open: [{send: \"${env:NOPE}\"}]",
      "d.yaml:2:20: in 'upstream.on_open[0].send': environment variable 'NOPE' is not set"
    ),
    ("on_open: [{send: \"${file:/nope}\"}]", "d.yaml:2:20: file '/nope' cannot be read"),
    (
      "on_open: [{send: \"${counter}\"}]",
      "d.yaml:2:20: in 'upstream.on_open[0].send': '${counter}' is not allowed here, only in 'upstream.heartbeat.client.message'"
    ),
    (
      "on_open: hello",
      "d.yaml:2:12: 'upstream.on_open' must be a list of at most 64 steps, as in [{send: hello, expect: {prefix: welcome}}]"
    ),
    (
      "heartbeat: {server: {match: {json: {type: x}}}}",
      "d.yaml:2:39: 'type' is not a JSON pointer: it must begin with '/', as in /data/sequence"
    ),
    (
      "heartbeat: {server: {match: {jsn: {/type: x}}}}",
      "d.yaml:2:32: unknown key 'upstream.heartbeat.server.match.jsn' (did you mean 'json'?)"
    ),
    (
      "heartbeat: {server: {match: [[a]]}}",
      "d.yaml:2:32: 'upstream.heartbeat.server.match[0]' must have keys and values: use the keys text, prefix, contains, json, json_prefix, json_has, graphql"
    ),
    (
      "heartbeat: {server: {match: {contains: [a, '']}}}",
      "d.yaml:2:46: 'upstream.heartbeat.server.match.contains' is empty and would match every message"
    ),
    (
      "on_open: [{expect: a, refuse: [b, {contains: c}]}]",
      "d.yaml:2:33: 'upstream.on_open[0].refuse' must not use 'contains', since any text in a message could then trigger it: use text, prefix, json, json_prefix, json_has, graphql"
    ),
    (
      "subscriptions: {ended: {match: {contains: c}}}",
      "d.yaml:2:34: 'upstream.subscriptions.ended.match' must not use 'contains', since any text in a message could then trigger it: use text, prefix, json, json_prefix, json_has, graphql"
    ),
    (
      "url_from: b\n  capture: {b: {pointer: /a}}",
      "d.yaml:2:13: 'upstream.url_from' cannot be used: it needs 'upstream.capture.b' with 'keep: true'"
    ),
    (
      "url_from: b\n  captured_hosts: ['*']\n  capture: {b: {pointer: /a, keep: true}}",
      "d.yaml:3:19: 'upstream.captured_hosts' cannot be used: '*' would send the secrets of this session to any host: list the hosts"
    ),
    (
      "captured_hosts: [a.example]",
      "d.yaml:2:19: 'upstream.captured_hosts' cannot be used: it has no effect without 'upstream.url_from'"
    ),
    (
      "on_open: [{send: x, resumed: y}]",
      "d.yaml:2:13: 'upstream.on_open[0]' has 'resumed' without 'expect': set 'expect' as well"
    ),
    (
      "on_open: [{send: x, if_captured: a, unless_captured: a}]\n  capture: {a: {pointer: /a}}",
      "d.yaml:2:56: 'upstream.on_open[0]' must have only one of 'if_captured' and 'unless_captured'"
    ),
    (
      "on_open: [{send: x, if_captured: a b}]",
      "d.yaml:2:36: 'a b' is not valid for 'upstream.on_open[0].if_captured': use the name of a captured value"
    ),
    (
      "on_open: [{send: x, unless_captured: a}]",
      "d.yaml:2:12: 'upstream.on_open' cannot be used: step 1 depends on 'a': set 'upstream.capture.a'"
    ),
    (
      "failure: {match: a, cause: b, forget: maybe}",
      "d.yaml:2:41: 'maybe' is not valid for 'upstream.failure.forget': use true or false"
    ),
    (
      "subscriptions: {replace: {/a: b}}",
      "d.yaml:2:28: 'upstream.subscriptions.replace' cannot be used: there is no rule for 'b': set 'upstream.capture.b'"
    ),
    (
      "subscriptions: {replace: {a: b}}",
      "d.yaml:2:29: 'a' is not a JSON pointer: it must begin with '/', as in /data/sequence"
    ),
    (
      "subscriptions: {replace: {/a: b c}}",
      "d.yaml:2:28: 'b c' is not valid for 'upstream.subscriptions.replace': use the name of a captured value"
    ),
    (
      "on_open: [{expect: a, resumed: {contains: c}}]",
      "d.yaml:2:34: 'upstream.on_open[0].resumed' must not use 'contains', since any text in a message could then trigger it: use text, prefix, json, json_prefix, json_has, graphql"
    ),
    (
      "acknowledge: {match: a}",
      "d.yaml:2:16: 'upstream.acknowledge' needs 'match' and 'send', as in {match: {json_has: /ack}, send: '{\"ack\":${raw:/ack}}'}"
    ),
    (
      "acknowledge: {match: a, send: b, when: later}",
      "d.yaml:2:42: 'later' is not valid for 'upstream.acknowledge.when': use received, stored"
    ),
    (
      "acknowledge: {match: a, send: '${credential}'}",
      "d.yaml:2:33: in 'upstream.acknowledge.send': '${credential}' is not allowed here, only in 'upstream.on_open', 'upstream.on_close' and 'upstream.credential.header'"
    ),
    (
      "kind: socketio\n  acknowledge: {match: a, send: b}",
      "d.yaml:3:16: 'upstream.acknowledge' cannot be used: not possible with 'kind: socketio': events have acknowledgements; use 'upstream.socketio.acks'"
    ),
    (
      "on_open: [{send: 'a ${capture:b}'}]",
      "d.yaml:2:12: 'upstream.on_open' cannot be used: '${capture:b}' has no rule: set 'upstream.capture.b'"
    ),
    (
      "on_open: [{send: '[${json:${capture:b}}]'}]",
      "d.yaml:2:20: in 'upstream.on_open[0].send': '${json:…}' around '${capture:b}' must be inside a string: leave it out, since '${capture:…}' is escaped automatically"
    ),
    (
      "heartbeat: {client: {message: a, interval_from: b}}",
      "d.yaml:2:51: 'upstream.heartbeat.client.interval_from' cannot be used: there is no rule for 'b': set 'upstream.capture.b'"
    ),
    (
      "heartbeat: {client: {message: a, interval_from: 'b:s'}}",
      "d.yaml:2:51: 'b:s' is not valid for 'upstream.heartbeat.client.interval_from': use the name of a captured value in milliseconds, or NAME:seconds"
    ),
    (
      "capture: {b: {match: c}}",
      "d.yaml:2:16: 'upstream.capture.b' needs 'pointer': the JSON pointer of the value, such as /session_id"
    ),
    (
      "capture: {'a b': {pointer: /a}}",
      "d.yaml:2:13: 'a b' is not a valid name for 'upstream.capture': use 1 to 64 letters, digits, '_' and '-'"
    ),
    (
      "capture: {b: {pointer: /a, keep: 1}}",
      "d.yaml:2:36: '1' is not valid for 'upstream.capture.b.keep': use true or false"
    ),
    (
      "capture: {b: {pointer: {until: a}}}",
      "d.yaml:2:26: 'upstream.capture.b.pointer' needs 'prefix' or 'after': the text before the value, as in {prefix: \"tick \", until: \" \"}"
    ),
    (
      "capture: {b: {pointer: {prefix: a, after: b}}}",
      "d.yaml:2:26: 'upstream.capture.b.pointer' must have only one of 'prefix' and 'after'"
    ),
    (
      "capture: {b: {pointer: id}}",
      "d.yaml:2:26: 'id' is not a JSON pointer: it must begin with '/', as in /data/sequence"
    ),
    (
      "topic: {rules: [{match: a}]}",
      "d.yaml:2:19: 'upstream.topic.rules[0]' needs 'match' and a 'topic' of 1 to 256 bytes"
    ),
    (
      "topic: {rules: [{topic: a, match: {}}]}",
      "d.yaml:2:19: 'upstream.topic.rules[0]' needs 'match' and a 'topic' of 1 to 256 bytes"
    ),
    (
      "topic: {rules: tick}",
      "d.yaml:2:18: 'upstream.topic.rules' must be a list of at most 64 rules, as in [{match: {prefix: tick}, topic: ticks}]"
    ),
    (
      "cursor: {pointer: seq}", "d.yaml:2:21: 'seq' is not a JSON pointer: it must begin with '/', as in /data/sequence"
    ),
    (
      "payload_codec: zip",
      "d.yaml:2:18: 'zip' is not valid for 'upstream.payload_codec': use one of raw, gzip, deflate, auto (did you mean 'gzip'?)"
    ),
  ])
  func reportsThePlaceAndTheAcceptedValues(line: String, message: String) {
    do throws(ConfigurationErrors) {
      _ = try load("upstream:\n  \(line)\n")
      Issue.record("taken: \(line)")
    } catch {
      #expect(error.errors.map(\.description) == [message])
    }
  }

  @Test func showsNoControlCharacter() throws {
    let setting = try #require(Setting.all.first { $0.path == "upstream.cursor.match" })
    let shown = setting.format(try load(#"upstream: {cursor: {match: "a\b\x8f\u2028"}}"#))
    #expect(shown == #"{text: "a\x08\x8f\u2028"}"#)
    #expect(setting.format(try load("upstream: {cursor: {match: \(shown)}}")) == shown)
  }

  /// An error in a structured setting counts towards the limit like any other error.
  @Test func reportsALimitedNumberOfErrors() {
    let unknown = (0..<ConfigurationErrors.limit).map { "  unknown\($0): 1\n" }.joined()
    do throws(ConfigurationErrors) {
      _ = try load(
        "upstream:\n\(unknown)  on_open: soon\n", environment: ["DRAWBRIDGE_UPSTREAM_ON_OPEN": "[{send: x}"])
      Issue.record("taken")
    } catch {
      #expect(error.errors.count == ConfigurationErrors.limit)
      #expect(error.errors.allSatisfy { $0.message.hasPrefix("unknown key 'upstream.unknown") })
    }
  }

  /// A captured URL is input from outside.
  @Test func capturedURLsLeadOnlyToConfiguredAndListedHosts() throws {
    func settings(_ url: String) throws -> UpstreamSettings {
      try load(
        """
        upstream:
          url: \(url)
          headers: {X-Key: k}
          url_from: u
          captured_hosts: ["*.example.gg", 10.0.0.5]
          capture: {u: {pointer: /u, keep: true}}
        """
      ).session.upstream
    }
    let secure = try settings("wss://a.example/")
    func refusal(_ url: String, _ settings: UpstreamSettings) throws -> String? {
      settings.refusal(ofCapturedURL: try WebSocketURL(url))
    }
    for url in ["wss://a.example/x", "wss://b.example.gg:9/", "wss://a.b.EXAMPLE.gg./", "wss://10.0.0.5/"] {
      #expect(try refusal(url, secure) == nil)
      let parsed = try WebSocketURL(url)
      #expect(secure.isConfigured(parsed) && secure.fields(for: parsed).count == 1)
    }
    for url in [
      "wss://example.gg/", "wss://a.example:444/", "wss://badexample.gg/", "wss://a.example.gg.evil.org/",
      "wss://127.0.0.1/", "wss://[::ffff:10.0.0.5]/", "wss://[::1]/", "wss://evil-example.gg/", "wss://b%2eexample.gg/",
      "wss://xn--example-9ta.gg/", "wss://a.example.gg.evil.org./", "wss://a.example.gg@evil.org/", "wss://10.0.0.6/",
      "wss://evil.org/?a.example.gg", "wss://.example.gg/",
    ] {
      #expect(try refusal(url, secure) == "its host is not in 'upstream.captured_hosts'")
      let parsed = try WebSocketURL(url)
      #expect(!secure.isConfigured(parsed) && !secure.fields(for: parsed).contains { $0.name == "X-Key" })
    }
    for url in ["ws://a.example/", "ws://b.example.gg/", "ws://10.0.0.5/"] {
      #expect(try refusal(url, secure) == "it is ws, and a configured URL is wss")
      #expect(!secure.isConfigured(try WebSocketURL(url)), "a redirection must not lead secrets to ws either")
    }
    let plain = try settings("ws://a.example/")
    #expect(try refusal("ws://b.example.gg/", plain) == nil)
    #expect(try refusal("wss://b.example.gg/", plain) == nil)

    // A name server chooses the addresses of a listed name. A listed address is allowed.
    #expect(secure.rules(for: try WebSocketURL("wss://a.example/")) == nil)
    #expect(secure.rules(for: try WebSocketURL("wss://10.0.0.5/")) == nil)
    let rules = try #require(secure.rules(for: try WebSocketURL("wss://b.example.gg/")))
    #expect(rules.refusal(ofHost: "b.example.gg", isProxied: true) == nil)
    #expect(
      rules.refusal(of: .ipv4(0x7F00_0001))
        == "the address is loopback, which is refused unless 'upstream.captured_hosts' has it")
    for text in [
      "wss://b.example.gg\u{e9}/", "wss://\u{e9}.example.gg/", "wss://evil.org\\.example.gg/",
      "wss://b.example.gg:99999/", "wss://b.example.gg/\0",
    ] {
      #expect(throws: WebSocketURLError.self, "\(text)") { try WebSocketURL(text) }
    }
    for text in ["wss://a.example/\r\nX-Y: z", "wss://a.example/#f", "http://a.example/", "/resume", "", "wss://"] {
      #expect(throws: WebSocketURLError.self) { try WebSocketURL(text) }
    }
  }

  /// The path may contain a token.
  @Test func thePathOfACapturedURLIsHidden() throws {
    let configured = try WebSocketURL("wss://a.example/feed?v=10")
    let captured = try WebSocketURL("wss://b.example/t0ken?key=s").withQuery(of: configured).withSecretPath
    #expect(captured.redacted == "wss://b.example/***" && captured.target == "/t0ken?key=s")
    let bare = try WebSocketURL("wss://b.example").withQuery(of: configured).withSecretPath
    #expect(bare.redacted == "wss://b.example/" && bare.target == "/?v=10")
  }

  @Test func aVariableHasTheEffectOfTheFile() throws {
    let settings = try load(
      nil,
      environment: [
        "DRAWBRIDGE_UPSTREAM_ON_OPEN": #"[{"send":"hello","expect":{"prefix":"welcome"}}]"#,
        "DRAWBRIDGE_UPSTREAM_HEARTBEAT_CLIENT_MESSAGE": #"{"op":"ping"}"#,
        "DRAWBRIDGE_UPSTREAM_HEARTBEAT_SERVER_MATCH": "{json_has: /ping}",
      ])
    #expect(settings.session.upstream.conventions.onOpen.count == 1)
    #expect(settings.session.upstream.conventions.client.message?.description == #"{"op":"ping"}"#)
    #expect(settings.session.upstream.conventions.server.match != nil)
    #expect(throws: ConfigurationErrors.self) {
      try load(nil, environment: ["DRAWBRIDGE_UPSTREAM_ON_OPEN": "[{send: x}"])
    }
  }
}
