import ByteStreams
import Sessions
import Testing
import Upstream
import UpstreamSession
import WebSocketCodec

@testable import Configuration

/// YAML's anchors, aliases and merge keys, which let several sessions use the same text.
@Suite struct AliasTests {
  @Test func anAliasRepeatsTheValueOfItsAnchor() throws {
    let sessions = try load(
      """
      sessions:
        a: {upstream: {url: 'ws://a/', reconnect: &patient {maximum: 2m, base: 3s}, subprotocols: &names [v1, v2]}}
        b: {upstream: {url: 'ws://b/', reconnect: *patient, subprotocols: *names}}

      """
    ).settings.configuredSessions.map(\.configuration.upstream)
    #expect(sessions.map(\.session.backoff.maximum) == [.minutes(2), .minutes(2)])
    #expect(sessions.map(\.subprotocols) == [["v1", "v2"], ["v1", "v2"]])
  }

  @Test func aMergeKeyAddsMembersThatAreNotSet() throws {
    let outcome = try load(
      """
      sessions:
        a:
          upstream: &base {url: 'ws://a/', on_demand: true, idle_after: 1m}
        b:
          upstream:
            <<: [{overlap: 2s, idle_after: 3m}, *base]
            url: ws://b/

      """)
    let b = outcome.settings.sessions[1].configuration.upstream
    #expect(b.url?.host == "b" && b.session.onDemand)
    #expect(b.session.idleAfter == .minutes(3) && b.session.overlap == .seconds(2))
    #expect(outcome.origins["sessions.b.upstream.on_demand"] == "d.yaml:3:49")
  }

  /// Attack: a few lines that become gigabytes ('billion laughs').
  @Test func theValuesThatAliasesRepeatAreLimited() {
    var text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in 1...9 {
      text += "a\(level): &a\(level) [" + (0..<10).map { _ in "*a\(level - 1)" }.joined(separator: ", ") + "]\n"
    }
    #expect(errors(text) == ["d.yaml:5:45: aliases repeat more than 100000 values"])
  }

  /// Attack: the same with a few aliases of a long text.
  @Test func theBytesThatAliasesRepeatAreLimited() {
    let text = "a: &a \(String(repeating: "x", count: 900 << 10))\nb: [" + String(repeating: "*a, ", count: 20) + "]\n"
    #expect(errors(text) == ["d.yaml:2:77: aliases repeat more than 16 MiB of text"])
  }

  /// YAML reads a secret that begins with '&' as an anchor. It must neither be lost nor shown.
  @Test func aValueThatIsOnlyAnAnchorIsRefused() {
    let text = "upstream: {url: 'ws://h/', headers: {X-Api-Key: &s3cret}}"
    #expect(errors(text) == ["d.yaml:1:49: this anchor has no value: quote the value if it begins with '&'"])
  }

  @Test func warnsOfAnAnchorThatNoAliasUses() throws {
    let outcome = try load(
      """
      upstream: {url: 'ws://h/', headers: {A: &s3cret b, C: &used c, D: *used, E: &again e, F: &again f, G: *again}}

      """)
    let reason = "this anchor is not used by any alias: quote the value if it begins with '&'"
    #expect(outcome.warnings.map(\.description) == ["d.yaml:1:41: \(reason)", "d.yaml:1:77: \(reason)"])
  }

  @Test func aQuotedMergeKeyIsAnOrdinaryKey() {
    #expect(errors("log: {'<<': {level: info}}") == ["d.yaml:1:7: unknown key 'log.<<'"])
  }

  /// Without its tag, the value would have a different meaning.
  @Test func aTagThatChangesAValueIsRefused() {
    for text in ["upstream: {url: !!str ws://a/}", "log: !!map {level: !!str info}", "upstream: {url: ! ws://a/}"] {
      #expect(errors(text).allSatisfy { !$0.contains("tag") })
    }
    let binary = "must be text: '!!binary' is accepted for messages of 'on_open', 'on_close' and 'heartbeat' only"
    #expect(errors("upstream: {url: !!binary EAA=}").contains("d.yaml:1:17: 'upstream.url' \(binary)"))
    #expect(errors("log: {level: !!binary EAA=}").contains("d.yaml:1:14: 'log.level' \(binary)"))
    #expect(
      errors("upstream: {cursor: {initial: !!binary EAA=}}").contains(
        "d.yaml:1:30: 'upstream.cursor.initial' \(binary)"))
    #expect(
      errors("upstream: {on_open: [{expect: !!binary EAA=}]}").contains {
        $0.hasSuffix("keys text, prefix, contains, json, json_prefix, json_has, graphql")
      })
    #expect(
      errors("upstream: {on_close: !!binary EAA}") == [
        "d.yaml:1:22: '!!binary' needs base64 with padding, as in !!binary EAA="
      ])
    let other = "this tag is not supported: quote the value if it begins with '!'"
    #expect(errors("upstream: {headers: {A: !s3cret }}") == ["d.yaml:1:25: \(other)"])
    #expect(errors("upstream: {url: !!omap [a]}") == ["d.yaml:1:17: \(other)"])
  }

  @Test func aliasesNestNoDeeperThanTheFileMay() {
    var text = "a0: &a0 [x]\n"
    for level in 1...20 { text += "a\(level): &a\(level) [*a\(level - 1)]\n" }
    #expect(errors(text).contains { $0.hasSuffix("nested deeper than 12 levels") })
  }

  @Test(arguments: ["a: &a [*a]", "a: &a {b: *a}", "? &a a\n: *b"])
  func anAliasCannotComeBeforeTheEndOfItsAnchor(text: String) {
    #expect(errors(text).count == 1 && errors(text)[0].contains("has no anchor"))
  }
}
