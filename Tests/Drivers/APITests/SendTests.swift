import ByteStreams
import Configuration
import HTTPServer
import Idempotency
import Outbox
import Testing
import Threading

@testable import API
@testable import Sessions
@testable import Upstream

/// `POST /v1/messages`: which bodies are text, the options, and the response.
@Suite struct SendTests {
  @Test(arguments: [
    ("text/plain", "text"), ("Text/XML; charset=utf-8", "text"), ("application/json", "text"),
    ("application/xml", "text"), ("application/vnd.api+json", "text"), ("image/svg+XML", "text"),
    ("application/x-www-form-urlencoded", "text"), ("application/octet-stream", "binary"), ("image/png", "binary"),
    ("application/json-seq", "binary"), ("application/+jsonx", "binary"),
  ])
  func theContentTypeDecides(type: String, expected: String) throws {
    let api = try APIFixture()
    let response = try api.post("a", fields: "Content-Type: \(type)\r\n")
    #expect(response.status == 202 && response.text("type") == expected, "\(response.body)")
    let notText = try api.post([0xFF], fields: "Content-Type: \(type)\r\n")
    #expect(notText.problem == (expected == "text" ? "invalid-text" : nil) || notText.text("type") == "binary")
  }

  @Test func withoutAContentTypeUTF8IsTextAndAllElseIsBinary() throws {
    let api = try APIFixture()
    #expect(try api.post("caf\u{E9}").text("type") == "text")
    #expect(try api.post("").text("type") == "text")
    #expect(try api.post("a", fields: "Content-Type: \r\n").text("type") == "text")
    #expect(try api.post([0x63, 0xE9]).text("type") == "binary")
  }

  @Test func oneAddressCannotUseUpTheQueue() throws {
    var api = try APIFixture { $0.session.upstream.outbox.maximumMessages = 16 }
    let lines = "Content-Type: application/x-ndjson\r\n"
    #expect(try api.post(String(repeating: "1\n", count: 20), fields: lines).status == 207)
    let problem = try api.post("more")
    #expect(problem.problem == "queue-full")
    let text =
      "(16 messages, the setting upstream.queue.messages; a reserve above it is for clients that have less than 1)"
    #expect(problem.text("detail")?.contains(text) == true, "\(problem.body)")
    for address in 1...2 as ClosedRange<UInt32> {
      api.client = ClientConnection(.ipv4(address))
      #expect(try api.post("others").status == 202)
      #expect(try api.post("more").problem == "queue-full")
    }
    #expect(try api.post("1\n2\n", fields: lines).problem == "queue-full")
    #expect(try api.session().upstream.snapshot().queuedMessages == 18)
  }

  @Test func refusalsAreCountedByTheirReason() throws {
    let api = try APIFixture { $0.session.upstream.outbox.maximumMessages = 2 }
    for _ in 0..<3 { _ = try api.post("a") }
    let lines = "Content-Type: application/x-ndjson\r\n"
    _ = try api.post("1\n2\n", fields: lines)
    _ = try api.post("a", fields: "TTL: 0\r\n")
    let metrics = try api.respond("GET", "/metrics", "", .management).body
    func line(_ reason: String) -> String { "drawbridge_messages_refused_total{reason=\"\(reason)\"} " }
    #expect(metrics.contains(line("queue-full") + "3\n") && metrics.contains(line("upstream-down") + "1\n"))
    #expect(metrics.contains(line("store-failed") + "0\n") && metrics.contains(line("session-closed") + "0\n"))
    #expect(metrics.contains("drawbridge_messages_accepted_total 2\n"))
  }

  @Test func aPollFromTheCursorOfAResponseCannotMissTheReply() throws {
    let api = try APIFixture()
    let inbox = try api.session().inbox
    func push(_ text: String) { inbox.append(Array(text.utf8).span, kind: .text, time: 0, now: api.now) }
    push("before")
    let single = try api.post("a")
    let batch = try api.post("a\nb\n", fields: "Content-Type: application/x-ndjson\r\n")
    push("reply")
    for response in [single, batch] {
      let cursor = try #require(response.text("cursor"))
      let poll = try api.respond("GET", "/v1/messages?wait=0&cursor=\(cursor)")
      #expect(poll.body.contains("reply") && !poll.body.contains("before"), "\(poll.body)")
    }
    inbox.recordUpstreamGap()
    let after = try #require(try api.post("b").text("cursor"))
    #expect(try api.respond("GET", "/v1/messages?wait=0&cursor=\(after)").text("cursor") == after)
  }

  // MARK: Options

  @Test func anOptionInTheQueryMeansTheSameAsItsHeaderField() throws {
    let api = try APIFixture()
    #expect(try api.post("a", to: "/v1/messages?ttl=0").problem == "upstream-down")
    let first = try #require(try api.post("a", to: "/v1/messages?topic=price&ttl=1m").text("id"))
    _ = try api.post("b", fields: "Topic: price\r\n")
    #expect(try api.respond("GET", "/v1/deliveries/\(first)").text("state") == "replaced")
    // The same value in both places is no contradiction.
    #expect(try api.post("a", to: "/v1/messages?ttl=60&topic=a%20b", fields: "TTL: 60\r\nTopic: a b\r\n").status == 202)
  }

  @Test func theResponseStatesTheTTLIfItIsShortened() throws {
    let api = try APIFixture()
    #expect(try api.post("a", fields: "TTL: 2147483649\r\n").field("TTL") == "2147483648")
    #expect(try api.post("a", fields: "TTL: 99999999999999999999999\r\n").field("TTL") == "2147483648")
    let lines = try api.post("1\n2\n", fields: "TTL: 2147483649\r\nContent-Type: application/x-ndjson\r\n")
    #expect(lines.field("TTL") == "2147483648")
    for ttl in ["2147483648", "30", "0030"] {
      #expect(try api.post("a", fields: "TTL: \(ttl)\r\n").field("TTL") == nil, "\(ttl)")
    }
    #expect(try api.post("a").field("TTL") == nil)
  }

  @Test(arguments: [
    ("ttl=5", "TTL: 6\r\n", "TTL"), ("topic=a", "Topic: b\r\n", "Topic"), ("ttl=x", "", "ttl 'x'"),
    ("topic=", "", "topic"), ("topic=a%0Ab", "", "topic"), ("until=sent", "", "until 'sent'"),
    ("until=written&wait=x", "", "wait 'x'"), ("wait=10", "", "wait needs until"), ("wait=0", "", "wait needs until"),
    ("ttl=1&ttl=1", "", "repeated"),
    ("cursor=latest", "", "ttl, topic, until, event, namespace and type"), ("type=json", "", "type 'json'"),
    ("type=text", "Content-Type: application/x-ndjson\r\n", "batch"),
  ])
  func anOptionThatIsNotValidIsRefused(query: String, fields: String, part: String) throws {
    let response = try APIFixture().post("a", to: "/v1/messages?\(query)", fields: fields)
    #expect(response.problem == "invalid-parameter")
    #expect(response.text("detail")?.contains(part) == true, "\(response.body)")
  }

  /// HTTP::Tiny and aiohttp declare every body as application/octet-stream.
  @Test(arguments: [
    ("", "application/octet-stream", "binary"), ("?type=text", "application/octet-stream", "text"),
    ("?type=binary", "text/plain", "binary"), ("?type=binary", "", "binary"), ("?type=text", "", "text"),
  ])
  func theTypeOfAMessageCanBeStated(query: String, contentType: String, type: String) throws {
    let fields = contentType.isEmpty ? "" : "Content-Type: \(contentType)\r\n"
    let response = try APIFixture().post("a", to: "/v1/messages\(query)", fields: fields)
    #expect(response.status == 202 && response.text("type") == type)
  }

  /// `curl -T` sends PUT.
  @Test func theResponseToAPUTOfAMessageNamesPOST() throws {
    let response = try APIFixture().respond("PUT", "/v1/messages")
    #expect(response.status == 405 && response.text("detail")?.contains("POST with --data-binary") == true)
    let other = try APIFixture().respond("PUT", "/v1/session")
    #expect(other.status == 405 && other.text("detail")?.contains("--data-binary") == false)
  }

  @Test func bytesThatAreStatedToBeTextMustBeUTF8() throws {
    let response = try APIFixture().post([0xFF], to: "/v1/messages?type=text")
    #expect(response.problem == "invalid-text")
  }

  @Test func nothingWaitsForAConfirmationThatCannotArrive() throws {
    let api = try APIFixture { $0.session.upstream.outbox.confirms = false }
    let response = try api.post("a", to: "/v1/messages?until=confirmed")
    #expect(response.problem == "invalid-parameter")
    #expect(response.text("detail")?.contains("upstream.queue.confirm") == true)
    #expect(try api.session().upstream.snapshot().queuedMessages == 0)
  }

  // MARK: Waiting

  private func hold(_ api: APIFixture, _ query: String, _ fields: String = "", _ body: String = "a") throws
    -> any WaitingRequest
  {
    let head = "POST /v1/messages?\(query) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n"
    let (outcome, _) = try api.send(Array((head + fields + "\r\n" + body).utf8))
    guard case .wait(let request) = outcome else { throw NotHeld() }
    return request
  }
  private struct NotHeld: Error {}

  /// If the client got the error earlier, the next process could still find the message and its key in the store. A
  /// repetition would then send nothing.
  @Test func aClientLearnsThatItsMessageWasWithdrawnWhenThatIsStored() throws {
    let journal = TestJournal()
    let api = try APIFixture(journal: journal)
    let first = try hold(api, "", "Idempotency-Key: a\r\n")
    #expect(!api.advance(first).isReady)
    journal.fail()
    // The store is recovering.
    #expect(!api.advance(first).isReady)
    #expect(try api.session().upstream.snapshot().queuedMessages == 0)
    #expect(
      try api.post("a", fields: "Idempotency-Key: a\r\n").problem == "idempotency-key-in-progress")
    journal.store()
    #expect(api.advance(first).isReady)
    #expect(api.finish(first).problem == "store-failed")
    let again = try hold(api, "", "Idempotency-Key: a\r\n")
    journal.store()
    #expect(api.advance(again).isReady)
    #expect(api.finish(again).status == 202)
  }

  @Test func aClientLearnsThatItsMessageWasWithdrawnWhenThatCannotBeStored() throws {
    let journal = TestJournal()
    let api = try APIFixture(journal: journal)
    let keys = ["failed", "late", "gone"]
    let held = try keys.map { try hold(api, "", "Idempotency-Key: \($0)\r\n") }
    journal.fail()
    #expect(held.allSatisfy { !api.advance($0).isReady })
    // The wait of this client has ended.
    #expect(api.finish(held[1]).problem == "store-failed")
    held[2].abandon()
    journal.fail()
    #expect(api.advance(held[0]).isReady)
    #expect(api.finish(held[0]).problem == "store-failed")
    #expect(api.api.pendingRequests == 0)
    for key in keys { try hold(api, "", "Idempotency-Key: \(key)\r\n").abandon() }
    #expect(try api.session().upstream.snapshot().queuedMessages == 3)
  }

  /// The next holder may find the message in the store and send it.
  @Test func aClientWhoseSessionIsLostDoesNotLearnThatItsMessageWasRefused() throws {
    let journal = TestJournal()
    let api = try APIFixture(journal: journal)
    let held = try hold(api, "", "Idempotency-Key: a\r\n")
    journal.end()
    #expect(api.advance(held).isReady)
    let response = api.finish(held)
    #expect(response.problem == "outcome-unknown", "\(response.body)")
  }

  private enum StorePhase: CaseIterable { case waiting, stored, withdrawing, failed, lost }

  @Test(arguments: ["", "until=written", "until=confirmed"], [true, false])
  func aRequestThatEndsInAnyPhaseWaitsNoLonger(query: String, isAbandoned: Bool) throws {
    for phase in StorePhase.allCases {
      let journal = TestJournal()
      let api = try APIFixture(journal: journal)
      let held = try hold(api, query)
      switch phase {
      case .waiting: break
      case .stored: journal.store()
      case .withdrawing: journal.fail()
      case .failed:
        journal.fail()
        #expect(!api.advance(held).isReady, "the withdrawal is not stored")
        journal.fail()
      case .lost: journal.end()
      }
      _ = api.advance(held)
      if isAbandoned {
        held.abandon()
      } else {
        let response = api.finish(held)
        let problem =
          switch phase {
          case .stored: ""
          case .lost: "outcome-unknown"
          case .waiting, .withdrawing, .failed: "store-failed"
          }
        #expect(response.problem == problem, "\(phase)")
      }
      #expect(api.api.pendingRequests == 0)
      let waiters = try api.session().upstream.guarded.withLock {
        [$0.storeWaiters, $0.writeWaiters, $0.confirmationWaiters]
      }
      #expect(waiters == [0, 0, 0], "\(phase)")
    }
  }

  /// The next holder may not have the message, so a repetition must not find it accepted.
  @Test func aKeyOfMessagesThatAreNotStoredIsForgottenWithTheTerm() throws {
    let journal = TestJournal()
    let api = try APIFixture(journal: journal)
    let (session, common) = (try api.session(), api.api.common)
    // The clients of these two requests have disconnected.
    for key in ["a", "b"] { try hold(api, "", "Idempotency-Key: \(key)\r\n").abandon() }
    let late = try hold(api, "", "Idempotency-Key: c\r\n")
    #expect(common.idempotency.withLock { $0.count } == 3)
    session.retire()
    common.restoreKeys(of: session)
    #expect(common.idempotency.withLock { $0.count } == 1)
    late.abandon()
    #expect(common.idempotency.withLock { $0.count } == 0)
  }

  @Test func theResponseWaitsForTheStateAndSaysHowLong() throws {
    let api = try APIFixture()
    #expect(api.advance(try hold(api, "until=confirmed")).deadline == api.now + .seconds(25))
    #expect(
      api.advance(try hold(api, "until=confirmed&wait=5s", "Prefer: wait=7\r\n")).deadline == api.now + .seconds(5))
    #expect(api.advance(try hold(api, "until=written&wait=10m")).deadline == api.now + .seconds(55))
    let preferred = try hold(api, "until=written", "Prefer: wait=7\r\n")
    #expect(api.advance(preferred).deadline == api.now + .seconds(7))
    let response = api.finish(preferred)
    #expect(response.status == 202 && response.text("state") == "queued")
    #expect(response.field("Preference-Applied") == "wait=7")
    #expect(response.field("Location") == response.text("id").map { "/v1/deliveries/\($0)" })
    // There is nothing to wait for, so the preference is not applied.
    #expect(try api.post("a", fields: "Prefer: wait=7\r\n").field("Preference-Applied") == nil)
    #expect(try api.post("a", to: "/v1/messages?wait=10&until=queued").status == 202)
  }

  @Test(arguments: ["written", "confirmed"])
  func theWaitEndsWithAFinalState(state: String) throws {
    let api = try APIFixture()
    let upstream = try api.session().upstream
    let single = try hold(api, "until=\(state)")
    let batch = try hold(api, "until=\(state)", "Content-Type: application/x-ndjson\r\n", "1\n2\n")
    #expect(api.advance(single).notifier === upstream.deliveryNotifier)
    #expect(!api.advance(single).isReady && !api.advance(batch).isReady)
    upstream.refuseMessages()
    #expect(api.advance(single).isReady && api.advance(batch).isReady)
    let response = api.finish(single)
    #expect(response.status == 200 && response.text("state") == "rejected")
    #expect(response.text("reason") == "session-closed")
    let results = api.finish(batch)
    #expect(results.status == 200)
    #expect(
      (results.json["results"] as? [[String: Any]])?.compactMap { $0["state"] as? String } == ["rejected", "rejected"])
    #expect(api.api.pendingRequests == 0)
  }

  @Test func withAWaitOfZeroTheResponseShowsTheStateNow() throws {
    let response = try APIFixture().post("a", to: "/v1/messages?until=confirmed&wait=0")
    #expect(response.status == 202 && response.text("state") == "queued")
  }

  @Test func aDisconnectedClientLeavesNoState() throws {
    let api = try APIFixture()
    let held = try [hold(api, "until=written"), hold(api, "until=confirmed")]
    #expect(api.api.pendingRequests == 2)
    #expect(try api.session().upstream.guarded.withLock { $0.writeWaiters } == 1)
    for request in held { request.abandon() }
    #expect(api.api.pendingRequests == 0)
    #expect(try api.session().upstream.guarded.withLock { $0.writeWaiters } == 0)
  }

  @Test func aBatchThatWaitsIsStoredAsOneRange() throws {
    let api = try APIFixture()
    let held = try #require(
      hold(api, "until=confirmed", "Content-Type: application/x-ndjson\r\n", "1\n2\n3\n") as? HeldSend)
    guard case .batch(let results)? = api.api.sends[held.slot]?.receipt.results else {
      Issue.record("the request is not a batch")
      return
    }
    #expect(results.runs.count == 1)
    #expect((api.finish(held).json["results"] as? [Any])?.count == 3)
  }

  @Test func aMixedBatchWaitsForTheMessagesThatWereAccepted() throws {
    let api = try APIFixture { $0.session.upstream.outbox.maximumMessages = 1 }
    let held = try hold(
      api, "until=confirmed", "Content-Type: application/x-ndjson\r\nPrefer: wait=7\r\n", "1\n2\n")
    try api.session().upstream.refuseMessages()
    #expect(api.advance(held).isReady)
    let response = api.finish(held)
    #expect(response.status == 207 && response.field("Preference-Applied") == "wait=7")
    let results = try #require(response.json["results"] as? [[String: Any]])
    #expect(results[0]["state"] as? String == "rejected" && results[1]["type"] as? String == "/errors/queue-full")
  }
}
