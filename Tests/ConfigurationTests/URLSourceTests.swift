import ByteStreams
import HTTPCodec
import JSONCodec
import Sessions
import Testing
import UpstreamSession
import WebSocketCodec

@testable import Configuration
@testable import Upstream

/// `upstream.url` with keys: a file or a command that returns the URL.
@Suite struct URLSourceTests {
  private func upstream(_ url: String) throws -> UpstreamSettings {
    try load("upstream: {url: \(url)}").settings.session.upstream
  }

  @Test func theKeysReplaceAURL() throws {
    let ours = try upstream("{command: [curl, -s, 'http://a/'], pointer: /url, timeout: 3s}")
    #expect(ours.url == nil && ours.urls.isEmpty && ours.hasURL)
    #expect(ours.urlSource.command == ["curl", "-s", "http://a/"] && ours.urlSource.timeout == .seconds(3))
    #expect(ours.urlSource.pointer == JSONPointer("/url"))
    #expect(try upstream("{file: /run/url}").urlSource.file == "/run/url")
    #expect(try upstream("ws://a/").urlSource == URLSource())
    let named = try load("sessions: {b: {upstream: {url: {file: /run/url}}}}").settings
    #expect(named.configuredSessions.map(\.name) == ["b"])
    let variables = ["DRAWBRIDGE_UPSTREAM_URL_COMMAND": "printf,ws://a/"]
    #expect(try load(environment: variables).settings.session.upstream.urlSource.command == ["printf", "ws://a/"])
  }

  @Test func theTimeForTheURLBelongsToThePreparation() throws {
    let base = try upstream("ws://a/").session.limits.preparing
    let files = try upstream("{file: /a}").session.limits.preparing
    #expect(files == base + .seconds(5))
    let commands = try upstream("{command: [a], timeout: 3s}").session.limits.preparing
    #expect(commands == base + .seconds(3) + UpstreamSettings.killGracePeriod)
  }

  /// A change of the timeout must not cost the session its kept values.
  @Test func theTimeoutDoesNotMakeAnotherClient() throws {
    let ours = try upstream("{command: [a], pointer: /u}")
    #expect(ours.isSameClient(as: try upstream("{command: [a], pointer: /u, timeout: 3s}")))
    for other in ["{command: [b], pointer: /u}", "{command: [a]}", "{file: /a, pointer: /u}"] {
      #expect(!ours.isSameClient(as: try upstream(other)), "\(other)")
    }
  }

  @Test(arguments: [
    (
      "upstream: {url: {command: [a], file: /a}}",
      "d.yaml:1:38: 'upstream.url' cannot be used: set only one of 'command' and 'file'"
    ),
    (
      "upstream: {url: {timeout: 3s}}",
      "d.yaml:1:27: 'upstream.url' cannot be used: it needs 'command' or 'file', which return the URL"
    ),
    (
      "upstream: {url: {command: [a]}, fallback_urls: ['ws://b/']}",
      "d.yaml:1:48: 'upstream.fallback_urls' cannot be used: it cannot be combined with 'upstream.url.command' or 'upstream.url.file', which return the only URL"
    ),
    (
      "upstream: {url: {comand: [a]}}", "d.yaml:1:18: unknown key 'upstream.url.comand' (did you mean 'command'?)"
    ),
    (
      "upstream: {url: {command: [a], timeout: 3h}}",
      "d.yaml:1:41: '3h' is not valid for 'upstream.url.timeout': use a duration from 10ms to 10m, such as 500ms, 20s or 10m"
    ),
    (
      "upstream: {url: {file: /a, pointer: url}}",
      "d.yaml:1:37: 'url' is not a JSON pointer: it must begin with '/', as in /data/sequence"
    ),
    (
      "profiles: {m: {upstream: {url: {command: [a]}}}}",
      "d.yaml:1:42: 'profiles.m.upstream.url' cannot be used: a profile needs a URL: only the session default and sessions below 'sessions' can get it from a command or file"
    ),
  ])
  func reportsFaults(text: String, message: String) { #expect(errors(text + "\n") == [message]) }

  @Test(arguments: [
    ("ws://own/", "{command: [a]}"), ("{command: [b], pointer: /u, timeout: 3s}", "ws://own/"),
    ("{command: [b], pointer: /u}", "{file: /a}"),
  ])
  func aLaterLayerReplacesTheURLOfABuiltInProfile(own: String, later: String) throws {
    let outcome = ConfigurationLoader.read(
      profile: .init(title: "profile p", text: Array("upstream: {url: \(own)}\n".utf8)), file: "d.yaml",
      environment: [:], flags: [], readFile: { _ in Array("upstream: {url: \(later)}\n".utf8) })
    #expect(outcome.errors.isEmpty, "\(outcome.errors)")
    var expected = try upstream(later)
    // The pointer of the profile also applies to another source.
    if later.contains("file") { expected.urlSource.pointer = JSONPointer("/u") }
    #expect(outcome.settings.session.upstream == expected)
  }

  /// Like any other setting, the URL of a later layer applies.
  @Test func aFlagReplacesTheSourceOfTheFile() throws {
    let command = "upstream: {url: {command: [a], pointer: /u, error: /e, timeout: 3s}}"
    let url = try load("upstream: {url: 'ws://own/'}").settings.session.upstream
    for (environment, flags) in [
      ([:], [("upstream", "ws://own/")]), (["DRAWBRIDGE_UPSTREAM_URL": "ws://own/"], []),
    ] as [([String: String], [(name: String, value: String)])] {
      #expect(try load(command, environment: environment, flags: flags).settings.session.upstream == url)
    }
    let file = ["DRAWBRIDGE_UPSTREAM_URL_FILE": "/a"]
    var expected = try upstream("{file: /a, pointer: /u, error: /e, timeout: 3s}")
    #expect(try load(command, environment: file).settings.session.upstream == expected, "the pointer stays")
    expected = try upstream("{file: /a}")
    #expect(try load("upstream: {url: 'ws://own/'}", environment: file).settings.session.upstream == expected)
    let both = ["DRAWBRIDGE_UPSTREAM_URL": "ws://own/", "DRAWBRIDGE_UPSTREAM_URL_FILE": "/a"]
    #expect(throws: ConfigurationErrors.self) { try load(environment: both) }
  }

  @Test func theURLIsTheContentOrAValueInIt() throws {
    var source = URLSource()
    source.file = "/a"
    func url(_ text: String) throws(URLSourceError) -> String { try source.url(in: Array(text.utf8)).text }
    #expect(try url("wss://a/b?c\r\n") == "wss://a/b?c")
    for (text, error) in [
      ("", URLSourceError.empty), ("\n", .empty), (" ws://a/", .invalid(.noScheme)),
      ("ws://a/\nws://b/", .invalid(.authority(.badCharacter))), ("https://a/", .invalid(.wrongScheme("https"))),
      (String(repeating: "a", count: 1 << 20 + 1), .tooLong),
    ] {
      #expect(throws: error) { try url(text) }
    }
    source.pointer = JSONPointer("/url")
    let place = try #require(source.pointer)
    #expect(try url(#"{"a":1,"url":"ws:\/\/a\/"}"#) == "ws://a/")
    #expect(throws: URLSourceError.noValue(place, error: nil)) { try url(#"{"ok":false}"#) }
    source.errorPointer = JSONPointer("/error")
    #expect(throws: URLSourceError.noValue(place, error: "bad\\n")) { try url(#"{"error":"bad\n"}"#) }
    #expect(throws: URLSourceError.noValue(place, error: nil)) { try url(#"{"error":""}"#) }
    let long = String(repeating: "a", count: 1_000)
    #expect(throws: URLSourceError.noValue(place, error: String(long.prefix(256)))) {
      try url(#"{"error":"\#(long)"}"#)
    }
    // Chromium's list with many tabs.
    let list = #"[{"url":"ws://a/"},"\#(String(repeating: "t", count: 500_000))"]"#
    source.pointer = JSONPointer("/0/url")
    #expect(try url(list) == "ws://a/")
    source.pointer = place
    #expect(throws: URLSourceError.noValue(place, error: "why")) { try url(#"{"url":"","error":"why"}"#) }
  }

  /// The URL that was read is a configured origin for its connection only.
  @Test func theURLThatWasReadIsAConfiguredOrigin() throws {
    var ours = try upstream("{file: /a}")
    let url = try WebSocketURL("wss://host/a?b")
    #expect(!ours.isConfigured(url))
    ours.readURL = url
    #expect(ours.isConfigured(try WebSocketURL("wss://HOST/other")))
    for other in ["ws://host/a", "wss://b/"] { #expect(!ours.isConfigured(try WebSocketURL(other))) }
    #expect(ours.rules(for: url) == nil)
  }

  /// Whether the URL of a command is wss is not known before it runs, so a captured URL must be wss.
  @Test func aCapturedURLMustBeSecureBesideACommand() throws {
    let ours = try load(
      """
      upstream:
        url: {command: [a]}
        capture: {next: {pointer: /url, keep: true}}
        url_from: next
        captured_hosts: [b]
      """
    ).settings.session.upstream
    #expect(ours.refusal(ofCapturedURL: try WebSocketURL("ws://b/"))?.contains("may be wss") == true)
    #expect(ours.refusal(ofCapturedURL: try WebSocketURL("wss://b/")) == nil)
    #expect(ours.refusal(ofCapturedURL: try WebSocketURL("wss://c/"))?.contains("captured_hosts") == true)
  }
}
