import ByteStreams
import Foundation
import HTTPCodec
import HTTPServer
import Logging
import Sessions
import Testing
import Upstream
import UpstreamSession
import WebSocketCodec

@testable import Configuration

@Suite struct ConfigurationTests {
  @Test func withoutSettingsEveryDefaultApplies() throws {
    let outcome = try load()
    #expect(outcome.settings == GatewaySettings() && outcome.origins.isEmpty)
  }

  /// The commented configuration in config/ contains exactly all settings, with their defaults.
  @Test func theManualNamesEverySettingWithItsDefault() throws {
    let path = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appendingPathComponent("config/drawbridge.yaml")
    let text = try String(contentsOf: path, encoding: .utf8)
    let outcome = try load(text)
    #expect(outcome.settings == GatewaySettings())
    let missing = Setting.all.map(\.path).filter { outcome.origins[$0] == nil }
    // The keys of a URL replace the URL, so a comment explains them.
    #expect(missing.allSatisfy { $0.hasPrefix("upstream.url.") })
    for path in missing { #expect(text.contains("\(path.split(separator: ".").last ?? ""):"), "\(path)") }
  }

  @Test func everySettingIsReadAsItIsShown() throws {
    for setting in Setting.all {
      guard case .scalar(let read) = setting.shape else { continue }
      var settings = GatewaySettings()
      let shown = setting.format(settings).filter { $0 != "\"" }
      try read(shown, &settings)
      #expect(settings == GatewaySettings(), "\(setting.path)")
    }
    #expect(Set(Setting.all.map(\.path)).count == Setting.all.count)
    #expect(Set(Setting.all.map(\.environmentName)).count == Setting.all.count)
  }

  @Test(arguments: [
    ("upstram:\n  url: ws://x/\n", "d.yaml:1:1: unknown key 'upstram' (did you mean 'upstream'?)"),
    ("upstream:\n  ulr: ws://x/\n", "d.yaml:2:3: unknown key 'upstream.ulr' (did you mean 'url'?)"),
    ("loops: 2\nloops: 3\n", "d.yaml:2:1: 'loops' is set twice"),
    ("loops: many\n", "d.yaml:1:8: 'many' is not valid for 'loops': use 'auto' or a number from 1 to 1024"),
    (
      "upstream:\n  url: http://x/\n",
      "d.yaml:2:8: 'http://x/' is not valid for 'upstream.url': use a URL such as ws://127.0.0.1:9000/ or wss://example.org/socket"
    ),
    ("log: loud\n", "d.yaml:1:6: 'log' must contain keys and values, and its keys are level, format, access"),
    ("loops: 1\n---\nloops: 2\n", "d.yaml:2:1: a second document begins here: the file must contain only one"),
    ("loops: *x\n", "d.yaml:1:8: alias '*x' has no anchor '&x' before it"),
    ("http: {<<: 1}\n", "d.yaml:1:8: '<<' must be a mapping, as in '<<: *name'"),
    ("upstream:\n  url: ${env:NOPE}\n", "d.yaml:2:8: environment variable 'NOPE' is not set"),
    ("upstream:\n  url: ${file:/nope}\n", "d.yaml:2:8: file '/nope' cannot be read"),
    ("loops: ${what:x}\n", "d.yaml:1:8: '${what:x}' is not a valid reference: use ${env:NAME} or ${file:PATH}"),
    ("upstream:\n  url: ${what:x}\n", "d.yaml:2:8: '${…}' is not a valid reference: use ${env:NAME} or ${file:PATH}"),
    ("upstream:\n  ttl: 1s\n", "d.yaml:2:3: unknown key 'upstream.ttl' (did you mean 'upstream.queue.ttl'?)"),
    (
      "log: {level: warn}\n",
      "d.yaml:1:14: 'warn' is not valid for 'log.level': use one of trace, debug, info, warning, error (did you mean 'warning'?)"
    ),
    (
      "upstream: {on_demand: True}\n",
      "d.yaml:1:23: 'True' is not valid for 'upstream.on_demand': use true or false (did you mean 'true'?)"
    ),
    (
      "loops: ~\n",
      "d.yaml:1:8: 'loops' has no value: remove the key to use the default, or quote '~' to use it as text"
    ),
    ("upstream:\n\turl: x\n", "d.yaml:2:1: a tab is not allowed in the indentation: use spaces"),
    ("upstream:\n  tls:\n  \tverify: true\n", "d.yaml:3:3: a tab is not allowed in the indentation: use spaces"),
    ("upstream: {headers: {A: 1, A: 2}}\n", "d.yaml:1:28: 'A' is set twice in 'upstream.headers'"),
    (
      "upstream:\n  fallback_urls:\n    - ws://a/\n    - http://b/\n",
      "d.yaml:4:7: 'http://b/' is not valid for 'upstream.fallback_urls': use URLs such as ws://127.0.0.1:9000/ or wss://example.org/socket"
    ),
  ])
  func reportsThePlaceAndTheAcceptedValues(text: String, message: String) {
    #expect(errors(text) == [message])
  }

  @Test func reportsAllErrorsTogether() {
    #expect(errors("loops: x\nlog:\n  level: loud\nhttp:\n  fields: 1\n").count == 3)
  }

  @Test func deepNestingAndHugeFilesAreRefused() {
    #expect(!errors(String(repeating: "[", count: 5_000)).isEmpty)
    #expect(errors(String(repeating: "#", count: YAMLDocument.maximumBytes + 1)).count == 1)
  }

  @Test func aFlagOverridesAVariableAndAVariableTheFile() throws {
    let text = "loops: 1\nlog:\n  level: debug\nhttp:\n  fields: 50\n"
    let environment = ["DRAWBRIDGE_LOOPS": "2", "DRAWBRIDGE_LOG_LEVEL": "error", "PATH": "/bin"]
    let outcome = try load(text, environment: environment, flags: [("loops", "3")])
    #expect(
      outcome.settings.loops == 3 && outcome.settings.log.level == .error
        && outcome.settings.http.limits.fieldCount == 50)
    #expect(outcome.origins["loops"] == "--loops")
    #expect(outcome.origins["log.level"] == "environment variable DRAWBRIDGE_LOG_LEVEL")
    #expect(outcome.origins["http.fields"] == "d.yaml:5:11")
  }

  @Test func readsReactionsToCloseCodes() throws {
    let outcome = try load(
      "upstream:\n  close_codes:\n    4000-4099: park\n    1000: stop\n    3000: refresh-credential\n")
    let rules = outcome.settings.session.upstream.session.closing.ranges
    #expect(rules.map(CloseRules.text) == ["4000-4099: park", "1000: stop", "3000: refresh-credential"])
    #expect(rules[0].codes == 4000...4099 && rules[1].reaction == .stop)
    let environment = ["DRAWBRIDGE_UPSTREAM_CLOSE_CODES": "4001: stop\n4002-4003: backoff"]
    #expect(try load(environment: environment).settings.session.upstream.session.closing.ranges.count == 2)
  }

  @Test(arguments: [
    "4000", "4000: ", "4000: shrug", "1006: stop", "1004: park", "1015: park", "999-1000: park", "2999-4000: park",
    "4000-5000: park", "4100-4000: park",
    "4000-4001-4002: park", "-4000: park", "x: park", "4000: park: park", "70000: park",
  ])
  func refusesAnInvalidReactionToACloseCode(line: String) {
    #expect(CloseRules.rule(line) == nil)
  }

  @Test(arguments: ["1000", "1001", "1003", "1005", "1007", "1012", "1014", "3000", "4999", "1000-1014", "1000-4999"])
  func everyCodeOfACloseFrameMayHaveEveryReaction(codes: String) {
    for reaction in CloseReaction.allCases {
      let line = "\(codes): \(reaction.rawValue)"
      #expect(CloseRules.rule(line).map(CloseRules.text) == line)
    }
  }

  @Test func everyFallbackMustBeAWebSocketURL() throws {
    let text = "upstream:\n  fallback_urls:\n    - ws://a/\n    - wss://b:1/x?y\n"
    #expect(try load(text).settings.session.upstream.fallbackURLs.map(\.text) == ["ws://a/", "wss://b:1/x?y"])
    #expect(errors("upstream:\n  fallback_urls: [ws://a/, http://b/]\n").count == 1)
  }

  @Test func secretsMayBeReferencesAndAreNotShown() throws {
    let text = "upstream:\n  headers:\n    Authorization: Bearer ${env:TOKEN}\n    X-Key: ${file:/run/key}\n"
    let outcome = try load(text, environment: ["TOKEN": "t0p"], files: ["/run/key": "k3y\n"])
    #expect(
      outcome.settings.session.upstream.fields
        == [RequestField(name: "Authorization", value: "Bearer t0p"), RequestField(name: "X-Key", value: "k3y")])
    #expect(Setting.all.contains { $0.path == "upstream.headers" && $0.isSecret })
    #expect(errors("upstream:\n  headers:\n    'Bad Name': s3cret\n").allSatisfy { !$0.contains("s3cret") })
  }

  @Test func aHeaderCannotContainALineBreak() {
    #expect(errors("upstream:\n  headers: [\"A: b\\r\\nC: d\"]\n").count == 1)
  }

  @Test func anInvalidListenerIsNotReplacedByItsDefaultInComparisons() {
    let found = errors("upstream: {url: 'ws://h/'}\nlisteners: {http: ['127.0.0.1:9090'], management: [nonsense]}")
    #expect(found.count == 1 && found[0].contains("'nonsense' is not valid"), "\(found)")
    let reverse = errors("upstream: {url: 'ws://h/'}\nlisteners: {http: [nonsense], management: ['127.0.0.1:8080']}")
    #expect(reverse.count == 1 && reverse[0].contains("'nonsense' is not valid"), "\(reverse)")
  }
}
