import Sessions
import Testing
import Upstream
import WebSocketCodec

@testable import Configuration

/// How `check-config` and errors show values that may contain secrets.
@Suite struct SecretTests {
  private func shown(_ path: String, _ outcome: ConfigurationLoader.Outcome) throws -> String {
    outcome.displayText(of: try #require(Setting.all.first { $0.path == path }))
  }

  @Test func showsTheAddressesOfSentinels() throws {
    let outcome = try load(
      "store: {sentinels: [\"10.0.0.5:26379\", \"redis.example\", \"[::1]:1\", \"u:s3cret@b:1\", \"rediss://:s3cret@c\"]}\n"
    )
    #expect(
      try shown("store.sentinels", outcome)
        == #"["10.0.0.5:26379", "redis.example", "[::1]:1", "***@b:1", "rediss://***@c"]"#)
  }

  @Test func showsURLsWithoutUserinfoAndQuery() throws {
    let outcome = try load(
      "upstream:\n  url: wss://u:s3cret@a/x?s3cret\n  fallback_urls: [wss://u:s3cret@b/, ws://c/?s3cret]\n")
    #expect(try shown("upstream.url", outcome) == #""wss://***@a/x?***""#)
    #expect(try shown("upstream.fallback_urls", outcome) == #"["wss://***@b/", "ws://c/?***"]"#)
    #expect(outcome.settings.session.upstream.url?.text == "wss://u%3As3cret@a/x?s3cret")
  }

  @Test func showsAReferenceAsItWasWritten() throws {
    let text = """
      loops: ${env:LOOPS}
      upstream:
        fallback_urls: ["wss://b/${env:KEY}", "ws://c/"]
        subprotocols: ["${file:/run/key}", v2]
        tls: {server_name: "${env:KEY}"}

      """
    let environment = [
      "LOOPS": "3", "KEY": "s3cret", "URL": "wss://a/?s3cret", "DRAWBRIDGE_UPSTREAM_URL": "${env:URL}",
      "DRAWBRIDGE_UPSTREAM_NO_PROXY": "${env:LIST}", "LIST": "s3cret,example.org",
    ]
    let outcome = try load(text, environment: environment, files: ["/run/key": "s3cret\r\n"])
    #expect(outcome.settings.session.upstream.subprotocols == ["s3cret", "v2"])
    #expect(try shown("loops", outcome) == #""${env:LOOPS}""#)
    #expect(try shown("upstream.url", outcome) == #""${env:URL}""#)
    #expect(try shown("upstream.subprotocols", outcome) == #"["${file:/run/key}", "v2"]"#)
    #expect(try shown("upstream.tls.server_name", outcome) == #""${env:KEY}""#)
    for setting in Setting.all { #expect(!outcome.displayText(of: setting).contains("s3cret"), "\(setting.path)") }
  }

  /// Whatever is wrong with a value, the error contains neither resolved references nor the hidden parts of a URL.
  @Test(arguments: [
    "upstream: {url: 'wsss://u:s3cret@h/?s3cret'}", "upstream: {url: 'u:s3cret@h'}",
    "upstream: {url: '${env:SECRET}'}", "upstream: {fallback_urls: ['ws://a/', 'http://u:s3cret@h/?s3cret']}",
    "upstream: {headers: {'Bad Name': s3cret}}", "upstream: {headers: ['no colon s3cret']}",
    "upstream: {url: 'wss://u:${s3cret}@h/'}", "upstream: {headers: {A: '${s3cret}'}}",
    "loops: '${env:SECRET}'", "log: {level: '${env:SECRET}'}", "http: {fields: '${file:/run/secret}'}",
    "upstream: {close_codes: {4000: '${env:SECRET}'}}", "upstream: {queue: {ttl: '${env:SECRET}'}}",
  ])
  func anErrorContainsNoSecret(text: String) {
    let found = errors(text, environment: ["SECRET": "s3cret"], files: ["/run/secret": "s3cret"])
    #expect(found.count == 1 && !found[0].contains("s3cret"), "\(found)")
    let flags = [(name: "upstream", value: "wsss://u:s3cret@h/")]
    #expect(!errors(flags: flags).contains { $0.contains("s3cret") })
  }

  @Test func anErrorAboutAProblemShowsTheValueAsItWasWritten() throws {
    let pin = String(repeating: "A", count: 43) + "="
    let outcome = try load(
      "upstream:\n  tls:\n    pins:\n      - \(pin)\n      - ${env:SECRET}\n", environment: ["SECRET": pin])
    let found = outcome.errors(
      with: SettingProblems([
        SettingProblem("upstream.tls.pins", .item(1), "use a pin"),
        SettingProblem("upstream.tls", .none, "none fits"),
        SettingProblem("upstream.url", .missing, "the gateway needs an upstream: use --upstream"),
      ]))
    #expect(
      found.errors.map(\.description) == [
        "d.yaml:5:9: '${env:SECRET}' is not valid for 'upstream.tls.pins': use a pin",
        "d.yaml:4:7: 'upstream.tls' cannot be used: none fits",
        "'upstream.url' is not set, but the gateway needs an upstream: use --upstream",
      ])
  }
}
