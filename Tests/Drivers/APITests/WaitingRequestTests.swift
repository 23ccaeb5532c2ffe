import ByteStreams
import HTTPServer
import Inbox
import Metrics
import Reactor
import Sessions
import Testing
import Upstream

@testable import API

/// Held requests: their notifier, new data, deadline and end, without a server.
@Suite struct WaitingRequestTests {
  private func push(_ text: String, to session: Session, _ api: APIFixture) {
    session.inbox.append(Array(text.utf8).span, kind: .text, time: 0, now: api.now)
  }

  @Test func aPollWaitsForAPush() throws {
    let api = try APIFixture()
    let session = try api.session()
    let poll = try api.hold("/v1/messages?wait=20s")
    #expect(api.advance(poll).notifier === session.inbox.notifier)
    #expect(api.advance(poll).deadline == api.now + .seconds(20))
    #expect(!api.advance(poll).isReady)
    #expect(poll.heldCount === api.api.common.metrics.heldPolls)
    push("news", to: session, api)
    #expect(api.advance(poll).isReady)
    let response = api.finish(poll)
    #expect(response.status == 200 && response.body.contains("\"news\""))
    #expect(response.field("Gateway-Cursor") == response.text("cursor"))
    #expect(api.api.pendingRequests == 0)
  }

  @Test func aPollThatTimesOutGetsNoMessages() throws {
    let api = try APIFixture()
    let response = api.finish(try api.hold("/v1/messages"))
    #expect(response.status == 200)
    #expect((response.json["messages"] as? [Any])?.isEmpty == true)
  }

  @Test func aPollWithMessagesToReturnDoesNotWait() throws {
    let api = try APIFixture()
    push("news", to: try api.session(), api)
    #expect(try api.respond("GET", "/v1/messages?cursor=earliest").body.contains("news"))
    #expect(try api.respond("GET", "/v1/messages?wait=0").status == 200)
  }

  @Test func aPollOfADisconnectedClientLeavesNoState() throws {
    let api = try APIFixture()
    let polls = try (0..<3).map { _ in try api.hold("/v1/messages") }
    #expect(api.api.pendingRequests == 3)
    polls[1].abandon()
    push("news", to: try api.session(), api)
    #expect(api.finish(polls[2]).body.contains("news"))
    #expect(api.finish(polls[0]).body.contains("news"))
    #expect(api.api.pendingRequests == 0)
  }

  @Test func equalPollsGetOneCopyOfTheResponse() throws {
    let api = try APIFixture()
    let polls = try (0..<4).map { _ in try api.hold("/v1/messages") }
    let another = try api.hold("/v1/messages?limit=1")
    push("news", to: try api.session(), api)
    let responses = polls.map { api.finish($0) }
    #expect(Set(responses.map(\.body)).count == 1)
    #expect(responses[0].prepared == nil)
    #expect(responses[1].prepared != nil)
    #expect(responses[2].prepared === responses[1].prepared && responses[3].prepared === responses[1].prepared)
    #expect(api.finish(another).prepared == nil)
    // Another push changes the response.
    push("more", to: try api.session(), api)
    let later = try api.respond("GET", "/v1/messages?cursor=earliest")
    #expect(later.prepared == nil && later.body.contains("more"))
  }

  @Test func aPushEndsOnlyPollsOfItsOwnSession() throws {
    let api = try APIFixture(sessions: ["default", "market"])
    let ours = try api.hold("/v1/messages")
    let theirs = try api.hold("/v1/sessions/market/messages")
    #expect(api.advance(theirs).notifier === (try api.session("market").inbox.notifier))
    push("news", to: try api.session("market"), api)
    #expect(api.advance(theirs).isReady && !api.advance(ours).isReady)
    #expect(api.finish(theirs).body.contains("news") && !api.finish(ours).body.contains("news"))
  }

  /// The cursor is from neither session, so both sessions read it as a start at the earliest push. Both sessions have
  /// had the same number of changes.
  @Test func aPreparedResponseIsUsedForItsOwnSessionOnly() throws {
    let api = try APIFixture(sessions: ["default", "market"])
    push("ours", to: try api.session(), api)
    push("theirs", to: try api.session("market"), api)
    for _ in 0..<3 {
      #expect(try api.respond("GET", "/v1/messages?cursor=p-000000000000.1&wait=0").body.contains("ours"))
    }
    let theirs = try api.respond("GET", "/v1/sessions/market/messages?cursor=p-000000000000.1&wait=0")
    #expect(theirs.body.contains("theirs") && !theirs.body.contains("ours"))
  }

  @Test func aDeliveryWaitsForItsFinalState() throws {
    let api = try APIFixture()
    let id = try #require(try api.post("price 1", fields: "Topic: price\r\n").text("id"))
    #expect(try api.respond("GET", "/v1/deliveries/\(id)").text("state") == "queued")
    #expect(try api.respond("GET", "/v1/deliveries/\(id)?wait=0").text("state") == "queued")
    let delivery = try api.hold("/v1/deliveries/\(id)?wait=10m")
    #expect(api.advance(delivery).notifier === (try api.session().upstream.deliveryNotifier))
    #expect(api.advance(delivery).deadline == api.now + .seconds(55), "delivery.maximum_wait")
    #expect(!api.advance(delivery).isReady)
    #expect(api.finish(try api.hold("/v1/deliveries/\(id)?wait=1")).text("state") == "queued")
    _ = try api.post("price 2", fields: "Topic: price\r\n")
    #expect(api.advance(delivery).isReady)
    let response = api.finish(delivery)
    #expect(response.text("state") == "replaced" && response.text("id") == id)
    #expect(try api.respond("GET", "/v1/deliveries/\(id)?wait=20s").text("state") == "replaced")
  }

  @Test func aRequestForAnUnknownDeliveryDoesNotWait() throws {
    let api = try APIFixture()
    let id = try #require(try api.post("a").text("id"))
    #expect(try api.respond("GET", "/v1/deliveries/\(id)9?wait=20s").problem == "not-found")
  }
}
