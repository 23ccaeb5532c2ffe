import ByteStreams
import Calls
import Configuration
import Foundation
import HTTPServer
import JSONCodec
import Outbox
import Sessions
import Synchronization
import Testing
import Threading
import UpstreamProtocol
import UpstreamSession

@testable import API
@testable import Upstream

/// `POST /v1/call`. The test itself acts as the connection to the upstream.
@Suite struct CallTests {
  private static let connection = Generation(1)

  private func fixture(
    _ correlation: Correlation? = .jsonRPC, _ change: (inout OutboxSettings) -> Void = { _ in }
  ) throws -> APIFixture {
    try APIFixture(sessions: ["default", "market"]) {
      $0.session.upstream.conventions.correlation = correlation
      change(&$0.session.upstream.outbox)
    }
  }

  /// Sends a call. Returns the held request.
  private func hold(
    _ body: String, to target: String = "/v1/call", fields: String = "", _ api: APIFixture
  ) throws -> any WaitingRequest {
    let head = "POST \(target) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(body.utf8.count)\r\n\(fields)\r\n"
    let (outcome, response) = try api.send(Array((head + body).utf8))
    guard case .wait(let call) = outcome else {
      Issue.record("no call waits: \(response.body)")
      throw CancellationError()
    }
    return call
  }

  /// Writes the queued messages to the connection, and returns them.
  private func write(_ session: Session, _ api: APIFixture) -> [String] {
    session.upstream.update { guarded in
      var batch: [OutboxMessage] = []
      if !guarded.outbox.hasSendingConnection { guarded.outbox.startSending(on: Self.connection) }
      guarded.outbox.takeBatch(maximumMessages: 10_000, maximumBytes: .max, now: api.now, into: &batch)
      for message in batch { guarded.calls.taken(message.sequence, by: Self.connection) }
      if let last = batch.last { guarded.outbox.written(through: last.sequence) }
      return batch.map { $0.payload.bytes.text() }
    }
  }

  /// Passes a message of the upstream to the session. Returns whether it is a reply.
  private func receive(_ text: String, _ session: Session, _ api: APIFixture) -> Bool {
    guard let correlation = session.upstream.correlation else { return false }
    let bytes = Array(text.utf8)
    return session.upstream.receiveReply(bytes.span, correlation, now: api.now)
  }

  /// The id in a message as JSON.
  private func id(_ message: String) throws -> String {
    let match = try #require(message.firstMatch(of: /"id" ?: ?("[^"]*"|[0-9]+)/))
    return String(match.1)
  }

  /// A response with this kind of problem.
  func example(of kind: Problem.Kind) throws -> Received {
    let api = try fixture(kind == .callsNotConfigured ? nil : .jsonRPC)
    let session = try api.session()
    switch kind {
    case .tooManyCalls:
      for number in 0..<CallTable.Limits().calls {
        let receipt = session.upstream.call(
          CallID(.number, random: UInt128(number)), ByteSlice(ByteString([])), token: ByteString([]),
          timeToLive: .seconds(1), by: 1, now: api.now)
        _ = write(session, api)
        guard case .registered = receipt else {
          Issue.record("call \(number) is refused")
          break
        }
      }
      // Uses up the share of the client that makes the next call.
      for number in 0..<64 { _ = try hold(#"{"id":\#(number)}"#, api) }
    case .upstreamClosed:
      let call = try hold(#"{"id":1}"#, api)
      _ = write(session, api)
      session.upstream.endCalls(of: Self.connection)
      #expect(api.advance(call).isReady)
      return api.finish(call)
    case .replyTimeout:
      let call = try hold(#"{"id":1}"#, api)
      _ = write(session, api)
      return api.finish(call)
    default: break
    }
    return try api.post(#"{"id":1}"#, to: "/v1/call")
  }

  /// Makes a call with these header fields and replies to it. Returns the response.
  func answered(_ fields: String) throws -> Received {
    let api = try fixture()
    let session = try api.session()
    let call = try hold(#"{"id":1}"#, fields: fields, api)
    let ours = try id(try #require(write(session, api).first))
    #expect(receive(#"{"id":\#(ours),"result":5}"#, session, api))
    return api.finish(call)
  }

  // MARK: Replies

  @Test(arguments: [
    #""a""#, #""""#, #""é\"\u0041""#, #""\ud83d\ude00""#, "7", "-1.50E+3", "123456789012345678901234567890",
    "\"" + String(repeating: "a", count: 254) + "\"",
  ])
  func theReplyHasTheIDOfTheClientByteForByte(token: String) throws {
    let api = try fixture()
    let session = try api.session()
    let call = try hold(#" {"method":"m", "id" : \#(token) ,"x":{"id":3}} "#, api)
    #expect(api.advance(call).deadline == api.now + .seconds(10) && api.advance(call).endsAtDrain == false)
    let sent = try #require(write(session, api).first)
    let ours = try id(sent)
    #expect(ours != token && ours.hasPrefix("\"") == token.hasPrefix("\""), "the type is the client's")
    #expect(sent == #" {"method":"m", "id" : \#(ours) ,"x":{"id":3}} "#)
    #expect(receive(#"{ "result":"\#(ours.filter(\.isHexDigit))", "id":\#(ours)}"#, session, api))
    #expect(api.advance(call).isReady)
    let response = api.finish(call)
    #expect(response.status == 200 && response.field("Content-Type") == "application/json")
    #expect(response.field("Gateway-Call-Id") == ours.filter { $0 != "\"" })
    #expect(response.field("Location")?.hasPrefix("/v1/deliveries/d-") == true)
    #expect(response.body == #"{ "result":"\#(ours.filter(\.isHexDigit))", "id":\#(token)}"#)
    #expect(api.api.pendingRequests == 0 && session.upstream.callCount == 0)
    let mayHaveReplies = session.upstream.mayHaveReplies.load(ordering: .relaxed)
    #expect(!mayHaveReplies)
  }

  @Test func aMessageThatIsNotAReplyIsAPush() throws {
    let api = try fixture()
    let session = try api.session()
    let call = try hold(#"{"id":1}"#, api)
    let ours = try id(try #require(write(session, api).first))
    for text in [
      #"{"id":1,"result":1}"#, #"{"id":"\#(ours)","result":1}"#, #"{"id":\#(ours),"method":"m"}"#, #"{"id":\#(ours)}"#,
      #"{"id":\#(ours),"result":1"#, #"{"id":\#(ours),"result":1}}"#, #"{"id":\#(ours),"result":1,"id":2}"#,
      #"[{"id":\#(ours),"result":1}]"#, #"{"id":\#(ours)0,"result":1}"#, "", "x",
    ] {
      #expect(!receive(text, session, api), "\(text)")
    }
    #expect(!api.advance(call).isReady)
    #expect(receive(#"{"id":\#(ours),"error":{}}"#, session, api))
    #expect(!receive(#"{"id":\#(ours),"error":{}}"#, session, api), "the first counts")
    #expect(api.finish(call).body == #"{"id":1,"error":{}}"#)
  }

  @Test func aReplyEndsOnlyTheCallOfItsOwnSession() throws {
    let api = try fixture()
    let (session, other) = (try api.session(), try api.session("market"))
    let call = try hold(#"{"id":1}"#, api)
    let theirs = try hold(#"{"id":1}"#, to: "/v1/sessions/market/call", api)
    let ours = try id(try #require(write(session, api).first))
    #expect(!receive(#"{"id":\#(ours),"result":1}"#, other, api))
    #expect(receive(#"{"id":\#(ours),"result":1}"#, session, api))
    #expect(api.advance(call).isReady && !api.advance(theirs).isReady)
    _ = api.finish(call)
    theirs.abandon()
  }

  @Test func aLateReplyIsShownByTheDelivery() throws {
    var api = try fixture()
    let session = try api.session("market")
    let call = try hold(#"{"id":"a"}"#, to: "/v1/sessions/market/call", fields: "Prefer: wait=3\r\n", api)
    #expect(api.advance(call).deadline == api.now + .seconds(3))
    let ours = try id(try #require(write(session, api).first))
    let response = api.finish(call)
    #expect(response.status == 504 && response.problem == "reply-timeout")
    #expect(response.json["retryable"] as? Bool == false)
    #expect(response.field("Preference-Applied") == "wait=3")
    let location = try #require(response.field("Location"))
    #expect(response.field("Gateway-Call-Id") != nil)
    #expect(location.hasPrefix("/v1/sessions/market/deliveries/d-"))
    #expect(try api.respond("GET", location).json["reply"] == nil)
    #expect(!receive(#"{"id":\#(ours),"result":"\ud800"}"#, session, api), "it cannot be shown in another document")
    #expect(receive(#"{"id":\#(ours),"result":[1]}"#, session, api))
    let reply = try #require(try api.respond("GET", location).json["reply"] as? [String: Any])
    #expect(reply["id"] as? String == "a" && reply["result"] as? [Int] == [1])
    api.now = api.now + .seconds(60)
    session.upstream.expireCalls(now: api.now)
    #expect(try api.respond("GET", location).json["reply"] == nil)
    let mayHaveReplies = session.upstream.mayHaveReplies.load(ordering: .relaxed)
    #expect(!mayHaveReplies)
  }

  @Test(arguments: [OutboxSettings.Redelivery.never, .unconfirmed])
  func aReplyConfirmsItsRequestWhichIsNotSentAgain(redelivery: OutboxSettings.Redelivery) throws {
    let api = try fixture { $0.redelivery = redelivery }
    let session = try api.session()
    let calls = try (0..<3).map { try hold(#"{"id":\#($0)}"#, api) }
    let sent = write(session, api)
    #expect(receive(#"{"id":\#(try id(sent[1])),"result":1}"#, session, api))
    #expect(api.finish(calls[1]).status == 200)
    #expect(api.finish(calls[0]).problem == "reply-timeout")
    #expect(receive(#"{"id":\#(try id(sent[0])),"result":1}"#, session, api), "a late reply")
    for number in [1, 2] as [UInt64] { #expect(session.upstream.deliveryState(number) == .confirmed) }
    #expect(session.upstream.deliveryState(3) == .written)
    session.upstream.update { guarded in
      guarded.outbox.stopSending()
      guarded.outbox.settle()
    }
    session.upstream.endCalls(of: Self.connection)
    #expect(write(session, api) == (redelivery == .never ? [] : [sent[2]]))
    #expect(api.finish(calls[2]).problem == (redelivery == .never ? "upstream-closed" : "reply-timeout"))
  }

  @Test func aProxyThatStatesItsTimeoutShortensTheWait() throws {
    let api = try fixture()
    let call = try hold(
      #"{"id":1}"#, to: "/v1/call?wait=30s", fields: "x-envoy-expected-rq-timeout-ms: 2000\r\n", api)
    #expect(api.advance(call).deadline == api.now + .milliseconds(1_500))
    call.abandon()
  }

  // MARK: Without a reply

  @Test func theRequestsOfCallsAreCountedInTheQueueByTheirClients() throws {
    var api = try fixture { $0.maximumMessages = 16 }
    let calls = try (0..<16).map { try hold(#"{"id":\#($0)}"#, api) }
    #expect(try api.post(#"{"id":16}"#, to: "/v1/call").problem == "queue-full")
    api.client = ClientConnection(.ipv4(1))
    let other = try hold(#"{"id":16}"#, api)
    for call in calls + [other] { call.abandon() }
  }

  @Test func aFullQueueEndsAtOnceOnlyTheCallThatItDrops() throws {
    let api = try fixture {
      $0.overflow = .dropOldest
      $0.maximumMessages = 3
    }
    let session = try api.session()
    let calls = try (0..<3).map { try hold(#"{"id":\#($0)}"#, api) }
    _ = try api.post("a")
    #expect(calls.map { api.advance($0).isReady } == [true, false, false])
    _ = try api.post("b")
    #expect(calls.map { api.advance($0).isReady } == [true, true, false])
    #expect(calls[0...1].map { api.finish($0).problem } == ["queue-full", "queue-full"])
    #expect(write(session, api).count == 3)
    calls[2].abandon()
  }

  @Test func aRequestThatIsStillQueuedAtItsTimeoutIsNeverSent() throws {
    for fields in ["TTL: 30\r\n", "TTL: 2\r\n", ""] {
      var api = try fixture()
      let call = try hold(#"{"id":1}"#, to: "/v1/call?wait=5s", fields: fields, api)
      api.now = try #require(api.advance(call).deadline)
      let response = api.finish(call)
      #expect(response.status == 503 && response.problem == "upstream-down" && response.field("Retry-After") == "1")
      #expect(write(try api.session(), api) == [])
      #expect(api.api.pendingRequests == 0)
    }
  }

  @Test func aRequestThatIsStillQueuedWhenItsClientLeavesIsNeverSent() throws {
    let api = try fixture()
    let session = try api.session()
    let calls = try (0..<3).map { try hold(#"{"id":\#($0)}"#, api) }
    // A client that has closed its sending side gets its response before the deadline.
    #expect(api.finish(calls[0]).problem == "upstream-down")
    calls[1].abandon()
    for number in [1, 2] as [UInt64] {
      let record = try #require(session.upstream.deliveryRecord(number, now: api.now))
      #expect(record.state == .expired && record.reason == .ttl)
    }
    #expect(!api.advance(calls[2]).isReady && write(session, api).count == 1)
    #expect(api.finish(calls[2]).problem == "reply-timeout")
    #expect(api.api.pendingRequests == 0 && session.upstream.callCount == 0)
  }

  @Test func otherCallsEndEvenAfterAClientHasLeft() throws {
    var api = try fixture()
    let session = try api.session()
    let call = try hold(#"{"id":1}"#, to: "/v1/call?ttl=1s", api)
    let other = try hold(#"{"id":2}"#, api)
    api.now = api.now + .seconds(1)
    let now = api.now
    session.upstream.guarded.withLock { _ = $0.outbox.expire(now: now) }
    other.abandon()
    #expect(api.advance(call).isReady)
    #expect(api.finish(call).problem == "upstream-down")
  }

  @Test func aCallEndsWhenTheMessageOfItsRequestEnds() throws {
    var api = try fixture()
    let session = try api.session()
    let call = try hold(#"{"id":1}"#, to: "/v1/call?ttl=1s", api)
    api.now = api.now + .seconds(1)
    let now = api.now
    session.upstream.update { _ = $0.outbox.expire(now: now) }
    #expect(api.advance(call).isReady)
    #expect(api.finish(call).problem == "upstream-down")
    let other = try hold(#"{"id":1}"#, api)
    session.upstream.refuseMessages()
    #expect(api.advance(other).isReady)
    #expect(api.finish(other).problem == "session-closed")
    #expect(try api.post(#"{"id":1}"#, to: "/v1/call").problem == "session-closed")
  }

  @Test func aLostConnectionEndsOnlyTheCallsThatItCarried() throws {
    let api = try fixture()
    let session = try api.session()
    let carried = try hold(#"{"id":1}"#, api)
    _ = write(session, api)
    let queued = try hold(#"{"id":2}"#, api)
    session.upstream.update { guarded in
      guarded.outbox.stopSending()
      guarded.outbox.settle()
    }
    session.upstream.endCalls(of: Self.connection)
    #expect(api.advance(carried).isReady && !api.advance(queued).isReady)
    let response = api.finish(carried)
    #expect(response.status == 502 && response.problem == "upstream-closed")
    #expect(response.field("Location")?.hasPrefix("/v1/deliveries/d-") == true)
    queued.abandon()
  }

  @Test(arguments: [OutboxSettings.Redelivery.never, .unconfirmed])
  func aCallThatIsTooLargeForTheUpstreamEndsBeforeTheConnectionDoes(redelivery: OutboxSettings.Redelivery) throws {
    let api = try fixture { $0.redelivery = redelivery }
    let session = try api.session()
    let calls = try [#"{"id":1}"#, #"{"id":2,"params":"large"}"#].map { try hold($0, api) }
    _ = write(session, api)
    session.upstream.update { $0.outbox.stopSending(closedAsTooBig: true) }
    #expect(calls.map { api.advance($0).isReady } == [false, true])
    #expect(api.finish(calls[1]).problem == "upstream-closed")
    calls[0].abandon()
  }

  @Test(arguments: [false, true])
  func anOpenConnectionMayReplyThoughItsMessagesAreFinal(isReplied: Bool) throws {
    let api = try fixture()
    let session = try api.session()
    let call = try hold(#"{"id":1}"#, api)
    let ours = try id(try #require(write(session, api).first))
    session.upstream.update { guarded in
      guarded.outbox.stopSending()
      guarded.outbox.settle()
    }
    #expect(session.upstream.deliveryState(1) == .unknown && !api.advance(call).isReady)
    if isReplied {
      #expect(receive(#"{"id":\#(ours),"result":1}"#, session, api))
      #expect(api.finish(call).status == 200)
    } else {
      session.upstream.endCalls(of: Self.connection)
      #expect(api.advance(call).isReady)
      #expect(api.finish(call).problem == "upstream-closed")
    }
  }

  @Test func aSessionWhoseLoopHasEndedEndsItsCalls() throws {
    let api = try fixture()
    let session = try api.session()
    let carried = try hold(#"{"id":1}"#, api)
    _ = write(session, api)
    let queued = try hold(#"{"id":2}"#, api)
    session.upstream.abandon()
    #expect(api.advance(carried).isReady && api.advance(queued).isReady)
    #expect(api.finish(carried).problem == "upstream-closed")
    #expect(api.finish(queued).problem == "session-closed")
  }

  @Test func aDisconnectedClientLeavesNoState() throws {
    let api = try fixture()
    let session = try api.session()
    let calls = try (0..<3).map { try hold(#"{"id":\#($0)}"#, api) }
    let sent = write(session, api)
    #expect(session.upstream.callCount == 3)
    calls[1].abandon()
    #expect(!receive(#"{"id":\#(try id(sent[1])),"result":1}"#, session, api), "nobody waits for it")
    calls[0].abandon()
    calls[2].abandon()
    #expect(api.api.pendingRequests == 0 && session.upstream.callCount == 0)
  }

  @Test func withoutAWaitTheReplyIsOnlyInTheDelivery() throws {
    let api = try fixture()
    let session = try api.session()
    #expect(try api.post(#"{"id":1}"#, to: "/v1/call?wait=0").problem == "upstream-down")
    _ = write(session, api)
    let response = try api.post(#"{"id":1}"#, to: "/v1/call?wait=0")
    #expect(response.problem == "reply-timeout")
    let ours = try id(try #require(write(session, api).first))
    #expect(receive(#"{"id":\#(ours),"result":5}"#, session, api))
    let delivery = try api.respond("GET", try #require(response.field("Location")))
    #expect((delivery.json["reply"] as? [String: Int])?["result"] == 5)
  }

  // MARK: Requests

  @Test(arguments: [
    ("", "not valid JSON"), ("x", "not valid JSON"), (#"{"id":1}{"#, "not valid JSON"), (#"{"method":"m"}"#, "no id"),
    (#"{"id":null}"#, "no id"), (#"[{"id":1}]"#, "array"), (#"{"id":[]}"#, "neither a string nor a number"),
    (#"{"id":1,"id":1}"#, "repeated"), (String(repeating: "[", count: 200), "nested deeper"),
    (#"{"id":""# + String(repeating: "a", count: 255) + #""}"#, "has 257 bytes"),
    (#"{"id":1"# + String(repeating: "0", count: 256) + "}", "at most 256"),
    (#"{"id":"\ud83d"}"#, "surrogate"),
  ])
  func aRequestNeedsExactlyOneID(body: String, part: String) throws {
    let api = try fixture()
    let response = try api.post(body, to: "/v1/call")
    #expect(response.status == 422 && response.problem == "invalid-document", "\(response.body)")
    #expect(response.text("detail")?.contains(part) == true, "\(response.body)")
    #expect(try api.session().upstream.callCount == 0)
    #expect(write(try api.session(), api) == [])
  }

  @Test(arguments: [
    ("Idempotency-Key: a\r\n", "invalid-parameter"), ("Topic: a\r\n", "invalid-parameter"),
    ("Content-Type: application/x-ndjson\r\n", "unsupported-media-type"),
    ("Content-Type: multipart/mixed\r\n", "unsupported-media-type"),
    ("Content-Encoding: br\r\n", "unsupported-encoding"), ("Content-Encoding: gzip\r\n", "unsupported-encoding"),
    ("TTL: x\r\n", "invalid-parameter"), ("TTL: 0\r\n", "upstream-down"), ("Accept: text/plain\r\n", "not-acceptable"),
  ])
  func anOptionThatACallDoesNotHaveIsRefused(fields: String, problem: String) throws {
    #expect(try fixture().post(#"{"id":1}"#, to: "/v1/call", fields: fields).problem == problem)
  }

  /// HTTP::Tiny and aiohttp declare every body as bytes.
  @Test(arguments: ["", "?type=text"]) func aCallMayBeDeclaredAsBinary(query: String) throws {
    let api = try fixture()
    let fields = "Content-Type: application/octet-stream\r\n"
    let call = try hold(#"{"id":1}"#, to: "/v1/call" + query, fields: fields, api)
    let sent = try #require(write(try api.session(), api).first)
    #expect(receive(sent.dropLast() + #","result":2}"#, try api.session(), api))
    #expect(api.finish(call).body == #"{"id":1,"result":2}"#)
    #expect(try api.post("x", to: "/v1/call" + query, fields: fields).problem == "invalid-document")
    #expect(try api.post(#"{"id":1}"#, to: "/v1/call?type=binary").problem == "invalid-parameter")
  }

  @Test func otherProblemsOfACallSayHowToSolveThem() throws {
    #expect(try fixture().post([0x22, 0xFF, 0x22], to: "/v1/call").problem == "invalid-text")
    let response = try fixture(nil).post(#"{"id":1}"#, to: "/v1/sessions/market/call")
    #expect(response.status == 404 && response.problem == "calls-not-configured")
    #expect(response.text("detail")?.contains("sessions.market.upstream.correlation") == true)
    let api = try fixture()
    #expect(try api.respond("GET", "/v1/call").field("Allow") == "POST, OPTIONS")
    #expect(try api.respond("OPTIONS", "/v1/sessions/market/call").status == 204)
  }

  @Test func aReloadChangesHowRequestsAreRead() throws {
    let api = try fixture(nil)
    let session = try api.session()
    var settings = session.upstream.settings.value
    let pointer = try #require(JSONPointer("/1"))
    settings.conventions.correlation = Correlation(request: pointer, reply: pointer, shape: .any)
    session.upstream.reconfigure(try PreparedSettings(settings), because: .configuration)
    let call = try hold(#"[2,"19","Boot"]"#, api)
    let sent = try #require(write(session, api).first)
    #expect(receive(sent, session, api))
    #expect(api.finish(call).body == #"[2,"19","Boot"]"#)
  }
}
