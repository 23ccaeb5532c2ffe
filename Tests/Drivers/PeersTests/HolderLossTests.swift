import ByteStreams
import Configuration
import Dialing
import Forwarding
import Foundation
import HTTPCodec
import Host
import Idempotency
import Inbox
import LoopbackSupport
import Metrics
import Reactor
import RedisStore
import Synchronization
import Testing
import Threading
import Upstream

@testable import API
@testable import Peers
@testable import Sessions

/// Holders that die, hang, or are not the expected gateway, and sessions without a holder.
@Suite struct HolderLossTests {
  private typealias Pair = ForwardingTests.Pair

  /// The moment in which the holder dies.
  enum Phase: String, CaseIterable, Sendable {
    case beforeReading, beforeTheHead, withinTheHead, afterTheHead, withinTheContent
  }

  /// A peer that ends each connection in `phase`.
  private static func mortal(_ phase: Phase) throws -> ScriptedPeer {
    try ScriptedPeer { client in
      if phase != .beforeReading { _ = client.readMessage() }
      switch phase {
      case .beforeReading, .beforeTheHead: break
      case .withinTheHead: client.send("HTTP/1.1 200 OK\r\nContent-")
      case .afterTheHead: client.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
      case .withinTheContent: client.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
      }
      client.close()
    }
  }

  @Test(arguments: Phase.allCases)
  func aRepeatableRequestIsSentToTheNextHolder(phase: Phase) throws {
    let dying = try Self.mortal(phase)
    defer { dying.stop() }
    let next = try TestGateway()
    for (method, target, body, status) in [
      ("GET", "/v1/session", nil, 200), ("PUT", "/v1/consumers/c", "{}", 201), ("DELETE", "/v1/consumers/c", nil, 204),
      ("PATCH", "/v1/session", #"{"desired":"up"}"#, 200), ("POST", "/v1/messages", "x", 202),
    ] as [(String, String, String?, Int)] {
      let follower = try TestGateway(.at(dying.address))
      let client = try follower.connect()
      let before = dying.connections
      client.send(method, target, "", body)
      #expect(eventually { dying.connections > before })
      follower.move(to: .at(next.peerAddress))
      let response = try client.response()
      #expect(response.status == status, "\(phase) \(method): \(response.body)")
      #expect(response.field("Idempotency-Replayed") == nil)
      #expect(try eventually { try follower.isIdle() })
    }
    #expect(next.metric("drawbridge_messages_accepted_total") == 1)
  }

  @Test(arguments: Phase.allCases)
  func aRequestThatMayHaveBeenExecutedIsNotRepeatedIfThatDoesHarm(phase: Phase) throws {
    let dying = try Self.mortal(phase)
    defer { dying.stop() }
    let next = try ScriptedPeer { client in
      while client.readMessage() != nil { client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") }
    }
    defer { next.stop() }
    for target in ["/v1/call", "/v1/consumers/c/receive", "/v1/consumers/c/settle"] {
      let follower = try TestGateway(.at(dying.address))
      let client = try follower.connect()
      client.send("POST", target, "", "{}")
      let response = try client.response()
      // A request that the kernel has not accepted completely was not executed.
      if phase == .beforeReading, response.problem == "holder-unavailable" { continue }
      #expect(response.status == 502 && response.problem == "outcome-unknown", "\(phase) \(target): \(response.body)")
      #expect(next.connections == 0)
    }
  }

  @Test func aCallIsNotRepeatedIfItWasSentOnAReusedConnection() throws {
    let peer = try ScriptedPeer { client in
      _ = client.readMessage()
      client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
      _ = client.readMessage()
      client.close()
    }
    defer { peer.stop() }
    let follower = try TestGateway(.at(peer.address))
    #expect(try follower.request("GET", "/v1/session").status == 200)
    #expect(try follower.request("POST", "/v1/call", "", "{}").problem == "outcome-unknown")
    #expect(peer.connections == 1)
    #expect(try follower.request("GET", "/v1/session").status == 200)
    // A server may close an idle connection at the moment in which the gateway uses it again.
    #expect(try follower.request("GET", "/v1/session").status == 200)
    #expect(peer.connections == 3)
  }

  @Test func aMessageWhoseResponseIsLostIsAcceptedOnce() throws {
    let holder = try TestGateway()
    let address = holder.peerAddress
    let isLost = Atomic(true)
    /// A relay that loses the first response of the holder, and passes on the others.
    let relay = try ScriptedPeer { client in
      while let (head, body) = client.readMessage() {
        guard let behind = try? LoopbackClient(to: address) else { return }
        behind.send(head + body)
        guard let response = behind.readMessage() else { return }
        if isLost.exchange(false, ordering: .sequentiallyConsistent) { return client.close() }
        client.send(response.head + response.body)
      }
    }
    defer { relay.stop() }
    let follower = try TestGateway(.at(relay.address))
    for (fields, body) in [
      ("", "one"), ("Content-Type: application/x-ndjson\r\n", "1\n2\n"), ("Idempotency-Key: a\r\n", "keyed"),
    ] {
      isLost.store(true, ordering: .sequentiallyConsistent)
      let response = try follower.request("POST", "/v1/messages", fields, body)
      #expect(response.status == 202, "\(response.body)")
      // The client has sent the request once, unless it used its own key.
      #expect((response.field("Idempotency-Replayed") == nil) == !fields.contains("Key"), "\(fields)")
    }
    #expect(holder.metric("drawbridge_messages_accepted_total") == 4)
    // Keys of clients are counted separately.
    #expect(holder.metric("drawbridge_idempotency_keys") == 1)
    // If a client sends the same request again, it sends another message.
    #expect(try follower.request("POST", "/v1/messages", "", "one").status == 202)
    #expect(holder.metric("drawbridge_messages_accepted_total") == 5)
  }

  @Test func aMessageThatWasAcceptedIsNotAcceptedAgainByTheNextHolder() throws {
    let journal = SharedJournal()
    let holder = try TestGateway(journal: journal)
    let address = holder.peerAddress
    let relay = try ScriptedPeer { client in
      guard let (head, body) = client.readMessage(), let behind = try? LoopbackClient(to: address) else { return }
      behind.send(head + body)
      _ = behind.readMessage()
      client.close()
    }
    defer { relay.stop() }
    let follower = try TestGateway(.at(relay.address))
    let client = try follower.connect()
    client.send("POST", "/v1/messages", "", "x")
    #expect(eventually { holder.metric("drawbridge_messages_accepted_total") == 1 })
    holder.move(to: .nowhere)
    let next = try TestGateway(journal: journal)
    follower.move(to: .at(next.peerAddress))
    let response = try client.response()
    #expect(response.status == 202 && response.field("Idempotency-Replayed") == nil, "\(response.body)")
    #expect(next.metric("drawbridge_messages_accepted_total") == 0)
    // The response names the message that the other holder stored.
    let path = try #require(response.field("Location"))
    #expect(path.hasSuffix(".1.1"), "\(path)")
    #expect(try follower.request("GET", path).status == 200)
    // The id of the forwarded request is not restored as an idempotency key of a client.
    #expect(next.metric("drawbridge_idempotency_keys") == 0)
  }

  /// Gateways may have different values of `store.lease`.
  @Test func anIdIsRememberedForAsLongAsTheOtherGatewayMayRepeatItsRequest() throws {
    let journal = SharedJournal()
    let holder = try TestGateway(journal: journal)
    // Earlier versions do not send the field. Ids expire in order, so a shorter time does not apply.
    for time in ["", "1000", "90000", "", "x", "9999999999999"] {
      let peer = try holder.connectAsPeer()
      let id = String(repeating: "\(journal.keys.count)", count: 32)
      let line = time.isEmpty ? "" : "drawbridge-retention: \(time)\r\n"
      peer.send(TestGateway.forwarded("POST", "/v1/messages", id: id, fields: line, body: "x"))
      #expect(try peer.response().status == 202)
    }
    #expect(journal.keys.map { $0.end - $0.accepted } == [30_000, 30_000, 90_000, 90_000, 90_000, 300_000])
    // The next holder remembers the ids for the rest of this time.
    holder.move(to: .nowhere)
    let next = try TestGateway(journal: journal)
    let peer = try next.connectAsPeer()
    peer.send(TestGateway.forwarded("POST", "/v1/messages", id: String(repeating: "2", count: 32), body: "x"))
    let response = try peer.response()
    #expect([200, 202].contains(response.status), "\(response.body)")
    #expect(next.metric("drawbridge_messages_accepted_total") == 0)
  }

  @Test func aGatewaySaysForHowLongItMayRepeatARequest() throws {
    for lease in [2, 30] as [Int64] {
      let limits = PeerNetwork.Limits(lease: .seconds(lease))
      #expect(limits.retention <= PeerNetwork.Limits.longestRetention)
      let heads = Locked<[String]>([])
      let peer = try ScriptedPeer { client in
        while let (head, _) = client.readMessage() {
          heads.withLock { $0.append(head) }
          client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        }
      }
      defer { peer.stop() }
      let follower = try TestGateway(.at(peer.address), limits: { $0 = limits })
      // A client cannot set the field.
      _ = try follower.request("POST", "/v1/messages", "drawbridge-retention: 7\r\n", "x")
      _ = try follower.request("GET", "/v1/consumers")
      let fields = heads.withLock { $0 }.map { head in
        head.components(separatedBy: "\r\n").filter { $0.hasPrefix("drawbridge-retention") }
      }
      #expect(fields == [["drawbridge-retention: \(lease == 2 ? 18_000 : 130_000)"], []])
    }
  }

  @Test func theIdOfAForwardedRequestIsNotAnIdempotencyKey() throws {
    let holder = try TestGateway()
    let id = String(repeating: "a", count: 32)
    _ = try holder.request("POST", "/v1/messages", "Idempotency-Key: \(id)\r\n", "x")
    for _ in 0..<2 {
      let peer = try holder.connectAsPeer()
      peer.send(TestGateway.forwarded("POST", "/v1/messages", id: id, body: "x"))
      #expect(try peer.response().status == 202)
    }
    #expect(holder.metric("drawbridge_messages_accepted_total") == 2)
    let other = try holder.connectAsPeer()
    other.send(TestGateway.forwarded("POST", "/v1/messages", id: id, body: "y"))
    #expect(try other.response().problem == "idempotency-key-reused")
  }

  /// All requests have the same principal. The ids do not count towards the principal's share of idempotency keys.
  @Test func theIdsOfForwardedRequestsHaveOneLimitForAllClients() throws {
    let holder = try TestGateway(forwardedIDs: 9, settings: { $0.authentication.tokens = "tokens" })
    let follower = try TestGateway(.at(holder.peerAddress))
    for number in 0..<8 { #expect(try follower.request("POST", "/v1/messages", "", "x").status == 202, "\(number)") }
    let refused = try follower.request("POST", "/v1/messages", "", "x")
    #expect(refused.status == 503 && refused.problem == "too-many-keys", "\(refused.body)")
    #expect(refused.text("detail")?.contains("other gateways") == true)
    #expect(refused.text("detail")?.contains("http.idempotency_keys") == false)
    #expect((1...30).contains(Int(refused.field("Retry-After") ?? "") ?? 0))
    // The gateway counts the keys that clients choose separately.
    #expect(try follower.request("POST", "/v1/messages", "Idempotency-Key: a\r\n", "x").status == 202)
  }

  @Test func idsAreRecognisedForLongerThanATakeOver() {
    for lease in [2, 5, 30].map({ TimeSpan.seconds($0) }) {
      let limits = PeerNetwork.Limits(lease: lease)
      #expect(limits.patience > lease && limits.recognition > lease + limits.patience)
      // The last attempt may begin just before `recognition` ends, and its request may arrive as late as the attempt
      // ends.
      let request = ForwardedRequest(
        .post, target: "/", fieldLines: [], content: [], repetition: .recognised, time: .seconds(30), waits: false,
        start: .zero)
      #expect(limits.retention > limits.recognition + limits.attempt(request))
    }
    let standard = PeerNetwork.Limits(lease: GatewaySettings().sharedStore.lease)
    #expect(Int64(CommonState.forwardedIDs) / (standard.retention.nanoseconds / 1_000_000_000) > 17_000)
  }

  // MARK: Places

  @Test func aRequestWaitsForAHolderAndEndsWithoutOne() throws {
    let holder = try TestGateway()
    let follower = try TestGateway(.nowhere, limits: { $0.patience = .milliseconds(300) })
    for (method, target) in [("GET", "/v1/session"), ("POST", "/v1/messages"), ("POST", "/v1/call")] {
      let response = try follower.request(method, target)
      #expect(
        response.status == 503 && response.problem == "holder-unavailable" && response.field("Retry-After") == "1")
    }
    #expect(follower.network.metrics.unavailable.total == 3)
    let patient = try TestGateway(.nowhere)
    let client = try patient.connect()
    client.send("POST", "/v1/messages", "", "x")
    #expect(try eventually { try !patient.isIdle() })
    #expect(!client.isReadable)
    patient.move(to: .at(holder.peerAddress))
    #expect(try client.response().status == 202)
    #expect(try eventually { try patient.isIdle() && follower.isIdle() })
  }

  @Test func aGatewayThatIsNotTheHolderSaysSoAndForwardsNothing() throws {
    let (holder, other) = (try TestGateway(), try TestGateway())
    other.move(to: .at(holder.peerAddress))
    let peer = try other.connectAsPeer()
    for text in [
      TestGateway.forwarded("GET", "/v1/session"), TestGateway.forwarded("POST", "/v1/messages", body: "x"),
      TestGateway.forwarded("GET", "/v1/deliveries/d-1.1"), TestGateway.forwarded("POST", "/v1/call", body: "{"),
    ] {
      peer.send(text)
      let response = try peer.response()
      #expect(response.status == 421 && response.body.isEmpty)
    }
    #expect(holder.network.metrics.misdirected.total == 0 && other.network.metrics.attempts.total == 0)
    // The client does not notice that its gateway has named the wrong holder.
    let follower = try TestGateway(.at(other.peerAddress))
    let client = try follower.connect()
    client.send("POST", "/v1/call?wait=0", "", "{}")
    #expect(eventually { other.network.metrics.misdirected.total > 4 })
    #expect(!client.isReadable)
    follower.move(to: .at(holder.peerAddress))
    #expect(try client.response().problem == "calls-not-configured")
  }

  @Test func aRequestThatCannotBeSentWaitsForAnotherHolder() throws {
    let holder = try TestGateway()
    let follower = try TestGateway(.at(.ipv4(0x7F00_0001, port: 1)))
    let client = try follower.connect()
    client.send("POST", "/v1/call?wait=0", "", "{}")
    #expect(eventually { follower.network.metrics.attempts.total > 1 })
    #expect(!client.isReadable)
    follower.move(to: .at(holder.peerAddress))
    #expect(try client.response().problem == "calls-not-configured")
  }

  @Test func aHangingGatewayDelaysOnlyItsOwnRequests() throws {
    let hanging = try ScriptedPeer { client in
      _ = client.readMessage()
      _ = client.readToEnd()
    }
    defer { hanging.stop() }
    let holder = try TestGateway()
    let follower = try TestGateway(.at(hanging.address), limits: { $0.farewell = .milliseconds(200) })
    try follower.session("market").move(to: .at(holder.peerAddress))
    let (get, call) = (try follower.connect(), try follower.connect())
    get.send("GET", "/v1/session")
    call.send("POST", "/v1/call", "", "{}")
    #expect(eventually { hanging.connections == 2 })
    #expect(try follower.request("GET", "/v1/sessions/market").status == 200)
    #expect(!get.isReadable && !call.isReadable)
    // Another gateway has taken over the session.
    follower.move(to: .at(holder.peerAddress))
    #expect(try get.response().status == 200)
    #expect(try call.response().problem == "outcome-unknown")
  }

  /// The holder is alive, but does not respond to a request of one gateway.
  @Test func aRequestIsRepeatedIfItsHolderDoesNotRespondInTime() throws {
    let holder = try TestGateway()
    let address = holder.peerAddress
    let lossy = try ScriptedPeer(
      { client in
        _ = client.readMessage()
        _ = client.readToEnd()
      },
      { client in
        guard let (head, body) = client.readMessage(), let behind = try? LoopbackClient(to: address) else { return }
        behind.send(head + body)
        guard let (head, body) = behind.readMessage() else { return }
        client.send(head + body)
      })
    defer { lossy.stop() }
    let follower = try TestGateway(
      .at(lossy.address), limits: { ($0.attemptMargin, $0.recognition) = (.milliseconds(100), .seconds(5)) })
    // The gateway ends the first attempt after four fifths of the time for which a holder recognises the id, and then
    // repeats the request.
    #expect(try follower.request("POST", "/v1/messages", "", "x").status == 202)
    #expect(lossy.connections == 2)
  }

  @Test func aRequestToASilentHolderIsRepeatedIfThatIsHarmless() throws {
    let silent = try ScriptedPeer(
      { client in
        _ = client.readMessage()
        _ = client.readToEnd()
      },
      { client in
        guard client.readMessage() != nil else { return }
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
      })
    defer { silent.stop() }
    let follower = try TestGateway(
      .at(silent.address), limits: { ($0.attemptMargin, $0.patience) = (.milliseconds(100), .minutes(10)) })
    #expect(try follower.request("GET", "/v1/session").body == "late")
    // On a busy machine, an attempt may end before the peer responds, and is repeated.
    #expect(silent.connections >= 2)
  }

  @Test(arguments: [("GET", "/v1/session"), ("POST", "/v1/call?wait=0")])
  func aRequestToASilentHolderEndsSoonAfterItsTimeout(method: String, target: String) throws {
    let hanging = try ScriptedPeer { client in
      _ = client.readMessage()
      _ = client.readToEnd()
    }
    defer { hanging.stop() }
    let follower = try TestGateway(
      .at(hanging.address), limits: { ($0.attemptMargin, $0.patience) = (.milliseconds(100), .milliseconds(500)) })
    let response = try follower.request(method, target)
    #expect(response.problem == (method == "GET" ? "holder-unavailable" : "outcome-unknown"), "\(response.body)")
    #expect(method == "GET" ? hanging.connections >= 1 : hanging.connections == 1)
  }

  @Test func aHolderThatReleasesTheSessionStillResponds() throws {
    let mayRespond = Atomic(false)
    let slow = try ScriptedPeer { client in
      _ = client.readMessage()
      _ = eventually { mayRespond.load(ordering: .sequentiallyConsistent) }
      client.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
    }
    defer { slow.stop() }
    let follower = try TestGateway(.at(slow.address), limits: { $0.farewell = .seconds(30) })
    let client = try follower.connect()
    client.send("POST", "/v1/call", "", "{}")
    #expect(eventually { slow.connections == 1 })
    follower.move(to: .nowhere)
    mayRespond.store(true, ordering: .sequentiallyConsistent)
    #expect(try client.response().body == "late")
  }

  @Test func aWaitContinuesAtTheNextHolder() throws {
    let pair = try Pair()
    let next = try TestGateway()
    for gateway in [pair.holder, next] { _ = try gateway.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#) }
    let client = try pair.follower.connect()
    client.send("POST", "/v1/consumers/c/receive?wait=30s")
    #expect(eventually { pair.holder.metric("drawbridge_receives_held") == 1 })
    pair.holder.move(to: .at(next.peerAddress))
    #expect(eventually { pair.holder.metric("drawbridge_receives_held") == 0 })
    pair.follower.move(to: .at(next.peerAddress))
    #expect(eventually { next.metric("drawbridge_receives_held") == 1 })
    let session = try next.session()
    session.inbox.append(
      Array("push".utf8).span, kind: .text, time: 0, now: ProcessInformation.monotonicTime())
    session.consumers.pushed()
    #expect(try client.response().body.contains("push"))
    #expect(try eventually { try pair.follower.isIdle() && pair.holder.isIdle() && next.isIdle() })
  }

  @Test func aSessionThatIsTakenOverServesTheWaitingRequests() throws {
    let gateway = try TestGateway(.nowhere)
    let client = try gateway.connect()
    client.send("POST", "/v1/messages", "", "x")
    #expect(try eventually { try !gateway.isIdle() })
    gateway.move(to: .here)
    #expect(try client.response().status == 202)
    #expect(gateway.metric("drawbridge_messages_accepted_total") == 1)
    #expect(try gateway.request("POST", "/v1/messages", "", "y").status == 202)
    #expect(gateway.network.metrics.responses.total == 1)
  }

  // MARK: Limits

  @Test func requestsUseFewConnections() throws {
    let pair = try Pair(limits: { $0.connections = 3 })
    let clients = try (0..<20).map { _ in try pair.follower.connect() }
    for client in clients { client.send("POST", "/v1/messages", "", "x") }
    for client in clients { #expect(try client.response().status == 202) }
    #expect(pair.holder.metric("drawbridge_http_connections_accepted_total") == 2)
    #expect(pair.holder.metric("drawbridge_messages_accepted_total") == 20)
  }

  @Test func aRequestWithoutAFreeConnectionEndsAtItsDeadline() throws {
    let pair = try Pair(limits: { ($0.connections, $0.patience) = (1, .milliseconds(300)) })
    _ = try pair.follower.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#)
    let receive = try pair.follower.connect()
    receive.send("POST", "/v1/consumers/c/receive?wait=30s")
    #expect(eventually { pair.holder.metric("drawbridge_receives_held") == 1 })
    #expect(try pair.follower.request("POST", "/v1/messages", "", "x").problem == "holder-unavailable")
    let waiting = try pair.follower.connect()
    waiting.send("POST", "/v1/messages", "", "x")
    #expect(try eventually { try pair.follower.onLoop { $0.forwarder?.held ?? 0 } > 2 })
    receive.close()
    #expect(try waiting.response().status == 202)
    #expect(try eventually { try pair.follower.isIdle() })
  }

  /// If one peer hangs, some connections remain for the other peers. The pool closes idle connections to stay within
  /// its limit.
  @Test func theConnectionsOfALoopAreDividedAmongGateways() throws {
    let hanging = try ScriptedPeer { client in
      _ = client.readMessage()
      _ = client.readToEnd()
    }
    let hasEnded = Atomic(false)
    let small = try ScriptedPeer { client in
      while client.readMessage() != nil { client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") }
      hasEnded.store(true, ordering: .sequentiallyConsistent)
    }
    defer {
      hanging.stop()
      small.stop()
    }
    let holder = try TestGateway()
    let follower = try TestGateway(.at(hanging.address), limits: { ($0.connections, $0.patience) = (4, .seconds(30)) })
    let clients = try (0..<10).map { _ in try follower.connect() }
    for client in clients { client.send("POST", "/v1/call", "", "{}") }
    #expect(try eventually { try follower.onLoop { $0.forwarder?.held ?? 0 } == 1 + 10 })
    #expect(eventually { hanging.connections == 3 })
    let market = try follower.session("market")
    market.move(to: .at(small.address))
    #expect(try follower.request("GET", "/v1/sessions/market").status == 200)
    #expect(hasEnded.load(ordering: .sequentiallyConsistent) == false)
    market.move(to: .at(holder.peerAddress))
    #expect(try follower.request("GET", "/v1/sessions/market").status == 200)
    #expect(eventually { hasEnded.load(ordering: .sequentiallyConsistent) })
    #expect(hanging.connections == 3)
    for client in clients { client.close() }
    #expect(try eventually { try follower.isIdle() })
  }

  /// Carries objects that belong to a loop.
  private final class LoopBox: @unchecked Sendable { var connection: (pool: PeerConnections, client: HTTPClient)? }

  @Test func aFreeConnectionGoesToTheRequestThatHasWaitedLongest() throws {
    let pair = try Pair(limits: { $0.connections = 1 })
    let (address, box) = (pair.holder.peerAddress, LoopBox())
    _ = try pair.follower.onLoop { api in
      guard let forwarder = api.forwarder, let pool = forwarder.connections(with: address) else { return }
      box.connection = forwarder.take(from: pool).map { (pool, $0) }
    }
    let client = try pair.follower.connect()
    client.send("POST", "/v1/messages", "", "x")
    #expect(try eventually { try pair.follower.onLoop { $0.forwarder?.held ?? 0 } == 3 })
    // A request that arrives at the same moment gets no connection and has to wait.
    let isTaken = try pair.follower.onLoop { api in
      guard let forwarder = api.forwarder, let (pool, client) = box.connection else { return false }
      box.connection = nil
      forwarder.release(client, of: pool)
      return forwarder.take(from: pool) == nil
    }
    #expect(isTaken)
    #expect(try client.response().status == 202)
    #expect(try eventually { try pair.follower.isIdle() })
  }

  @Test func requestsThatWaitForAHolderTakeLimitedMemory() throws {
    let holder = try TestGateway()
    let follower = try TestGateway(.nowhere, limits: { $0.requestBytes = 10 })
    let first = try follower.connect()
    first.send("POST", "/v1/messages", "", "12345678")
    #expect(eventually { follower.network.metrics.bytes.current == 8 })
    #expect(try follower.request("POST", "/v1/messages", "", "123").problem == "too-many-bodies")
    let second = try follower.connect()
    second.send("GET", "/v1/session")
    follower.move(to: .at(holder.peerAddress))
    #expect(try first.response().status == 202)
    #expect(try second.response().status == 200)
    #expect(try follower.request("POST", "/v1/messages", "", "1234567890").status == 202)
    #expect(eventually { follower.network.metrics.bytes.current == 0 })
  }

  @Test func manyRequestsLeaveNoState() throws {
    let pair = try Pair()
    let client = try pair.follower.connect()
    for round in 0..<2_000 {
      client.send("POST", "/v1/messages", "TTL: 0\r\n", "x")
      let response = try client.response()
      #expect(response.problem == "upstream-down", "\(round)")
      if round % 100 == 0 { pair.follower.move(to: round % 200 == 0 ? .nowhere : .at(pair.holder.peerAddress)) }
      if round % 200 == 0 { pair.follower.move(to: .at(pair.holder.peerAddress)) }
    }
    #expect(try eventually { try pair.follower.isIdle() && pair.holder.isIdle() })
    #expect(try pair.holder.onLoop { $0.common.forwarded.withLock { $0.count } } == 0)
    #expect(pair.holder.metric("drawbridge_http_connections_accepted_total") == 1)
    #expect(pair.follower.network.metrics.responses.total == 2_000)
  }
}
