import Access
import ByteStreams
import Configuration
import Digests
import Foundation
import HTTPServer
import Host
import Metrics
import Reactor
import Testing

@testable import API

/// The API on a management listener, and the status page.
@Suite struct ManagementListenerTests {
  private let browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n"

  private func closed(_ change: (inout GatewaySettings) -> Void = { _ in }) throws -> APIFixture {
    try APIFixture {
      $0.authentication.certificates = [.init(name: "dns:nobody", scopes: ["send"])]
      change(&$0)
    }
  }

  // MARK: Access

  @Test func theAPINeedsTheSameCredentialsAsOnAListenerForClients() throws {
    let api = try closed()
    for path in [
      "/v1/session", "/v1/messages?wait=0", "/v1/sessions", "/v1/nowhere", "/%761/session", "/v%31/session", "/v1/",
    ] {
      let response = try api.respond("GET", path, "", .management)
      #expect(response.problem == "unauthorized", "\(path)")
      #expect(response.field("WWW-Authenticate") == "Bearer realm=\"drawbridge\"")
    }
    for path in ["/", "/livez", "/startupz", "/metrics", "/history", "/errors/not-found"] {
      #expect(try api.respond("GET", path, browser + "", .management).problem != "unauthorized", "\(path)")
    }
    #expect(try api.respond("GET", "//v1/session", "", .management).problem == "not-found")
    #expect(try api.respond("OPTIONS", "/v1/messages", "", .management).status == 204)
  }

  @Test(arguments: [
    (["0.0.0.0"], ["127.0.0.1", "0.0.0.0"], [HTTPListener.Reach.loopback]),
    (["127.0.0.1"], ["127.0.0.1"], [.loopback]),
    // A firewall may protect one of the two listeners.
    (["0.0.0.0"], ["0.0.0.0"], []),
    (["192.0.2.2"], ["0.0.0.0"], []),
    // All clients need a certificate.
    ([], ["127.0.0.1"], []), ([], ["/run/a/management"], []),
    (["127.0.0.1"], ["/run/a/management"], []),
    (["/run/a/api"], ["127.0.0.1", "/run/a/management"], [.local]),
    (["/run/a/api"], ["/run/b/management"], []), (["/run/a/api"], ["/run/a/management", "/run/b/management"], []),
    (["/run/a/api"], ["/run/management"], []), (["relative"], ["other"], []),
  ])
  func withoutCredentialsTheAPIIsServedOnlyIfNoFurtherClientsCanConnect(
    clients: [String], management: [String], expected: [HTTPListener.Reach]
  ) throws {
    func addresses(_ texts: [String]) -> [SocketAddress] {
      texts.map { SocketAddress(numericHost: $0, port: 1) ?? .unix(path: $0) }
    }
    let listeners = addresses(management)
    let open = AccessState.openManagement(listeners, clients: addresses(clients))
    #expect(Set(listeners.map(\.reach)).intersection(open) == Set(expected))
    let api = try APIFixture(openManagement: open)
    for reach in [HTTPListener.Reach.local, .loopback, .network] {
      let management = HTTPListener(.management, reach: reach)
      for (method, path) in [
        ("GET", "/v1/session"), ("GET", "/%76%31/session"), ("POST", "/v1/messages"), ("GET", "/v1/x"),
      ] {
        let response = try api.respond(method, path, method == "POST" ? "Content-Length: 0\r\n" : "", management)
        #expect((response.problem == "access-not-configured") == !open.contains(reach), "\(reach): \(response.body)")
      }
      #expect(try api.respond("GET", "/livez", "", management).status == 200)
      #expect(try api.respond("GET", "/", browser, management).status == 200)
    }
    #expect(try api.respond("GET", "/v1/session").status == 200)
  }

  @Test func foreignWebPagesAreRefused() throws {
    let api = try APIFixture()
    for fields in ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: same-site\r\n"] {
      #expect(try api.respond("GET", "/v1/session", fields, .management).problem == "origin-not-allowed")
    }
    let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: "
    #expect(try api.respond("GET", "/", browser + link + "document\r\n", .management).status == 200)
    for (method, path, fields) in [
      ("GET", "/", link + "iframe\r\n"), ("GET", "/metrics", link + "document\r\n"),
      ("GET", "/v1/session", link + "document\r\n"), ("POST", "/", link + "document\r\n"),
      ("GET", "/", link + "document\r\nOrigin: http://evil.example\r\n"),
      ("GET", "/", "Sec-Fetch-Site: cross-site\r\n"),
    ] {
      let refused = try api.respond(method, path, fields, .management)
      #expect(refused.problem == "origin-not-allowed", "\(method) \(path)")
    }
    let rebound = try api.respond("GET /v1/session HTTP/1.1\r\nHost: evil.example:9090\r\n\r\n", .management)
    #expect(rebound.problem == "host-not-allowed")
  }

  // MARK: Limits

  @Test func requestsOfTheAPIAreCountedAndProbesAreNot() throws {
    let api = try APIFixture { $0.api.limits.address.requests = RateLimit(2, per: .hours(1)) }
    #expect(try api.respond("GET", "/v1/session", "", .management).status == 200)
    #expect(try api.respond("GET", "/v1/session").status == 200)
    #expect(try api.respond("GET", "/v1/session", "", .management).problem == "too-many-requests")
    for path in ["/", "/livez", "/metrics"] { #expect(try api.respond("GET", path, "", .management).status == 200) }
  }

  @Test func halfOfTheConnectionsAreReservedForProbes() throws {
    let api = try APIFixture { $0.http.managementConnections = 4 }
    func begin(_ fields: String) throws -> Outcome {
      try api.send(
        Array("GET /v1/messages HTTP/1.1\r\nHost: localhost\r\n\(fields)\r\n".utf8), .management
      ).outcome
    }
    guard case .wait(let poll) = try begin(""), case .stream(let stream) = try begin("Accept: text/event-stream\r\n")
    else {
      Issue.record("they do not wait")
      return
    }
    for _ in 0..<2 {
      let refused = try api.respond("GET", "/v1/messages", "", .management)
      #expect(refused.problem == "too-many-requests" && refused.field("Retry-After") == "1")
      #expect(refused.text("detail")?.contains("http.management_connections") == true)
    }
    #expect(try api.respond("GET", "/v1/messages?wait=0", "", .management).status == 200)
    #expect(try api.respond("GET", "/livez", "", .management).status == 200)
    stream.close()
    guard case .wait(let second) = try begin("") else {
      Issue.record("it does not wait")
      return
    }
    poll.abandon()
    second.abandon()
    #expect(api.api.heldManagementRequests == 0)
  }

  /// The limit on open files may allow fewer connections than the setting.
  @Test func halfOfTheAcceptedConnectionsAreReservedForProbes() throws {
    for (connections, isRefused) in [(1, true), (2, false), (3, false)] {
      let api = try APIFixture(managementConnections: connections)
      let request = Array("GET /v1/messages HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8)
      let (outcome, response) = try api.send(request, .management)
      if case .wait(let poll) = outcome {
        #expect(!isRefused)
        #expect(try api.respond("GET", "/v1/messages", "", .management).problem == "too-many-requests")
        poll.abandon()
      } else {
        #expect(isRefused && response.problem == "too-many-requests")
      }
    }
  }

  // MARK: The page

  @Test func aBrowserGetsAPageAndATerminalGetsText() throws {
    let api = try APIFixture()
    let page = try api.respond("GET", "/", browser, .management)
    #expect(page.field("Content-Type") == "text/html; charset=utf-8")
    #expect(page.body.hasPrefix("<!doctype html>") && page.field("Vary") == "Accept")
    for accept in ["", "Accept: */*\r\n", "Accept: text/plain\r\n"] {
      let text = try api.respond("GET", "/", accept, .management)
      #expect(text.field("Content-Type") == "text/plain; charset=utf-8" && text.body.hasPrefix("drawbridge 1.2.3\n"))
      #expect(text.field("Content-Security-Policy") == nil)
    }
  }

  @Test func thePolicyAllowsTheScriptAndTheStyleOfThePageAndNothingElse() throws {
    let page = try APIFixture().respond("GET", "/", browser, .management)
    let policy = try #require(page.field("Content-Security-Policy"))
    let directives = Dictionary(
      uniqueKeysWithValues: policy.components(separatedBy: "; ").map { directive in
        let words = directive.split(separator: " ").map(String.init)
        return (words[0], Array(words.dropFirst()))
      })
    for element in ["script", "style"] {
      let parts = page.body.components(separatedBy: "<\(element)")
      #expect(parts.count == 2 && parts[1].hasPrefix(">"), "one \(element), without attributes")
      let content = try #require(parts[1].dropFirst().components(separatedBy: "</\(element)>").first)
      let digest = Data(Digest.sha256(Array(content.utf8).span)).base64EncodedString()
      #expect(directives["\(element)-src"] == ["'sha256-\(digest)'"])
    }
    #expect(directives["default-src"] == ["'none'"] && directives["frame-ancestors"] == ["'none'"])
    #expect(directives["base-uri"] == ["'none'"] && directives["form-action"] == ["'none'"])
    #expect(directives["connect-src"] == ["'self'"] && directives["require-trusted-types-for"] == ["'script'"])
    #expect(!policy.contains("unsafe") && !policy.contains("*") && !policy.contains("http"))
    // No event handlers or styles in attributes, which the policy would refuse, and no external resources.
    for pattern in [" on[a-z]+=\"", " style=\"", "src=", "@import", "url\\(", "https?://(?!www.w3.org/2000/svg)"] {
      #expect(page.body.range(of: pattern, options: .regularExpression) == nil, "\(pattern)")
    }
    #expect(page.field("X-Frame-Options") == "DENY" && page.field("Referrer-Policy") == "no-referrer")
  }

  @Test func theFiguresCoverTheWholeGatewayAndNameNoSession() throws {
    let api = try APIFixture(sessions: ["default", "market"]) { $0.api.showsPayloads = true }
    try api.push("push")
    _ = try api.post("message")
    let response = try api.respond("GET", "/", "Accept: application/json\r\n", .management)
    #expect(response.field("Content-Type") == "application/json")
    let figures = response.json
    #expect(figures["version"] as? String == "1.2.3" && figures["phase"] as? String == "starting")
    #expect(figures["payloads"] as? Bool == true)
    #expect(figures["stream_heartbeat_seconds"] as? Double == 15)
    #expect(figures["instance"] is Int)
    let messages = try #require(figures["messages"] as? [String: Any])
    #expect(messages["received"] as? Int == 1 && messages["accepted"] as? Int == 1 && messages["queued"] as? Int == 1)
    #expect(messages["retained"] as? Int == 1)
    let sessions = try #require(figures["sessions"] as? [String: Any])
    #expect(sessions["configured"] as? Int == 2 && sessions["ready"] as? Int == 0)
    for secret in ["market", "127.0.0.1", "push\"", "secret"] { #expect(!response.body.contains(secret)) }
    let hidden = try APIFixture().respond("GET", "/", "Accept: application/json\r\n", .management)
    #expect(hidden.json["payloads"] as? Bool == false && hidden.json["tokens"] as? Bool == false)
  }

  @Test func theHistoryHasTheRatesBetweenSamplesAndNamesNoSession() throws {
    let api = try closed()
    #expect(try api.respond("GET", "/history", "", .management).json["samples"] as? [Any] != nil)
    let common = api.api.common
    common.takeSample(at: api.now - .seconds(10))
    common.metrics.acceptedMessages.add(20)
    common.metrics.heldPolls.add(2)
    common.takeSample(at: api.now - .seconds(2))
    let response = try api.respond("GET", "/history", "", .management)
    #expect(response.field("Content-Type") == "application/json" && response.json["interval_seconds"] as? Double == 5)
    let samples = try #require(response.json["samples"] as? [[String: Any]])
    #expect(samples.count == 1)
    let sample = try #require(samples.first)
    #expect(sample["seconds_ago"] as? Double == 2 && sample["accepted_per_second"] as? Double == 2.5)
    #expect(sample["received_per_second"] as? Double == 0 && sample["held"] as? Int == 2)
    #expect(sample["round_trip_seconds"] is NSNull && sample["queued"] as? Int == 0 && sample["streams"] as? Int == 0)
    #expect(!response.body.contains("default"))
  }

  @Test func withAuthenticationTheTextDoesNotDescribeTheUpstream() throws {
    let open = try APIFixture().respond("GET", "/", "", .management).body
    #expect(open.contains("\nupstream     ws://"))
    let text = try closed().respond("GET", "/", "", .management).body
    #expect(text.hasPrefix("drawbridge 1.2.3\n\nsession      stopped") && text.contains("\nqueue        0 messages"))
    for secret in ["upstream", "ws:", "127.0.0.1", "last "] { #expect(!text.contains(secret), "\(secret)") }
  }

  @Test func theListOfSessionsHasTheColumnsOfTheTable() throws {
    let api = try APIFixture(sessions: ["default", "market"])
    try api.push("push")
    _ = try api.post("four")
    let list = try #require(try api.respond("GET", "/v1/sessions").json["sessions"] as? [[String: Any]])
    let first = try #require(list.first)
    #expect(first["session"] as? String == "default" && first["state"] as? String == "stopped")
    #expect((first["queue"] as? [String: Any])?["bytes"] as? Int == 4)
    #expect((first["pushes"] as? [String: Any])?["received"] as? Int == 1)
    #expect((list[1]["pushes"] as? [String: Any])?["retained"] as? Int == 0)
    let age = try #require(first["seconds_in_state"] as? Double)
    #expect((0..<600).contains(age), "the session is new, whatever the uptime of the machine")
    #expect(first["last_failure"] is NSNull)
    #expect(try api.respond("GET", "/v1/sessions").json["scopes"] as? [String] == ["send", "receive", "call", "admin"])
    let whole = try api.respond("GET", "/v1/session").json
    #expect(Set(first.keys).isSubset(of: whole.keys))
  }
}
