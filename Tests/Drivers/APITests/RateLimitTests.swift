import Access
import ByteStreams
import Configuration
import HTTPCodec
import HTTPServer
import Host
import Reactor
import Sessions
import Testing
import Upstream

@testable import API

/// The limits of each client, as shown in responses. The rates are so low that the duration of a test does not matter.
@Suite struct RateLimitTests {
  private func limited(_ change: (inout RateTable.Limits) -> Void) throws -> APIFixture {
    try APIFixture { change(&$0.api.limits.address) }
  }

  private func poll(_ api: APIFixture, _ fields: String = "") throws -> Received {
    try api.respond("GET", "/v1/messages?wait=0", fields)
  }

  // MARK: Requests

  @Test func aRequestAboveTheLimitGets429AndTheTimeToWait() throws {
    let api = try limited { $0.requests = RateLimit(2, per: .hours(1)) }
    for _ in 0..<2 { #expect(try poll(api).status == 200) }
    let refused = try poll(api)
    #expect(refused.status == 429)
    #expect(refused.problem == "too-many-requests")
    #expect(refused.json["retryable"] as? Bool == true)
    #expect(refused.text("detail")?.contains("limits.address.requests, 2/h") == true)
    let wait = try #require(refused.field("Retry-After").flatMap { Int($0) })
    #expect((1_790...1_800).contains(wait))
    #expect(refused.field("RateLimit-Policy") == #""address-requests";q=2;w=3600"#)
    #expect(refused.field("RateLimit") == #""address-requests";r=0;t=\#(wait)"#)
    #expect(try api.respond("GET", "/v1/no-such-path").status == 429)
  }

  @Test func eachAddressHasItsOwnLimitAndUnixSocketsAndManagementHaveNone() throws {
    var api = try limited { $0.requests = RateLimit(1, per: .hours(1)) }
    for number: UInt32 in 1...3 {
      api.client = ClientConnection(.ipv4(number))
      #expect(try poll(api).status == 200)
      #expect(try poll(api).status == 429)
      #expect(try api.respond("GET", "/livez", "", .management).status == 200)
    }
    api.client = ClientConnection(nil)
    for _ in 0..<3 { #expect(try poll(api).status == 200) }
  }

  @Test func aResponseStatesTheRemainderIfItIsLessThanAFifth() throws {
    let api = try limited { $0.requests = RateLimit(10, per: .hours(1)) }
    for used in 1...10 {
      let response = try poll(api)
      #expect(response.status == 200)
      #expect((response.field("RateLimit") != nil) == (used > 8), "\(used)")
    }
    // The polls above got prepared responses. With a higher limit, a prepared response has no fields about the limit.
    let plenty = try limited { $0.requests = RateLimit(100, per: .hours(1)) }
    #expect(try poll(plenty).field("RateLimit-Policy") == nil)
  }

  // MARK: Messages

  private let lines = "Content-Type: application/x-ndjson\r\n"

  @Test func aBatchIsCountedByItsMessagesAndAdmittedAsAWhole() throws {
    let api = try limited { $0.messages = RateLimit(5, per: .hours(1)) }
    func isQueued(_ count: Int) throws -> Bool { try api.session().upstream.snapshot().queuedMessages == count }
    #expect(try api.post("1\n2\n3\n", fields: lines).status == 202)
    #expect(try api.post("1\n2\n3\n", fields: lines).problem == "too-many-requests")
    #expect(try isQueued(3))
    #expect(try api.post("1\n2\n", fields: lines).status == 202)
    #expect(try api.post("1").problem == "too-many-requests")
    #expect(try isQueued(5))
    #expect(try poll(api).status == 200)
  }

  @Test func aBatchThatNoWaitCanAdmitIsTooLarge() throws {
    let api = try limited { $0.messages = RateLimit(5, per: .hours(1)) }
    let refused = try api.post("1\n2\n3\n4\n5\n6\n", fields: lines)
    #expect(refused.problem == "content-too-large")
    #expect(refused.field("Retry-After") == nil)
    #expect(try api.post("1\n2\n3\n4\n5\n", fields: lines).status == 202)
  }

  @Test func aRepetitionUnderAKeySendsNothingAndIsNotCounted() throws {
    let api = try limited { $0.messages = RateLimit(2, per: .hours(1)) }
    for _ in 0..<5 { #expect(try api.post("1", fields: "Idempotency-Key: a\r\n").status == 202) }
    #expect(try api.post("2", fields: "Idempotency-Key: b\r\n").status == 202)
    // A refused request does not use its key, so it may be repeated with the key.
    for _ in 0..<2 { #expect(try api.post("3", fields: "Idempotency-Key: c\r\n").status == 429) }
    // An accepted request can be repeated even at the limit, since the client must learn whether its message was
    // accepted.
    #expect(try api.post("1", fields: "Idempotency-Key: a\r\n").status == 202)
  }

  @Test func theWaitForTheMessageLimitIncludesTheWaitForTheRequestLimit() throws {
    let api = try limited {
      $0.messages = RateLimit(60, per: .hours(1), burst: 1)
      $0.requests = RateLimit(2, per: .hours(1))
    }
    #expect(try api.post("1").status == 202)
    let wait = try #require(try api.post("1").field("Retry-After").flatMap { Int($0) })
    #expect((1_790...1_800).contains(wait))
  }

  @Test func aRefusedRequestDoesNotCollectItsBody() throws {
    let api = try limited { $0.messages = RateLimit(1, per: .hours(1)) }
    #expect(try api.post("1").status == 202)
    var connection = HTTPServerConnection()
    connection.receive(Array("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n".utf8).span)
    let event = try connection.nextEvent()
    #expect(event == .head)
    let exchange = api.api.begin(connection.request, on: .loopback, from: api.client)
    #expect(exchange.body == nil)
    api.api.abandon(exchange)
  }

  // MARK: Held requests

  private let stream = "GET /v1/messages HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"

  @Test func heldRequestsAndStreamsAreCountedUntilTheyEnd() throws {
    let api = try limited { $0.held = 2 }
    func isFull() throws -> Bool { try api.send(Array(stream.utf8)).response.status == 429 }
    for _ in 0..<20 {
      let first = try api.hold("/v1/messages?wait=20")
      guard case .stream(let source) = try api.send(Array(stream.utf8)).outcome else {
        Issue.record("not a stream")
        return
      }
      let refused = try api.send(Array(stream.utf8)).response
      #expect(refused.status == 429)
      #expect(refused.field("Retry-After") == "1")
      #expect(refused.field("RateLimit-Policy") == #""address-held";q=2;qu="concurrent-requests""#)
      #expect(refused.field("RateLimit") == #""address-held";r=0"#)
      // A request without a wait is not counted.
      #expect(try poll(api).status == 200)
      _ = api.finish(first)
      let second = try api.hold("/v1/messages?wait=20")
      #expect(try isFull())
      second.abandon()
      source.close()
    }
    // These requests end and no longer count: some do not have to wait, the clients of others disconnect before the
    // body arrives, and others are refused.
    try api.push("a")
    for _ in 0..<5 { #expect(try api.respond("GET", "/v1/messages?wait=20&cursor=earliest").status == 200) }
    for _ in 0..<5 {
      var connection = HTTPServerConnection()
      connection.receive(
        Array("POST /v1/messages?until=written HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n".utf8).span)
      _ = try connection.nextEvent()
      let exchange = api.api.begin(connection.request, on: .loopback, from: api.client)
      api.api.abandon(exchange)
    }
    for _ in 0..<5 { #expect(try api.respond("GET", "/v1/messages?wait=20&limit=0").status == 400) }
    #expect(try !isFull())
  }

  @Test func aStreamThatIsCountedSendsItsPositionAtADrain() throws {
    let api = try limited { $0.held = 2 }
    let request = stream.replacing("messages HTTP", with: "messages?topic=a HTTP")
    guard case .stream(let source) = try api.send(Array(request.utf8)).outcome else {
      Issue.record("not a stream")
      return
    }
    var content = ResponseContent()
    _ = source.next(at: api.now, into: &content)
    try api.push("1", topic: "a")
    content = ResponseContent()
    source.writeLast(at: api.now, into: &content)
    let isSilent = content.isEmpty
    #expect(!isSilent)
    source.close()
  }

  // MARK: Failed authentication

  @Test func anAddressWithManyInvalidCredentialsIsRefusedBeforeTheirCheck() throws {
    let api = try APIFixture { $0.api.limits.address.failures = RateLimit(2, per: .hours(1)) }
    let limiter = api.api.common.limiter
    let (attacker, other) = (ClientConnection(.ipv4(1)).origin, ClientConnection(.ipv4(2)).origin)
    for _ in 0..<2 {
      try limiter.checkFailures(from: attacker, at: api.now)
      limiter.noteFailure(from: attacker, at: api.now)
    }
    #expect(throws: Problem.self) { try limiter.checkFailures(from: attacker, at: api.now) }
    try limiter.checkFailures(from: attacker, at: api.now + .minutes(30))
    try limiter.checkFailures(from: other, at: api.now)
    // Requests without a check of credentials are not limited.
    #expect(try poll(api).status == 200)
  }

  // MARK: Many clients

  @Test func limitsAreExactOverSeveralThreads() async throws {
    let api = try limited {
      $0.requests = RateLimit(7, per: .hours(1))
      $0.held = 3
    }
    let limiter = api.api.common.limiter
    let now = api.now
    let admitted = await withTaskGroup(of: Int.self) { group in
      for _ in 0..<4 {
        group.addTask { @concurrent in
          var admitted = 0
          for _ in 0..<20 {
            for number: UInt32 in 0..<100 {
              guard let client = limiter.client("", at: ClientConnection(.ipv4(number)).origin) else { continue }
              do {
                try limiter.admitRequest(of: client, at: now)
                admitted += 1
                if let hold = try limiter.hold(for: client, at: now) { limiter.release(hold) }
              } catch {}
            }
          }
          return admitted
        }
      }
      return await group.reduce(0, +)
    }
    #expect(admitted == 700)
    let client = try #require(limiter.client("", at: ClientConnection(.ipv4(0)).origin))
    for _ in 0..<3 { #expect(try limiter.hold(for: client, at: now) != nil) }
    #expect(throws: Problem.self) { try limiter.hold(for: client, at: now) }
  }
}
