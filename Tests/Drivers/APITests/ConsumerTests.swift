import ByteStreams
import Foundation
import HTTPServer
import Inbox
import Testing
import Threading

@testable import API
@testable import Sessions

/// Consumers over HTTP, without a socket.
@Suite struct ConsumerTests {
  private let path = "/v1/consumers/workers"

  private func push(_ texts: String..., topic: String = "", to api: APIFixture) throws {
    for text in texts {
      try api.session().inbox.append(
        Array(text.utf8).span, kind: .text, topic: Array(topic.utf8).span, time: 0, now: api.now)
    }
  }

  private func receive(_ api: APIFixture, _ query: String = "wait=0", _ name: String = "workers") throws -> Received {
    try api.respond("POST", "/v1/consumers/\(name)/receive?\(query)", "Content-Length: 0\r\n")
  }

  private func messages(_ response: Received) -> [[String: Any]] { response.json["messages"] as? [[String: Any]] ?? [] }

  private func leases(_ response: Received) -> [String] { messages(response).compactMap { $0["lease"] as? String } }

  private func settle(_ api: APIFixture, _ body: String) throws -> Received { try api.post(body, to: path + "/settle") }

  @Test func aConsumerCanBeCreatedConfirmedReadAndRemoved() throws {
    let api = try APIFixture()
    let created = try api.put("workers", #"{"share":true,"order_by":"/a","topics":["b.*"],"visibility":"1m30s"}"#)
    #expect(created.status == 201 && created.field("Location") == path)
    let confirmed = try api.put("workers", #"{"share":true,"order_by":"/a","idle":3600}"#)
    #expect(confirmed.status == 200 && confirmed.field("Location") == nil)
    #expect(
      confirmed.body
        == "{\"name\":\"workers\",\"share\":true,\"visibility\":\"30s\",\"max_deliveries\":5,\"order_by\":\"/a\",\"topics\":[],\"idle\":\"1h\",\"position\":\"\(try api.session().inbox.latest.text)\",\"lag\":0,\"leases\":0,\"missed\":0,\"dead\":{\"messages\":0,\"bytes\":0,\"dropped\":0},\"webhook\":null}\n"
    )
    #expect(try api.respond("GET", path).body == confirmed.body)
    let plain = try api.put("a", "{}")
    #expect(plain.json["visibility"] is NSNull && plain.json["missed"] is NSNull)
    let ahead = "{\"start\":\"\(try api.session().inbox.latest.text)9\"}"
    #expect(try api.put("a", ahead).status == 200, "the start of an existing consumer is ignored")
    #expect(try api.put("b", ahead).problem == "invalid-document")
    let list = try api.respond("GET", "/v1/consumers").json["consumers"] as? [[String: Any]]
    #expect(list?.map { $0["name"] as? String } == ["a", "workers"])
    #expect(try api.respond("DELETE", path).status == 204)
    #expect(try api.respond("DELETE", path).problem == "not-found")
    for request in ["GET \(path)", "GET \(path)/dead", "POST \(path)/receive", "POST \(path)/dead/retry"] {
      let words = request.split(separator: " ").map(String.init)
      let fields = words[0] == "POST" ? "Content-Length: 0\r\n" : ""
      let response = try api.respond(words[0], words[1], fields)
      #expect(response.problem == "not-found" && response.body.contains("PUT \(path)"), "\(response.body)")
    }
  }

  @Test func aListHasPages() throws {
    let api = try APIFixture()
    for number in 100..<350 { _ = try api.put("c\(number)", "") }
    func page(_ query: String = "") throws -> (names: [String], more: Bool) {
      let json = try api.respond("GET", "/v1/consumers\(query)").json
      let consumers = try #require(json["consumers"] as? [[String: Any]])
      return (consumers.compactMap { $0["name"] as? String }, try #require(json["more"] as? Bool))
    }
    var (names, more) = try page()
    #expect(names.count == 100 && more)
    while more {
      let next = try page("?after=\(try #require(names.last))&limit=75")
      names += next.names
      more = next.more
    }
    #expect(names == (100..<350).map { "c\($0)" })
    #expect(try page("?limit=1000").names.count == 100, "lowered to the maximum")
    #expect(try page("?after=c349") == ([], false))
    #expect(try page("?after=c3485&limit=1") == (["c349"], false), "a name that does not exist")
    for query in ["limit=0", "limit=x", "after=a&after=b", "cursor=latest"] {
      #expect(try api.respond("GET", "/v1/consumers?\(query)").problem == "invalid-parameter", "\(query)")
    }
  }

  @Test(arguments: [
    (#"{"shared":true}"#, "member 'shared' is unknown: use start, share, visibility"),
    (#"{"share":1}"#, "share 1 is not valid: use true or false"), (#"{"share":true,"share":true}"#, "is repeated"),
    (#"{"share":true,"visibility":"1"}"#, ""), (#"{"share":true,"visibility":"99ms"}"#, "from 100ms to 12h"),
    (#"{"share":true,"max_deliveries":0}"#, "a number from 1 to 1000"), (#"{"idle":"0s"}"#, "from 1s to 365d"),
    (#"{"visibility":"1s"}"#, "work-sharing"), (#"{"order_by":"topic"}"#, "work-sharing"),
    (#"{"share":true,"order_by":"id"}"#, "JSON pointer"), (#"{"start":"now"}"#, "'earliest' or 'latest'"),
    (#"{"start":"p-0123456789ab.1"}"#, ""), (#"{"topics":"a"}"#, "an array of at most 16 strings"),
    (#"{"topics":[1]}"#, "an array"), (#"{"topics":[""]}"#, "1 to 256 bytes"), ("[]", "not a JSON object"),
    ("{", "not JSON"), ("\u{FEFF}{}", "not JSON"),
    (#"{"topics":[\#(String(repeating: #""a","#, count: 16))"a"]}"#, "at most 16"),
  ]) func aDocumentThatIsNotValidIsRefusedWithWhatIsAccepted(body: String, detail: String) throws {
    let response = try APIFixture().put("workers", body)
    guard !detail.isEmpty else {
      #expect(response.status == 201)
      return
    }
    #expect(response.problem == "invalid-document")
    #expect(response.text("detail")?.contains(detail) == true, "\(response.body)")
  }

  @Test func documentsHaveASizeLimitAndAType() throws {
    let api = try APIFixture()
    #expect(
      try api.put("workers", String(repeating: " ", count: ConsumerDocument.limit + 1)).problem == "content-too-large")
    let request = "PUT \(path) HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}"
    #expect(try api.respond(request).problem == "unsupported-media-type")
    // The default types of curl and of HTTP libraries.
    for type in ["application/octet-stream", "application/x-www-form-urlencoded", "application/json"] {
      let declared = request.replacing("text/plain", with: type).replacing("{}", with: #"{"share":true}"#)
        .replacing("Content-Length: 2", with: "Content-Length: 14")
      #expect(try [200, 201].contains(api.respond(declared).status), "\(type)")
    }
    _ = try api.put("workers", #"{"share":true}"#)
    let lease = #""l-1.1.0123456789abcdef""#
    let thousand = Array(repeating: lease, count: 1_000).joined(separator: ",")
    #expect(try settle(api, "{\"ack\":[\(thousand)]}").problem == "lease-lost")
    #expect(try settle(api, "{\"ack\":[\(thousand)],\"reject\":[\(lease)]}").problem == "invalid-document")
    #expect(try settle(api, "{\"ack\":[\(thousand),\(lease)]}").problem == "invalid-document")
    #expect(try settle(api, String(repeating: " ", count: SettleDocument.limit + 1)).problem == "content-too-large")
  }

  @Test func aNameHasOneToSixtyFourCharacters() throws {
    let api = try APIFixture()
    let longest = String(repeating: "a", count: 64)
    for name in ["a", "A.b-c_9", longest] { #expect(try api.put(name, "").status == 201) }
    for name in ["", ".", "..", "%2E", "...", "a~", "a%20b", longest + "a", "%C3%A9"] {
      #expect(try api.put(name, "").problem == "not-found", "\(name)")
    }
  }

  @Test func pushesAreDividedAmongWorkersThatSettleTheirLeases() throws {
    var api = try APIFixture()
    _ = try api.put("workers", #"{"share":true,"max_deliveries":2}"#)
    try push("one", #"{"n":2}"#, "three", "four", to: api)
    let first = try receive(api, "wait=0&limit=3")
    #expect(first.status == 200 && first.json["more"] as? Bool == true && first.json["gap"] is NSNull)
    #expect(messages(first).map { $0["type"] as? String } == ["text", "json", "text"])
    #expect(messages(first)[0]["data"] as? String == "one" && messages(first)[0]["deliveries"] as? Int == 1)
    #expect((messages(first)[0]["expires"] as? String)?.hasSuffix("Z") == true)
    let leases = leases(first)
    let mixed = try settle(
      api, #"{"extend":["\#(leases[2])"],"ack":["\#(leases[0])","l-9.1.0123456789abcdef"],"reject":["\#(leases[1])"]}"#)
    #expect(mixed.status == 207)
    let results = try #require(mixed.json["results"] as? [[String: Any]])
    #expect(results.map { $0["status"] as? Int } == [200, 409, 200, 200])
    #expect(results.map { $0["state"] as? String } == ["acknowledged", nil, "dead", "extended"])
    #expect(results[1]["type"] as? String == "/errors/lease-lost" && results[3]["expires"] is String)
    #expect(try settle(api, #"{"ack":["\#(leases[0])"]}"#).status == 200, "an acknowledgement can be repeated")
    #expect(try settle(api, #"{"reject":["\#(leases[0])"]}"#).problem == "lease-lost")

    let dead = try api.respond("GET", path + "/dead")
    #expect(messages(dead).map { $0["reason"] as? String } == ["rejected"] && dead.json["dropped"] as? Int == 0)
    #expect((messages(dead)[0]["data"] as? [String: Int]) == ["n": 2])
    #expect(try api.respond("POST", path + "/dead/retry", "Content-Length: 0\r\n").body == "{\"retried\":1}\n")
    #expect(messages(try receive(api)).count == 2)
    api.now = api.now + .seconds(31)
    #expect(messages(try receive(api)).map { $0["deliveries"] as? Int } == [2, 2, 2])
    api.now = api.now + .seconds(31)
    #expect(messages(try receive(api)).isEmpty)
    #expect(messages(try api.respond("GET", path + "/dead")).count == 3)
    #expect(try api.respond("DELETE", path + "/dead").body == "{\"removed\":3}\n")
    #expect(try api.respond("GET", path).json["lag"] as? Int == 0)
  }

  @Test func settlingNoLeasesIsNotAnError() throws {
    let api = try APIFixture()
    _ = try api.put("workers", #"{"share":true}"#)
    #expect(try settle(api, #"{"ack":[]}"#).body == "{\"results\":[]}\n")
    #expect(try settle(api, #"{"ack":["x"]}"#).problem == "invalid-document")
    #expect(try settle(api, #"{"delay":"5s"}"#).problem == "invalid-document")
    #expect(try settle(api, #"{"release":[],"delay":"25h"}"#).problem == "invalid-document")
    #expect(
      try settle(api, #"{"nack":[]}"#).text("detail")?.contains("use ack, release, reject, extend, delay") == true)
  }

  @Test func aReceiveIsHeldUntilAPushArrives() throws {
    let api = try APIFixture()
    _ = try api.put("workers", #"{"share":true}"#)
    let held = try (0..<3).map { _ in try api.hold(path + "/receive?wait=20s", "POST") }
    #expect(api.advance(held[0]).notifier === (try api.session().consumers.notifier))
    #expect(api.advance(held[0]).deadline == api.now + .seconds(20))
    #expect(held[0].heldCount === api.api.common.metrics.heldReceives)
    try push("one", "two", to: api)
    #expect(api.advance(held[0]).isReady)
    #expect(!api.advance(held[1]).isReady, "another worker has taken them")
    let first = api.finish(held[0])
    #expect(messages(first).count == 2)
    held[2].abandon()
    let body = #"{"release":["\#(leases(first)[0])"]}"#
    #expect(try settle(api, body).status == 200)
    #expect(api.advance(held[1]).isReady)
    #expect(messages(api.finish(held[1])).map { $0["deliveries"] as? Int } == [2])
    #expect(api.api.pendingRequests == 0)
    #expect(try !api.session().consumers.hasReaders)
  }

  private func isCreated(_ name: String, _ body: String, _ api: APIFixture, _ journal: TestJournal) throws -> Bool {
    let request =
      "PUT /v1/consumers/\(name) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
    guard case .wait(let held) = try api.send(Array(request.utf8)).outcome else { return false }
    journal.store()
    return api.advance(held).isReady && api.finish(held).status == 201
  }

  @Test func workersOfAStoredSessionAreNotifiedOnlyOfTheirPushes() throws {
    let journal = TestJournal()
    let api = try APIFixture(journal: journal)
    #expect(try isCreated("workers", #"{"share":true}"#, api, journal))
    let held = try (0..<3).map { _ in try api.hold(path + "/receive?wait=20s", "POST") }
    let deadline = api.now + .seconds(20)
    #expect(held.allSatisfy { api.advance($0).deadline == deadline })
    try push("one", to: api)
    #expect(held.allSatisfy { api.advance($0).deadline == deadline }, "it is not stored")
    journal.store()
    let step = api.advance(held[0])
    #expect(!step.isReady && step.deadline != deadline, "the lease must be stored, within another deadline")
    #expect(held.dropFirst().allSatisfy { api.advance($0).deadline == deadline })
    journal.store()
    #expect(api.advance(held[0]).isReady)
    #expect(messages(api.finish(held[0])).count == 1)
    #expect(api.advance(held[1]).deadline == deadline)
    for request in held.dropFirst() { request.abandon() }
    #expect(api.api.pendingRequests == 0)
  }

  /// Creates a stored consumer with one stored push. Returns the target of a receive that acknowledges this push.
  private func acknowledgingReceive(_ api: APIFixture, _ journal: TestJournal) throws -> String {
    #expect(try isCreated("reader", "{}", api, journal))
    try push("one", to: api)
    journal.store()
    return "/v1/consumers/reader/receive?wait=1s&ack=\(try api.session().inbox.latest.text)"
  }

  @Test func aReaderIsNotifiedOnceWhenItsAcknowledgementIsStored() throws {
    let journal = TestJournal()
    let api = try APIFixture(journal: journal)
    let held = try api.hold(acknowledgingReceive(api, journal), "POST")
    let step = api.advance(held)
    #expect(try #require(step.deadline) > api.now + .seconds(1) && step.endsAtDrain == false)
    journal.store()
    let next = api.advance(held)
    #expect(next.deadline == api.now + .seconds(1) && next.endsAtDrain == true)
    held.abandon()
    #expect(api.api.pendingRequests == 0)
  }

  @Test func aReaderWhoseAcknowledgementIsNotStoredGetsNoPush() throws {
    let journal = TestJournal()
    let api = try APIFixture(journal: journal)
    let receive = try acknowledgingReceive(api, journal)
    let held = try (0..<3).map { _ in try api.hold(receive, "POST") }
    journal.fail()
    for request in held { #expect(api.advance(request).isReady) }
    held[0].abandon()
    // The last reader has replaced the others. They must not repeat their requests.
    #expect(api.finish(held[1]).problem == "superseded")
    #expect(api.finish(held[2]).problem == "store-failed")
    #expect(api.api.pendingRequests == 0)
    #expect(try api.session().consumers.storeWaiters.withLock { $0 } == 0)
  }

  @Test func aDisconnectedClientTakesNoLease() throws {
    let api = try APIFixture()
    _ = try api.put("workers", #"{"share":true}"#)
    let held = try api.hold(path + "/receive", "POST")
    try push("one", to: api)
    #expect(api.advance(held).isReady)
    held.abandon()
    #expect(try api.respond("GET", path).json["leases"] as? Int == 0)
    #expect(messages(try receive(api)).map { $0["deliveries"] as? Int } == [1])
  }

  /// Earlier responses of a connection may delay the response for longer than the lease lasts.
  @Test func theTimeOfALeaseBeginsWhenItsResponseIsWritten() throws {
    var api = try APIFixture()
    _ = try api.put("workers", #"{"share":true,"visibility":"100ms"}"#)
    let held = try api.hold(path + "/receive", "POST")
    try push("one", to: api)
    #expect(api.advance(held).isReady)
    api.now = api.now + .seconds(1)
    #expect(messages(try receive(api)).isEmpty)
    #expect(messages(api.finish(held)).map { $0["deliveries"] as? Int } == [1])
    #expect(try api.respond("GET", path).json["leases"] as? Int == 1)
  }

  @Test func anEmptyResponseSaysThatLeasesBlockTheRest() throws {
    let api = try APIFixture()
    _ = try api.put("workers", #"{"share":true,"order_by":"topic"}"#)
    #expect(try receive(api).json["blocked"] is NSNull)
    try push("one", "two", topic: "a", to: api)
    #expect(messages(try receive(api)).count == 1)
    #expect(try receive(api).json["blocked"] as? String == "leases")
  }

  @Test func aReaderAcknowledgesByCursor() throws {
    let api = try APIFixture()
    _ = try api.put("reader", #"{"start":"earliest"}"#)
    try push("one", "two", to: api)
    let first = try receive(api, "wait=0&limit=1", "reader")
    #expect(messages(first).map { $0["data"] as? String } == ["one"])
    #expect(try receive(api, "wait=0&limit=1", "reader").body == first.body)
    let cursor = try #require(first.text("cursor"))
    #expect(first.field("Gateway-Cursor") == cursor)
    let second = try receive(api, "wait=0&ack=\(cursor)", "reader")
    #expect(messages(second).map { $0["data"] as? String } == ["two"])
    #expect(try receive(api, "wait=0&ack=p-000000000000.9", "reader").field("Gateway-Gap")?.contains("restart") == true)
    let prefix = String(cursor.prefix { $0 != "." })
    #expect(try receive(api, "wait=0&ack=\(prefix).9", "reader").problem == "invalid-parameter")
    #expect(try receive(api, "wait=0&ack=latest", "reader").problem == "invalid-parameter")
  }

  @Test func aSupersededHeldReceiveEndsWithoutLosingPushes() throws {
    let api = try APIFixture()
    _ = try api.put("reader", "")
    let first = try api.hold("/v1/consumers/reader/receive", "POST")
    let second = try api.hold("/v1/consumers/reader/receive", "POST")
    #expect(api.advance(first).isReady && !api.advance(second).isReady)
    #expect(api.finish(first).problem == "superseded")
    try push("one", to: api)
    #expect(messages(api.finish(second)).count == 1)
    let third = try api.hold("/v1/consumers/reader/receive?ack=\(try api.session().inbox.latest.text)", "POST")
    #expect(try api.respond("DELETE", "/v1/consumers/reader").status == 204)
    #expect(api.advance(third).isReady)
    #expect(api.finish(third).problem == "not-found")
    #expect(api.api.pendingRequests == 0)
  }

  @Test func eachKindRefusesTheRequestsOfTheOther() throws {
    let api = try APIFixture()
    _ = try api.put("reader", "")
    _ = try api.put("workers", #"{"share":true}"#)
    #expect(try receive(api, "ack=\(try api.session().inbox.latest.text)").problem == "consumer-conflict")
    for (method, part, body) in [
      ("POST", "settle", "{}"), ("GET", "dead", ""), ("DELETE", "dead", ""), ("POST", "dead/retry", ""),
    ] {
      let fields = method == "POST" ? "Content-Length: \(body.count)\r\n" : ""
      let request = "\(method) /v1/consumers/reader/\(part) HTTP/1.1\r\nHost: localhost\r\n\(fields)\r\n\(body)"
      #expect(try api.respond(request).problem == "consumer-conflict", "\(part)")
    }
  }

  @Test func eachSessionHasItsOwnConsumers() throws {
    let api = try APIFixture(sessions: ["default", "market"])
    let created = try api.put("workers", #"{"share":true}"#, of: "/v1/sessions/market")
    #expect(created.field("Location") == "/v1/sessions/market/consumers/workers")
    #expect(try api.respond("GET", path).problem == "not-found")
    try push("ours", to: api)
    let theirs = try api.respond(
      "POST", "/v1/sessions/market/consumers/workers/receive?wait=0", "Content-Length: 0\r\n")
    #expect(theirs.status == 200 && messages(theirs).isEmpty)
  }

  @Test func theMetricsOfASessionCountItsConsumers() throws {
    let api = try APIFixture()
    _ = try api.put("workers", #"{"share":true}"#)
    try push("one", "two", "three", to: api)
    let leases = leases(try receive(api, "wait=0&limit=2"))
    _ = try settle(api, #"{"reject":["\#(leases[0])"]}"#)
    let metrics = try api.respond("GET", "/metrics", "", .management).body
    for line in [
      "drawbridge_consumers{session=\"default\"} 1", "drawbridge_consumer_lag_messages{session=\"default\"} 2",
      "drawbridge_consumer_leases{session=\"default\"} 1", "drawbridge_consumer_dead_letters{session=\"default\"} 1",
    ] {
      #expect(metrics.contains(line + "\n"), "\(line)")
    }
  }

  @Test func readingTheStateOfAConsumerDoesNotChangeIt() throws {
    let api = try APIFixture()
    _ = try api.put("workers", #"{"share":true}"#)
    try push("one", to: api)
    _ = try receive(api)
    let before = try api.respond("GET", path).body
    for target in [path, path + "/dead", "/v1/consumers"] {
      #expect(try api.respond("GET", target).status == 200)
      #expect(try api.respond("HEAD", target).status == 200)
    }
    #expect(try api.respond("GET", path).body == before)
    #expect(try api.respond("GET", path + "/receive").problem == "method-not-allowed")
  }
}

extension Cursor {
  fileprivate var text: String {
    var output = ByteQueue()
    write(into: &output)
    return output.bytes.text()
  }
}
