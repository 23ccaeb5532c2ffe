import API
import Testing

@testable import Configuration

/// `access` and `authentication`.
@Suite struct AccessSettingsTests {
  @Test(arguments: ["127.0.0.1:0", "127.9.9.9:80", "localhost:80", "[::1]:80", "unix:/run/d"])
  func aLocalListenerNeedsNoDecision(address: String) throws {
    #expect(try load("listeners: {http: ['\(address)']}").settings.accessProblems().isEmpty)
  }

  @Test(arguments: [":80", "[::]:80", "192.0.2.1:80", "[::ffff:192.0.2.1]:80"])
  func aPublicListenerNeedsADecisionAndTheProblemNamesThree(address: String) throws {
    let settings = try load("listeners: {http: ['127.0.0.1:1', '\(address)']}").settings
    let problem = try #require(settings.accessProblems().first)
    #expect(problem.key == "listeners.http" && problem.subject == .item(1))
    for way in ["authentication.tokens", "loopback", "access to none"] { #expect(problem.reason.contains(way)) }
    #expect(settings.accessProblems().count == 1)
  }

  @Test(arguments: [
    "access: none", "authentication: {tokens: t}", "authentication: {jwt: {keys: k, audience: a}}",
    "authentication: {certificates: [{name: 'dns:a', scopes: [send]}]}",
  ])
  func eachDecisionAllowsAPublicListener(text: String) throws {
    #expect(try load("\(text)\nlisteners: {http: ':80', management: ':81'}").settings.accessProblems().isEmpty)
  }

  @Test func anAudienceWithoutKeysIsNotAuthentication() throws {
    let settings = try load("authentication: {jwt: {audience: a}}\nlisteners: {http: ':80'}").settings
    #expect(settings.accessProblems().count == 1)
  }

  @Test func accessNoneBesideAuthenticationIsAnError() {
    let found = errors("access: none\nauthentication: {tokens: t}")
    #expect(
      found == [
        "d.yaml:1:9: 'none' is not valid for 'access': authentication is configured as well: leave out one of them"
      ])
  }

  @Test func keysNeedAnAudience() {
    #expect(errors("authentication: {jwt: {keys: k}}").count == 1)
    #expect(errors("authentication: {jwt: {keys: k, audience: [a, b]}}").isEmpty)
  }

  @Test func rulesForCertificatesAreReadAsTheyAreShown() throws {
    let text = "[{name: \"uri:spiffe://a/*\", scopes: [\"send\", \"call\"], sessions: [\"a*\"], topics: [\"b\"]}]"
    let settings = try load("authentication: {certificates: \(text)}").settings
    let rule = try #require(settings.authentication.certificates.first)
    #expect(rule.name == "uri:spiffe://a/*" && rule.scopes == ["send", "call"])
    #expect(rule.sessions == ["a*"] && rule.topics == ["b"])
    let setting = try #require(Setting.all.first { $0.path == "authentication.certificates" })
    #expect(try load("authentication: {certificates: \(setting.format(settings))}").settings == settings)
  }

  @Test(arguments: [
    "{}", "[1]", "[{name: 'dns:a'}]", "[{scopes: [send]}]", "[{name: a, scopes: [send]}]",
    "[{name: 'dns:', scopes: [send]}]",
    "[{name: 'dns:a.*', scopes: [send]}]", "[{name: 'uri:a*b', scopes: [send]}]", "[{name: 'dns:a', scopes: [write]}]",
    "[{name: 'dns:a', scopes: send}]", "[{name: 'dns:a', scopes: [send], topics: ['a*b']}]",
    "[{name: 'dns:a', scopes: [send], sessions: ['']}]", "[{name: 'dns:a', scopes: [send], x: 1}]",
  ])
  func anInvalidRuleForCertificatesIsRefused(text: String) {
    #expect(errors("authentication: {certificates: \(text)}").count == 1)
  }
}
