import ByteStreams
import Configuration
import Consumers
import Dialing
import Foundation
import HTTPServer
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

/// A holder whose deadline has passed while its process was stopped. Another gateway has taken the session, but the
/// former holder has not noticed it yet.
@Suite struct LateHolderTests {
  private let journal = SharedJournal()
  private let first: TestGateway
  private let isInTime = DeadlineFlag()

  init() throws {
    first = try TestGateway(sharing: journal, limits: { $0.patience = .seconds(20) })
    first.becomeHolder(while: WritePermission { [isInTime] in isInTime.value })
  }

  /// Makes another gateway take over the session.
  private func takeOver() throws -> TestGateway {
    isInTime.value = false
    let next = try TestGateway(startsSessions: true, sharing: journal)
    next.becomeHolder()
    return next
  }

  /// Makes the former holder notice the loss.
  private func notice(_ next: TestGateway) {
    first.shared?.lose("default")
    first.locate(at: next.peerAddress)
  }

  /// Sends a request to the first gateway, which must not respond before it knows the next holder.
  private func ask(
    _ next: TestGateway, _ method: String, _ target: String, _ body: String? = nil
  ) throws -> ReceivedResponse {
    let client = try first.connect()
    client.send(method, target, "", body)
    #expect(eventually { first.network.metrics.waiting.current == 1 }, "\(method) \(target)")
    #expect(!client.isReadable)
    notice(next)
    return try client.response(to: method)
  }

  /// Gives the first message a final state, as if it had expired before the store noticed the deadline.
  private static func endMessage(at gateway: TestGateway) throws {
    let upstream = try gateway.session().upstream
    upstream.guarded.withLock { $0.outbox.withdraw(1) }
    upstream.deliveryNotifier.notify()
  }

  @Test func onlyTheNextHolderShowsStatesOfTheNextTerm() throws {
    let next = try takeOver()
    let sent = try next.request("POST", "/v1/messages?ttl=60s", "", "x")
    let response = try ask(next, "GET", try #require(sent.field("Location")))
    #expect(response.status == 200 && response.text("state") == "queued", "\(response.body)")
  }

  @Test func aFinalStateAfterTheDeadlineIsNotShown() throws {
    let sent = try first.request("POST", "/v1/messages?ttl=60s", "", "x")
    let next = try takeOver()
    try Self.endMessage(at: first)
    let response = try ask(next, "GET", try #require(sent.field("Location")))
    #expect(response.status == 200 && response.text("state") == "queued", "\(response.body)")
  }

  @Test(arguments: [false, true]) func aWaitForAStateMovesToTheNextHolderAfterTheDeadline(isForwarded: Bool) throws {
    let sent = try first.request("POST", "/v1/messages?ttl=60s", "", "x")
    let asked = try isForwarded ? TestGateway(sharing: journal, limits: { $0.patience = .seconds(20) }) : first
    if isForwarded { asked.locate(at: first.peerAddress) }
    let client = try asked.connect()
    client.send("GET", try #require(sent.field("Location")) + "?wait=30s")
    let held = try first.session()
    #expect(eventually { held.upstream.guarded.withLock { $0.confirmationWaiters } == 1 })
    let next = try takeOver()
    try Self.endMessage(at: first)
    asked.locate(at: next.peerAddress)
    if !isForwarded { notice(next) }
    let there = try next.session().upstream
    #expect(eventually { there.guarded.withLock { $0.confirmationWaiters } == 1 })
    there.guarded.withLock { $0.outbox.reject(from: 1, count: 1) }
    there.deliveryNotifier.notify()
    let response = try client.response()
    #expect(response.status == 200 && response.text("state") == "rejected", "\(response.body)")
  }

  @Test func aSendThatWaitsForAStateShowsNoStateAfterTheDeadline() throws {
    let client = try first.connect()
    client.send("POST", "/v1/messages?ttl=60s&until=written&wait=30s", "", "x")
    let held = try first.session()
    #expect(eventually { held.upstream.guarded.withLock { $0.writeWaiters } == 1 })
    let next = try takeOver()
    try Self.endMessage(at: first)
    let response = try client.response()
    #expect(response.status == 202 && response.text("state") == "queued", "\(response.body)")
    _ = next
  }

  @Test func aCursorOfTheNextTermIsNotAGap() throws {
    try first.push("1")
    let next = try takeOver()
    try next.push("2")
    let read = try next.request("GET", "/v1/messages?cursor=earliest")
    let client = try first.connect()
    client.send("GET", "/v1/messages?wait=1s&cursor=" + (try #require(read.field("Gateway-Cursor"))))
    let response = try client.response()
    #expect(response.field("Gateway-Gap") == nil, "\(response.body)")
    #expect((response.json["messages"] as? [Any])?.isEmpty ?? true, "\(response.body)")
  }

  @Test func onlyTheNextHolderServesConsumersAfterTheDeadline() throws {
    let next = try takeOver()
    #expect(try next.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#).status == 201)
    try next.push("x")
    let received = try next.request("POST", "/v1/consumers/c/receive")
    let lease = try #require((received.json["messages"] as? [[String: Any]])?.first?["lease"] as? String)
    let response = try ask(next, "POST", "/v1/consumers/c/settle", #"{"ack":["\#(lease)"]}"#)
    #expect(response.status == 200, "\(response.body)")
    #expect(try first.request("GET", "/v1/consumers/c").status == 200)
  }

  /// The holder has stored a lease in time, but learns only after its deadline that the lease is stored. The next
  /// holder ends the lease at its stored end.
  @Test(arguments: [false, true]) func aFormerHolderDoesNotProlongALease(isForwarded: Bool) throws {
    let asked = try isForwarded ? follower() : first
    let client = try receive(through: asked, visibility: "60s")
    let wasLeased = Date()
    _ = try takeOver()
    // From now on, an end that is computed from the time of the response would be later than the stored end.
    #expect(eventually { Date() > wasLeased + 0.1 })
    try learn()
    let response = try client.response()
    let message = try #require((response.json["messages"] as? [[String: Any]])?.first, "\(response.body)")
    let format = ISO8601DateFormatter()
    format.formatOptions.insert(.withFractionalSeconds)
    let expires = try #require(format.date(from: message["expires"] as? String ?? ""))
    #expect(expires <= wasLeased + 60.05, "\(response.body)")
  }

  @Test(arguments: [false, true]) func aFormerHolderDoesNotHandOutALeaseThatHasEnded(isForwarded: Bool) throws {
    let asked = try isForwarded ? follower() : first
    let client = try receive(through: asked, visibility: "100ms")
    let next = try takeOver()
    journal.resume()
    let received = try next.request("POST", "/v1/consumers/c/receive?wait=20s")
    let message = try #require((received.json["messages"] as? [[String: Any]])?.first, "\(received.body)")
    #expect(message["deliveries"] as? Int == 2)
    let lease = try #require(message["lease"] as? String)
    #expect(try next.request("POST", "/v1/consumers/c/settle", "", #"{"ack":["\#(lease)"]}"#).status == 200)
    try learn()
    notice(next)
    asked.locate(at: next.peerAddress)
    let response = try client.response()
    #expect((response.json["messages"] as? [Any])?.isEmpty == true, "\(response.body)")
  }

  @Test(arguments: [false, true])
  func aChangeOfAConsumerThatIsStoredAfterTheSessionIsReleasedIsConfirmed(isForwarded: Bool) throws {
    let asked = try isForwarded ? follower() : first
    #expect(try first.request("PUT", "/v1/consumers/c", "", #"{"share":true}"#).status == 201)
    try first.push("x")
    let received = try first.request("POST", "/v1/consumers/c/receive")
    let lease = try #require((received.json["messages"] as? [[String: Any]])?.first?["lease"] as? String)
    journal.stall()
    let client = try asked.connect()
    client.send("POST", "/v1/consumers/c/settle", "", #"{"ack":["\#(lease)"]}"#)
    let session = try first.session()
    #expect(eventually { session.consumers.statuses.first?.leases == 0 })
    try first.onLoop { _ in }
    session.move(to: .nowhere)
    // The loop has handled the notification at the end of this turn.
    try first.onLoop { _ in }
    try learn()
    let response = try client.response()
    #expect(response.status == 200, "\(response.body)")
  }

  private func follower() throws -> TestGateway {
    let gateway = try TestGateway(sharing: journal, limits: { $0.patience = .seconds(20) })
    gateway.locate(at: first.peerAddress)
    return gateway
  }

  /// Sends a receive. Its lease is stored, but the holder does not learn that it is stored.
  private func receive(through gateway: TestGateway, visibility: String) throws -> LoopbackClient {
    let settings = #"{"share":true,"visibility":"\#(visibility)"}"#
    #expect(try first.request("PUT", "/v1/consumers/c", "", settings).status == 201)
    try first.push("x")
    journal.stall()
    let client = try gateway.connect()
    client.send("POST", "/v1/consumers/c/receive?wait=100ms")
    let consumers = try first.session().consumers
    #expect(eventually { consumers.statuses.first?.leases == 1 })
    // The request is held at the end of this turn of the loop.
    try first.onLoop { _ in }
    return client
  }

  /// Makes the former holder learn what was stored.
  private func learn() throws {
    journal.resume()
    try first.session().journalChanged()
  }

  /// If a request was executed in time but its result was read too late, the gateway refuses it as not executed.
  @Test func aResponseThatWasPreparedWhenTheDeadlinePassedIsNotSent() throws {
    // The deadline has not passed when the request is routed and begun, and has passed when the result is read.
    isInTime.remaining = 2
    let response = try first.request("GET", "/v1/consumers/none")
    #expect(response.status == 503 && response.problem == "holder-unavailable", "\(response.body)")
  }

  @Test func afterTheDeadlineTheStateOfTheSessionIsAFollowers() throws {
    isInTime.value = false
    let shown = try first.request("GET", "/v1/session")
    #expect(shown.status == 200 && shown.text("state") == "no-holder", "\(shown.body)")
    let replica = try #require(shown.json["replica"] as? [String: Any])
    #expect(replica["holder"] is NSNull && replica["current"] as? Bool == false)
    let listed = try #require(try first.request("GET", "/v1/sessions").json["sessions"] as? [[String: Any]])
    #expect(listed.first?["state"] as? String == "no-holder")
    #expect(first.metric("drawbridge_session_held") == 0)
  }

  @Test func aRequestOfAnotherGatewayIsSentBack() throws {
    isInTime.value = false
    let client = try first.connectAsPeer()
    client.send(TestGateway.forwarded("GET", "/v1/consumers/none"))
    #expect(try client.response().status == 421)
  }
}

/// A flag that is true until the deadline has passed. If `remaining` is set, the flag becomes false after that many
/// reads.
final class DeadlineFlag: Sendable {
  private let state = Mutex<(value: Bool, remaining: Int?)>((true, nil))

  var value: Bool {
    get {
      state.withLock { state in
        if let remaining = state.remaining {
          state.remaining = remaining - 1
          return remaining > 0
        }
        return state.value
      }
    }
    set { state.withLock { $0 = (newValue, nil) } }
  }

  var remaining: Int? {
    get { state.withLock { $0.remaining } }
    set { state.withLock { $0.remaining = newValue } }
  }
}
