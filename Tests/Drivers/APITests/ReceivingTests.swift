import ByteStreams
import Foundation
import HTTPServer
import Inbox
import Sessions
import Testing

@testable import API

/// `GET /v1/messages`: positions, links, validators, gaps and topics.
@Suite struct ReceivingTests {
  let api: APIFixture

  init() throws { api = try APIFixture(sessions: ["default", "market"]) }

  private func push(_ text: String, topic: String = "", to session: String = "default") throws {
    try api.session(session).inbox.append(
      Array(text.utf8).span, kind: .text, topic: Array(topic.utf8).span, time: 0, now: api.now)
  }

  private func get(_ query: String, _ fields: String = "") throws -> Received {
    try api.respond("GET", "/v1/messages?wait=0" + query, fields)
  }

  private func data(_ response: Received) -> [String] {
    (response.json["messages"] as? [[String: Any]] ?? []).compactMap { $0["data"] as? String }
  }

  /// The target of the header field `Link`.
  private func link(_ response: Received) -> String? {
    guard let field = response.field("Link"), field.hasPrefix("<"), field.hasSuffix(">; rel=\"next\"") else {
      return nil
    }
    return String(field.dropFirst().prefix { $0 != ">" })
  }

  @Test func aPollStartsAtACursorATimeOrACount() throws {
    for text in ["a", "b", "c"] { try push(text) }
    #expect(try data(get("&last=2")) == ["b", "c"])
    #expect(try data(get("&last=0")) == [])
    #expect(try data(get("&since=10m")) == ["a", "b", "c"])
    #expect(try data(get("&cursor=earliest")) == ["a", "b", "c"])
    for query in ["&last=1&since=1m", "&cursor=latest&last=1", "&since=1m&cursor=earliest"] {
      let detail = try get(query).text("detail")
      #expect(detail?.hasPrefix("cursor, since and last exclude each other") == true, "\(query)")
    }
    for query in ["&cursor=-5", "&cursor=since=10m", "&last=-1", "&last=", "&since=soon", "&since="] {
      #expect(try get(query).problem == "invalid-parameter", "\(query)")
    }
  }

  @Test func theLinkRepeatsTheParametersAndContinues() throws {
    for text in ["a", "b", "c"] { try push(text) }
    let first = try get("&last=3&limit=2&max_bytes=70000&topic=x&topic=y.*&cursor")
    #expect(first.status == 400)
    let response = try get("&last=3&limit=2&max_bytes=70000")
    let cursor = try #require(response.text("cursor"))
    #expect(link(response) == "/v1/messages?cursor=\(cursor)&wait=0ms&limit=2&max_bytes=70000")
    #expect(data(response) == ["a", "b"])
    #expect(try data(api.respond("GET", try #require(link(response)))) == ["c"])
    let filtered = try get("&topic=x%20y&topic=z.*")
    #expect(link(filtered)?.hasSuffix("&wait=0ms&topic=x%20y&topic=z.*") == true)
    let market = try api.respond("GET", "/v1/sessions/market/messages?wait=0")
    #expect(link(market)?.hasPrefix("/v1/sessions/market/messages?cursor=p-") == true)
    #expect(try api.respond("GET", try #require(link(market))).status == 200)
    let named = try api.respond("GET", "/v1/sessions/default/messages?wait=0")
    #expect(link(named)?.hasPrefix("/v1/messages?") == true, "one link for both names, so that responses are shared")
  }

  @Test func aClientThatRepeatsTheETagGets304OrTheNextMessages() throws {
    let first = try get("")
    let tag = try #require(first.field("ETag"))
    #expect(tag == "W/\"\(try #require(first.text("cursor")))\"")
    let unchanged = try get("", "If-None-Match: \(tag)\r\n")
    #expect(unchanged.status == 304 && unchanged.body.isEmpty && unchanged.field("ETag") == tag)
    #expect(
      unchanged.field("Content-Type") == nil && link(unchanged) != nil && unchanged.field("Gateway-Cursor") != nil)
    try push("a")
    for tags in [tag, String(tag.dropFirst(2)), "\"other\", \(tag)"] {
      let response = try get("", "If-None-Match: \(tags)\r\n")
      #expect(response.status == 200 && data(response) == ["a"] && response.json["gap"] is NSNull, "\(tags)")
    }
    #expect(try data(get("&cursor=latest", "If-None-Match: \(tag)\r\n")) == [], "the parameter takes precedence")
    #expect(try data(get("&last=1", "If-None-Match: \(tag)\r\n")) == ["a"])
  }

  @Test func a304WithAFilterHasThePositionAfterMessagesThatDoNotMatch() throws {
    try push("a", topic: "x")
    let first = try #require(try get("&cursor=earliest&topic=x").field("ETag"))
    try push("b", topic: "y")
    let unchanged = try get("&topic=x", "If-None-Match: \(first)\r\n")
    #expect(unchanged.status == 304 && unchanged.body.isEmpty)
    let cursor = try #require(unchanged.field("Gateway-Cursor"))
    #expect(cursor.hasSuffix(".2") && link(unchanged)?.contains("cursor=\(cursor)&") == true)
    let tag = try #require(unchanged.field("ETag"))
    #expect(tag == "W/\"\(cursor)\"" && tag != first)
    try push("c", topic: "x")
    for validator in [first, tag] {
      let response = try get("&topic=x", "If-None-Match: \(validator)\r\n")
      #expect(data(response) == ["c"] && response.json["gap"] is NSNull, "\(validator)")
    }
  }

  @Test(arguments: ["-gzip", "-br", "-zstd", "--gzip", ";gz", ";gzip", ";;;", ":zstd", "_br", "+gzip", "-gzip-gzip"])
  func anETagWithTheSuffixOfAProxyHasThePositionOfTheETag(suffix: String) throws {
    let tag = try #require(get("").field("ETag")).dropLast() + suffix + "\""
    #expect(try get("", "If-None-Match: \(tag)\r\n").status == 304)
    try push("a")
    for tags in [tag, tag.dropFirst(2), "\"a\\\", \"b,c\", \(tag)", "\"\", \(tag)"] {
      let response = try get("", "If-None-Match: \(tags)\r\n")
      #expect(response.status == 200 && data(response) == ["a"] && response.json["gap"] is NSNull, "\(tags)")
    }
  }

  @Test func theLatestOfSeveralETagsCounts() throws {
    let first = try #require(get("").field("ETag"))
    try push("a")
    let second = try #require(get("").field("ETag"))
    for tags in ["\(first), \(second)", "\(second),\(first)", "\(first)\r\nIf-None-Match: \(second)"] {
      #expect(try get("", "If-None-Match: \(tags)\r\n").status == 304, "\(tags)")
    }
  }

  @Test func anUnknownETagIsAFirstPollWithoutAGap() throws {
    try push("a")
    for tag in ["\"\"", "W/\"\"", "*", "", "\"\", \"\""] {
      let response = try get("", "If-None-Match: \(tag)\r\n")
      #expect(response.status == 200 && data(response) == [] && response.field("ETag") != nil, "\(tag)")
      #expect(response.field("Gateway-Gap") == nil && response.json["gap"] is NSNull, "\(tag)")
    }
  }

  @Test func anInvalidValidatorStartsAtTheNextMessageWithAGap() throws {
    try push("a")
    for tag in ["\"abc\"", "W/\"d-0123456789ab.1\"", "\"p-\"", "\"p-0123456789ab.1.gz\"", "\"\", \"abc\""] {
      let response = try get("", "If-None-Match: \(tag)\r\n")
      #expect(response.status == 200 && data(response) == [], "\(tag)")
      #expect(response.field("Gateway-Gap") == "missed=null, reason=restart", "\(tag)")
    }
    // A cursor of an earlier epoch gets all kept messages.
    let other = try get("", "If-None-Match: W/\"p-0123456789ab.7\"\r\n")
    #expect(data(other) == ["a"] && other.field("Gateway-Gap") == "missed=null, reason=restart")
  }

  @Test func aHeldPollWithAValidatorEndsWith304() throws {
    let tag = try #require(try get("").field("ETag"))
    let request = "GET /v1/messages HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: \(tag)\r\n\r\n"
    guard case .wait(let held) = try api.send(Array(request.utf8)).outcome else {
      Issue.record("the poll is not held")
      return
    }
    #expect(api.finish(held).status == 304)
  }

  @Test func theGapFieldHasTheNumberAndEveryReason() throws {
    #expect(try get("").field("Gateway-Gap") == nil)
    try api.session().inbox.recordUpstreamGap()
    #expect(try get("&cursor=earliest").field("Gateway-Gap") == "missed=null, reason=upstream")
    let both = try get("&cursor=p-0123456789ab.1")
    #expect(both.field("Gateway-Gap") == "missed=null, reason=restart, reasons=(restart upstream)")
    let gap = both.json["gap"] as? [String: Any]
    #expect(gap?["reason"] as? String == "restart" && gap?["reasons"] as? [String] == ["restart", "upstream"])
  }

  @Test func headStatesTheLatestPositionAtOnce() throws {
    try push("a")
    for query in ["", "?wait=20s", "?cursor=earliest&wait=20s"] {
      let response = try api.respond("HEAD", "/v1/messages" + query)
      #expect(response.status == 200 && response.field("Gateway-Cursor")?.hasSuffix(".1") == true, "\(query)")
      #expect(response.field("ETag") != nil && data(response) == [])
    }
    #expect(try api.respond("HEAD", "/v1/messages", "If-None-Match: W/\"p-0123456789ab.7\"\r\n").status == 200)
    #expect(try api.respond("HEAD", "/v1/messages?limit=0").problem == "invalid-parameter")
  }

  // MARK: Topics

  @Test func aFilterSelectsMessagesAndTheCursorPassesTheOthers() throws {
    for (text, topic) in [("a", "x"), ("b", "y.1"), ("c", ""), ("d", "y.2"), ("e", "z")] {
      try push(text, topic: topic)
    }
    #expect(try data(get("&cursor=earliest&topic=x")) == ["a"])
    #expect(try data(get("&cursor=earliest&topic=y.*&topic=z")) == ["b", "d", "e"])
    #expect(try data(get("&cursor=earliest&topic=*")) == ["a", "b", "d", "e"])
    let none = try get("&cursor=earliest&topic=w")
    #expect(data(none) == [] && none.field("Gateway-Cursor")?.hasSuffix(".5") == true)
    #expect(
      try get("&cursor=earliest").body.contains("\"topic\":\"y.1\"") && get("&last=3").body.contains("\"topic\":null"))
    for topic in ["", String(repeating: "a", count: 257)] {
      #expect(try get("&topic=\(topic)").problem == "invalid-parameter")
    }
    let many = String(repeating: "&topic=a", count: TopicFilter.maximumPatterns + 1)
    #expect(try get(many).text("detail")?.contains("at most \(TopicFilter.maximumPatterns) topics") == true)
  }

  @Test func aHeldPollWithAFilterEndsOnlyForMatchingMessages() throws {
    let held = try api.hold("/v1/messages?topic=x")
    #expect(!api.advance(held).isReady)
    try push("a", topic: "y")
    try push("b")
    #expect(!api.advance(held).isReady)
    try push("c", topic: "x")
    #expect(api.advance(held).isReady)
    #expect(data(api.finish(held)) == ["c"])
    // If nothing matches, the response at the deadline skips the rest.
    let late = try api.hold("/v1/messages?topic=w")
    try push("d", topic: "x")
    #expect(!api.advance(late).isReady)
    #expect(api.finish(late).field("Gateway-Cursor")?.hasSuffix(".4") == true)
  }

  @Test func pollsWithDifferentFiltersGetDifferentResponses() throws {
    for (text, topic) in [("a", "x"), ("b", "y")] { try push(text, topic: topic) }
    for _ in 0..<3 { #expect(try data(get("&cursor=earliest&topic=x")) == ["a"]) }
    #expect(try data(get("&cursor=earliest&topic=y")) == ["b"])
    #expect(try data(get("&cursor=earliest")) == ["a", "b"])
  }
}
