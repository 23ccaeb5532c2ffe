import ByteStreams
import Configuration
import Dialing
import Foundation
import HTTPCodec
import Host
import Idempotency
import LoopbackSupport
import Metrics
import Outbox
import Reactor
import Synchronization
import Testing
import Threading
import UpstreamProtocol

@testable import API
@testable import Peers
@testable import Sessions
@testable import Upstream

/// Requests that wait at the client's gateway when it loses the session.
@Suite struct SessionLossTests {
  private static func gateway(
    _ journal: SharedJournal, startsSessions: Bool = false, patience: TimeSpan = .seconds(20)
  ) throws -> TestGateway {
    try TestGateway(startsSessions: startsSessions, sharing: journal, limits: { $0.patience = patience }) {
      $0.session.upstream.conventions.correlation = .jsonRPC
    }
  }

  /// A gateway that is the holder of the session and will lose it.
  private static func holder(_ journal: SharedJournal, patience: TimeSpan = .seconds(20)) throws -> TestGateway {
    let gateway = try gateway(journal, patience: patience)
    gateway.becomeHolder()
    return gateway
  }

  /// Moves the session from `gateway` to another gateway. Returns the other gateway.
  private static func move(_ journal: SharedJournal, from gateway: TestGateway) throws -> TestGateway {
    gateway.lose()
    let next = try Self.gateway(journal, startsSessions: true)
    next.becomeHolder()
    gateway.locate(at: next.peerAddress)
    return next
  }

  @Test func aWaitForADeliveryContinuesAtTheNextHolder() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    let sent = try first.request("POST", "/v1/messages?ttl=500ms", "", "x")
    #expect(sent.status == 202, "\(sent.body)")
    let client = try first.connect()
    client.send("GET", try #require(sent.field("Location")) + "?wait=30s")
    let held = try first.session()
    #expect(eventually { held.upstream.guarded.withLock { $0.confirmationWaiters } == 1 })
    // Only the next gateway has started its sessions, so messages expire only there.
    let next = try Self.move(journal, from: first)
    let response = try client.response()
    #expect(response.status == 200 && response.text("state") == "expired", "\(response.body)")
    #expect(try eventually { try first.isIdle() && next.isIdle() })
  }

  @Test(arguments: [false, true]) func aReceiveContinuesAtTheNextHolder(isForwarded: Bool) throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    let follower = try isForwarded ? Self.gateway(journal) : first
    if isForwarded { follower.locate(at: first.peerAddress) }
    _ = try first.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#)
    let client = try follower.connect()
    client.send("POST", "/v1/consumers/c/receive?wait=30s")
    #expect(eventually { first.metric("drawbridge_receives_held") == 1 })
    let next = try Self.move(journal, from: first)
    if isForwarded { follower.locate(at: next.peerAddress) }
    #expect(eventually { next.metric("drawbridge_receives_held") == 1 })
    try next.push("x")
    let response = try client.response()
    let messages = try #require(response.json["messages"] as? [[String: Any]], "\(response.body)")
    #expect(response.status == 200 && messages.map { $0["data"] as? String } == ["x"])
    let lease = try #require(messages.first?["lease"] as? String)
    #expect(try follower.request("POST", "/v1/consumers/c/settle", "", #"{"ack":["\#(lease)"]}"#).status == 200)
    #expect(try next.request("GET", "/v1/consumers/c").json["leases"] as? Int == 0)
    #expect(try eventually { try first.isIdle() && next.isIdle() && follower.isIdle() })
  }

  @Test(arguments: [false, true])
  func aChangeOfTheDesiredStateIsStoredBeforeItIsAcknowledged(isForwarded: Bool) throws {
    let journal = SharedJournal()
    let first = try Self.gateway(journal)
    first.shared?.becomeHolder(of: "default", journal.open(), WritePermission { true })
    #expect(try first.request("PATCH", "/v1/session", "", #"{"desired":"down"}"#).status == 200)
    let follower = try Self.gateway(journal)
    follower.locate(at: first.peerAddress)
    let held = try first.session()
    journal.stall()
    let client = try (isForwarded ? follower : first).connect()
    client.send("PATCH", "/v1/session", "", #"{"desired":"up"}"#)
    #expect(eventually { held.upstream.guarded.withLock { $0.storeWaiters } == 1 })
    #expect(!client.isReadable)
    // This gateway never learns whether the message is stored. At the next holder the request can be repeated.
    let next = try Self.move(journal, from: first)
    if isForwarded { follower.locate(at: next.peerAddress) }
    let response = try client.response()
    #expect(isForwarded ? response.status == 200 : response.problem == "holder-unavailable", "\(response.body)")
    #expect(held.upstream.guarded.withLock { $0.storeWaiters } == 0)
    #expect(try eventually { try first.isIdle() && next.isIdle() && follower.isIdle() })
  }

  /// A client has closed the session at another gateway. One of the two gateways learns of it before the other.
  @Test(arguments: [false, true]) func waitsEndWhenTheSessionIsClosed(holderIsFirst: Bool) throws {
    let journal = SharedJournal()
    let first = try Self.gateway(journal, startsSessions: true)
    first.becomeHolder()
    let follower = try Self.gateway(journal)
    follower.locate(at: first.peerAddress)
    _ = try first.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#)
    let sent = try first.request("POST", "/v1/messages", "", "x")
    var waiting: [LoopbackClient] = []
    for gateway in [first, follower] {
      for (method, target) in [
        ("POST", "/v1/consumers/c/receive?wait=30s"), ("GET", try #require(sent.field("Location")) + "?wait=30s"),
      ] {
        let client = try gateway.connect()
        client.send(method, target)
        waiting.append(client)
      }
    }
    let held = try first.session()
    #expect(eventually { first.metric("drawbridge_receives_held") == 2 })
    #expect(eventually { held.upstream.guarded.withLock { $0.confirmationWaiters } == 2 })
    for gateway in holderIsFirst ? [first, follower] : [follower, first] {
      try #require(gateway.slot).close(code: 1000)
      // The second gateway does not know of the close yet.
      #expect(eventually { first.metric("drawbridge_receives_held") == 0 || gateway === follower })
    }
    for client in waiting {
      let response = try client.response()
      #expect(response.status == 410 && response.problem == "session-closed", "\(response.body)")
    }
    #expect(try eventually { try first.isIdle() && follower.isIdle() })
  }

  @Test func aSendThatWaitsForAStateEndsWhenTheSessionIsClosed() throws {
    let holder = try Self.holder(SharedJournal())
    let client = try holder.connect()
    client.send("POST", "/v1/messages?ttl=60s&until=written&wait=50s", "", "x")
    let held = try holder.session()
    #expect(eventually { held.upstream.guarded.withLock { $0.writeWaiters } == 1 })
    try #require(holder.slot).close(code: 1000)
    // The stored message stays queued, so its state would never change.
    #expect(eventually { held.upstream.guarded.withLock { $0.writeWaiters } == 0 })
    let response = try client.response()
    #expect(response.status == 202 && response.text("state") == "queued", "\(response.body)")
  }

  @Test func aRequestThatWaitsForAHolderEndsWhenTheSessionIsClosed() throws {
    let follower = try Self.gateway(SharedJournal())
    let client = try follower.connect()
    client.send("POST", "/v1/messages", "", "x")
    #expect(eventually { follower.network.metrics.waiting.current == 1 })
    try #require(follower.slot).close(code: 1000)
    let response = try client.response()
    #expect(response.status == 410 && response.problem == "session-closed", "\(response.body)")
    #expect(try eventually { try follower.isIdle() })
  }

  @Test func aForwardedReceiveWaitsWhileItsHolderDrains() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    let follower = try Self.gateway(journal)
    follower.locate(at: first.peerAddress)
    _ = try first.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#)
    let client = try follower.connect()
    client.send("POST", "/v1/consumers/c/receive?wait=30s")
    #expect(eventually { first.metric("drawbridge_receives_held") == 1 })
    // The gateway releases its own clients.
    let own = try first.connect()
    own.send("POST", "/v1/consumers/c/receive?wait=30s")
    #expect(eventually { first.metric("drawbridge_receives_held") == 2 })
    first.drain()
    #expect(try own.response().status == 200)
    #expect(!client.isReadable && first.network.holdsRequests)
    let hasEnded = Atomic(false)
    first.network.whenHoldingEnds { hasEnded.store(true, ordering: .sequentiallyConsistent) }
    let next = try Self.move(journal, from: first)
    follower.locate(at: next.peerAddress)
    #expect(eventually { next.metric("drawbridge_receives_held") == 1 })
    #expect(hasEnded.load(ordering: .sequentiallyConsistent) && !first.network.holdsRequests)
    try next.push("x")
    #expect(try client.response().body.contains(#""data":"x""#))
  }

  @Test func aWaitWithoutANextHolderEnds() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal, patience: .milliseconds(200))
    _ = try first.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#)
    let client = try first.connect()
    client.send("POST", "/v1/consumers/c/receive?wait=30s")
    #expect(eventually { first.metric("drawbridge_receives_held") == 1 })
    first.lose()
    #expect(try client.response().problem == "holder-unavailable")
    #expect(try eventually { try first.isIdle() })
  }

  @Test func aWaitThatMovesEndsWithItsClient() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    _ = try first.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#)
    let client = try first.connect()
    client.send("POST", "/v1/consumers/c/receive?wait=30s")
    #expect(eventually { first.metric("drawbridge_receives_held") == 1 })
    let next = try Self.move(journal, from: first)
    #expect(eventually { next.metric("drawbridge_receives_held") == 1 })
    client.close()
    #expect(try eventually { try first.isIdle() && next.isIdle() })
  }

  @Test func aWaitThatMovesEndsWhenTheGatewayDrains() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    _ = try first.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#)
    let client = try first.connect()
    client.send("POST", "/v1/consumers/c/receive?wait=30s")
    #expect(eventually { first.metric("drawbridge_receives_held") == 1 })
    let next = try Self.move(journal, from: first)
    #expect(eventually { next.metric("drawbridge_receives_held") == 1 })
    first.drain()
    #expect(try client.response().problem == "holder-unavailable")
    #expect(try eventually { try next.isIdle() })
  }

  /// Sends a message through `gateway` to the holder, which loses the session while the journal stores the message.
  private static func sendToLoser(
    _ holder: TestGateway, _ journal: SharedJournal, by gateway: TestGateway
  ) throws -> LoopbackClient {
    journal.stall()
    let client = try gateway.connect()
    client.send("POST", "/v1/messages", "", "x")
    #expect(try eventually { try holder.onLoop { $0.sends.count } == 1 })
    journal.lose()
    holder.lose()
    return client
  }

  @Test func aMessageThatMayBeStoredHasAnUnknownOutcome() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    let client = try Self.sendToLoser(first, journal, by: first)
    #expect(try client.response().problem == "outcome-unknown")
    #expect(try eventually { try first.isIdle() })
  }

  @Test func aForwardedMessageThatWasNotStoredIsSentByTheNextHolder() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    let follower = try Self.gateway(journal)
    follower.locate(at: first.peerAddress)
    let client = try Self.sendToLoser(first, journal, by: follower)
    #expect(eventually { first.metric("drawbridge_peer_requests_misdirected_total") > 0 })
    #expect(try first.onLoop { $0.common.forwarded.withLock { $0.count } } == 0)
    let other = SharedJournal()
    let next = try Self.holder(other)
    follower.locate(at: next.peerAddress)
    #expect(try client.response().status == 202)
    #expect(next.metric("drawbridge_messages_accepted_total") == 1)
    #expect(first.metric("drawbridge_messages_accepted_total") == 0)
  }

  /// The end of the journal wakes its waiters before the gateway loses the session.
  @Test(arguments: [false, true])
  func aMessageIsNotRefusedBetweenTheEndOfTheJournalAndTheLossOfTheSession(isForwarded: Bool) throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    let gateway = try isForwarded ? Self.gateway(journal) : first
    if isForwarded { gateway.locate(at: first.peerAddress) }
    journal.stall()
    let client = try gateway.connect()
    client.send("POST", "/v1/messages", "", "x")
    #expect(try eventually { try first.onLoop { $0.sends.count } == 1 })
    journal.lose()
    try first.session().upstream.journalChanged()
    if isForwarded {
      #expect(eventually { first.metric("drawbridge_peer_requests_misdirected_total") > 0 })
      let next = try Self.holder(SharedJournal())
      gateway.locate(at: next.peerAddress)
      #expect(try client.response().status == 202)
      #expect(next.metric("drawbridge_messages_accepted_total") == 1)
    } else {
      #expect(try client.response().problem == "outcome-unknown")
    }
    #expect(first.metric("drawbridge_messages_accepted_total") == 0)
  }

  @Test func aRequestBetweenTheEndOfTheJournalAndTheLossIsServedByTheNextHolder() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    journal.lose()
    let requests = [
      ("POST", "/v1/messages", "x"), ("PUT", "/v1/consumers/c", #"{"share":true}"#),
      ("PATCH", "/v1/session", #"{"desired":"down"}"#),
    ]
    let clients = try requests.map { method, target, body in
      let client = try first.connect()
      client.send(method, target, "", body)
      return client
    }
    #expect(eventually { first.network.metrics.waiting.current == clients.count })
    let next = try Self.holder(SharedJournal())
    first.lose()
    first.locate(at: next.peerAddress)
    for client in clients { #expect(try [200, 201, 202].contains(client.response().status)) }
  }

  /// No next holder is found in time. The journal may have stored the message, and then a later holder sends it.
  @Test func aForwardedMessageThatMayBeStoredHasAnUnknownOutcome() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    let follower = try TestGateway(.at(first.peerAddress), limits: { $0.patience = .milliseconds(300) })
    let client = try Self.sendToLoser(first, journal, by: follower)
    #expect(try client.response().problem == "outcome-unknown")
    #expect(first.metric("drawbridge_peer_requests_misdirected_total") > 0)
    // A gateway that was never the holder responds that the request had no effect.
    let other = try follower.connect()
    other.send("POST", "/v1/messages", "", "x")
    #expect(try other.response().problem == "holder-unavailable")
  }

  @Test func aWaitForAConfirmationEndsWithTheStateSoFar() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    let client = try first.connect()
    client.send("POST", "/v1/messages?until=confirmed&wait=30s", "", "x")
    #expect(try eventually { try first.onLoop { $0.sends.count } == 1 })
    first.lose()
    let response = try client.response()
    #expect(response.status == 202 && response.text("state") == "queued", "\(response.body)")
    #expect(try eventually { try first.isIdle() })
  }

  @Test func aCallThatWasNotSentEnds() throws {
    let journal = SharedJournal()
    let first = try TestGateway(startsSessions: true, sharing: journal, limits: { _ in }) {
      $0.session.upstream.conventions.correlation = .jsonRPC
    }
    first.becomeHolder()
    let client = try first.connect()
    client.send("POST", "/v1/call?wait=30s", "", #"{"jsonrpc":"2.0","id":1,"method":"a"}"#)
    #expect(try eventually { try first.onLoop { $0.calls.count } == 1 })
    first.lose()
    #expect(try client.response().problem == "holder-unavailable")
    #expect(try eventually { try first.isIdle() })
  }

  // MARK: Time that has passed at other gateways

  private static let call = #"{"jsonrpc":"2.0","id":1,"method":"a"}"#

  @Test func aCallEndsWhenItsClientHasWaitedForItsTime() throws {
    let holder = try TestGateway(
      startsSessions: true, settings: { $0.session.upstream.conventions.correlation = .jsonRPC })
    let (long, late, over) = (try holder.connectAsPeer(), try holder.connectAsPeer(), try holder.connectAsPeer())
    long.send(TestGateway.forwarded("POST", "/v1/call?wait=40s", body: Self.call))
    #expect(try eventually { try holder.onLoop { $0.calls.count } == 1 })
    over.send(
      TestGateway.forwarded("POST", "/v1/call?wait=6s", fields: "Drawbridge-Waited: 6000\r\n", body: Self.call))
    let response = try over.response()
    #expect(response.status == 503 && response.problem == "holder-unavailable", "\(response.body)")
    #expect(holder.metric("drawbridge_messages_accepted_total") == 1)
    late.send(
      TestGateway.forwarded(
        "POST", "/v1/call?wait=40s&ttl=60s", fields: "Drawbridge-Waited: 39800\r\n", body: Self.call))
    #expect(try late.response().problem == "upstream-down")
    #expect(holder.metric("drawbridge_messages_accepted_total") == 2)
    #expect(!long.isReadable)
  }

  @Test func theTimeToLiveBeginsWithTheRequestOfTheClient() throws {
    let holder = try TestGateway(
      startsSessions: true, settings: { $0.session.upstream.outbox.timeToLive = .seconds(90) })
    var number = 0
    func send(_ query: String, waited: Int, _ fields: String = "", id: Int? = nil) throws -> ReceivedResponse {
      number += 1
      let peer = try holder.connectAsPeer()
      let name = String(repeating: "0", count: 30) + "\(10 + (id ?? number))"
      let fields = "Drawbridge-Waited: \(waited)\r\n\(fields)"
      peer.send(TestGateway.forwarded("POST", "/v1/messages\(query)", id: name, fields: fields, body: "x\n"))
      return try peer.response()
    }
    #expect(try send("?ttl=40200ms&until=written&wait=50s", waited: 40_000).text("state") == "expired")
    // The TTL has ended while the request waited at the other gateway. The same applies to the default TTL, to a TTL of
    // zero, and to a batch.
    for (query, waited, fields) in [
      ("?ttl=2s", 5_400, ""), ("", 90_000, ""), ("", 100, "TTL: 0\r\n"),
      ("?ttl=2s", 5_400, "Content-Type: application/x-ndjson\r\n"),
    ] {
      let response = try send(query, waited: waited, fields)
      #expect(response.status == 503 && response.problem == "upstream-down", "\(query) \(fields): \(response.body)")
    }
    // A repetition counts as the same request, even if less of its TTL is left.
    #expect(try send("?ttl=1h", waited: 100, id: 80).status == 202)
    let repeated = try send("?ttl=1h", waited: 3_600_000, id: 80)
    #expect(repeated.status == 202, "\(repeated.body)")
  }

  /// The timeout of the client's proxy began when the other gateway received the request.
  @Test func aWaitForTheStoreEndsWhenItsClientHasWaitedForItsTime() throws {
    let journal = SharedJournal()
    let holder = try Self.holder(journal)
    journal.stall()
    let late = "X-Envoy-Expected-Rq-Timeout-Ms: 20000\r\nDrawbridge-Waited: 19300\r\n"
    for (number, (method, target, body)) in [
      ("POST", "/v1/messages", "x"), ("PUT", "/v1/consumers/c", #"{"share":true}"#),
    ].enumerated() {
      let (first, second) = (try holder.connectAsPeer(), try holder.connectAsPeer())
      let id = { (side: Int) in String(repeating: "\(2 * number + side)", count: 32) }
      first.send(
        TestGateway.forwarded(
          method, target, id: id(0), fields: "X-Envoy-Expected-Rq-Timeout-Ms: 8000\r\n", body: body))
      second.send(TestGateway.forwarded(method, target, id: id(1), fields: late, body: body))
      #expect(try second.response().problem == "store-failed")
      #expect(!first.isReadable)
    }
  }

  @Test func aBodyThatIsCompleteAfterTheLossIsNotAccepted() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    let clients = try (0..<2).map { _ in try first.connect() }
    for (client, path) in zip(clients, ["messages", "call"]) {
      client.send("POST /v1/\(path) HTTP/1.1\r\nHost: localhost\r\nContent-Length: 37\r\n\r\n")
    }
    #expect(try eventually { try first.onLoop { $0.pendingRequests } == 2 })
    first.lose()
    for client in clients {
      client.send(#"{"jsonrpc":"2.0","id":1,"method":"a"}"#)
      #expect(try client.response().problem == "holder-unavailable")
    }
  }

  // MARK: The state of a session

  private static func replica(_ response: ReceivedResponse) throws -> [String: Any] {
    try #require(response.json["replica"] as? [String: Any], "\(response.body)")
  }

  @Test func aHolderAddsItsPartToTheStateOfASession() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    let response = try first.request("GET", "/v1/session")
    let replica = try Self.replica(response)
    #expect(response.status == 200 && response.text("state") != "no-holder")
    #expect(replica["term"] as? Int == 1 && replica["current"] as? Bool == true)
    let holder = try #require(replica["holder"] as? [String: Any])
    #expect(holder["here"] as? Bool == true && holder["gateway"] as? String == first.id)
    let list = try #require(try first.request("GET", "/v1/sessions").json["sessions"] as? [[String: Any]])
    #expect(list.map { $0["replica"] != nil } == [true])
  }

  @Test func theGatewayOfTheClientAddsItsPartToTheDocumentOfTheHolder() throws {
    let journal = SharedJournal()
    let first = try Self.holder(journal)
    let follower = try Self.gateway(journal)
    follower.locate(at: first.peerAddress, HolderStatus(term: 7, peer: .init(gateway: first.id, address: "there:1")))
    for (method, body) in [("GET", nil), ("PATCH", #"{"desired":"down"}"#)] {
      let fields = "Accept-Encoding: gzip\r\n" + (body == nil ? "" : "Content-Type: application/json\r\n")
      let response = try follower.request(method, "/v1/session", fields, body)
      #expect(response.status == 200 && response.json["messages"] != nil, "\(response.body)")
      #expect(response.body.components(separatedBy: "\"replica\"").count == 2)
      let replica = try Self.replica(response)
      #expect(replica["gateway"] as? String == follower.id && replica["term"] as? Int == 7)
      let holder = try #require(replica["holder"] as? [String: Any])
      #expect(holder["here"] as? Bool == false && holder["gateway"] as? String == first.id)
      #expect(holder["address"] as? String == "there:1")
    }
    #expect(try follower.request("HEAD", "/v1/session").status == 200)
    let list = try #require(try follower.request("GET", "/v1/sessions").json["sessions"] as? [[String: Any]])
    #expect(list[0]["state"] as? String == "elsewhere" && list[0]["queue"] is NSNull)
  }

  @Test func theStateOfASessionIsShownWithoutAHolder() throws {
    let journal = SharedJournal()
    let gateway = try Self.gateway(journal)
    let response = try gateway.request("GET", "/v1/session")
    #expect(response.status == 200 && response.text("state") == "no-holder", "\(response.body)")
    let replica = try Self.replica(response)
    #expect(replica["holder"] is NSNull && replica["current"] as? Bool == false && replica["lag_seconds"] is NSNull)
    // If the holder does not respond, the client gets a response after 800 ms, which is less than a take-over takes.
    let slow = try ScriptedPeer { client in _ = client.readToEnd() }
    defer { slow.stop() }
    gateway.locate(at: slow.address)
    #expect(try gateway.request("GET", "/v1/session").text("state") == "elsewhere")
    #expect(try eventually { try gateway.isIdle() })
  }

  /// Holders that have ended, are ending, or have no successor: no client waits for the next holder.
  @Test func theStateOfASessionIsShownAtOnceIfNoHolderCanBeAsked() throws {
    let journal = SharedJournal()
    let gateway = try Self.gateway(journal)
    let silent = try ScriptedPeer { client in _ = client.readToEnd() }
    defer { silent.stop() }
    let dying = try ScriptedPeer { client in _ = client.readMessage() }
    defer { dying.stop() }
    for address in [SocketAddress.ipv4(0x7F00_0001, port: 1), dying.address] {
      gateway.locate(at: address)
      #expect(try gateway.request("GET", "/v1/session").text("state") == "elsewhere")
    }
    gateway.locate(at: silent.address)
    let client = try gateway.connect()
    client.send("GET", "/v1/session")
    #expect(eventually { gateway.metric("drawbridge_peer_connections ") == 1 })
    gateway.locate(at: nil)
    #expect(try client.response().text("state") == "no-holder")
    // Each holder was tried once, and no wait lasted until its deadline.
    let outcomes = "drawbridge_forwarded_requests_total{outcome="
    #expect(gateway.network.metrics.attempts.total == 3)
    #expect(gateway.metric(outcomes + #""unavailable""#) == 3 && gateway.metric(outcomes + #""abandoned""#) == 0)
    #expect(try eventually { try gateway.isIdle() })
  }

  /// The holder is stopped, or its packets are lost. A change of the session waits for it, but a read does not.
  @Test func theStateOfASessionIsShownWithoutASilentHolder() throws {
    let gateway = try Self.gateway(SharedJournal())
    let silent = try ScriptedPeer { client in _ = client.readToEnd() }
    defer { silent.stop() }
    gateway.locate(at: silent.address)
    let change = try gateway.connect()
    change.send("PATCH", "/v1/session", "", #"{"desired":"down"}"#)
    #expect(eventually { gateway.metric("drawbridge_peer_connections ") == 1 })
    #expect(try gateway.request("GET", "/v1/session").text("state") == "elsewhere")
    #expect(gateway.metric(#"drawbridge_forwarded_requests_total{outcome="abandoned"}"#) == 1)
    #expect(!change.isReadable)
  }

  @Test func aStreamShowsWhereTheSessionIs() throws {
    let journal = SharedJournal()
    let gateway = try Self.gateway(journal)
    gateway.becomeHolder()
    gateway.lose()
    let client = try gateway.connect()
    client.send("GET", "/v1/messages?events=session&cursor=earliest", "Accept: text/event-stream\r\n")
    #expect(client.readUntil("\"state\":\"no-holder\""))
    gateway.locate(at: .ipv4(0x7F00_0001, port: 1))
    #expect(client.readUntil("\"state\":\"elsewhere\""))
  }
}
