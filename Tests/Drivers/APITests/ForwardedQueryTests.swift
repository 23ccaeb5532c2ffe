import Access
import ByteStreams
import HTTPCodec
import HTTPServer
import Testing

@testable import API

/// The forwarding gateway interprets a query like the holder, which validates it.
@Suite struct ForwardedQueryTests {
  private let api: APIFixture
  init() throws { api = try APIFixture() }

  private func forwarded(_ query: String, to route: Route) throws -> RequestToForward {
    let rules = try #require(route.holderRules)
    var connection = HTTPServerConnection()
    connection.receive(Array("POST /v1/x?\(query) HTTP/1.1\r\nHost: x\r\n\r\n".utf8).span)
    #expect(try connection.nextEvent() == .head)
    return RequestToForward(
      connection.request, rules, of: try api.session(), for: ForwardedClient(.open, from: .local), id: 1,
      APISettings().delivery)
  }

  @Test(arguments: ["wait=50", "w%61it=50", "%77ait=5%30", "wait=50&limit=1", "&limit=1&&wait=%350s"])
  func anEncodedWaitIsTheWait(query: String) throws {
    for (route, storeWait) in [(MakeCall.route, TimeSpan.zero), (ReceiveFromConsumer.route, API.storeWait)] {
      let request = try forwarded(query, to: route)
      #expect(request.mayWait && request.waits)
      #expect(request.time == .seconds(50) + storeWait)
    }
  }

  @Test(arguments: ["until=confirmed&wait=9", "%75ntil=confirmed&wait=9", "wait=9&unti%6c=confirmed"])
  func anEncodedStateIsAwaited(query: String) throws {
    let request = try forwarded(query, to: SendMessages.route)
    #expect(request.mayWait && request.time == .seconds(9) + API.storeWait)
  }

  @Test(arguments: [
    ("ack=p-0123456789ab.7", true), ("%61ck=p-0123456789ab.7", true), ("limit=1&a%63k=p-0123456789ab.7", true),
    ("limit=%31", false), ("", false),
  ])
  func onlyAnAcknowledgementIsAChange(query: String, isChange: Bool) throws {
    #expect(try forwarded(query, to: ReceiveFromConsumer.route).effect == (isChange ? .changeAndData : .none))
  }

  /// The holder refuses each of these waits at once. A holder of a later version may accept them, so the forwarding
  /// gateway allows the longest wait.
  @Test func aWaitThatCannotBeParsedCountsAsTheLongest() throws {
    let call = MakeCall.route
    for query in ["wait=x", "w%61it=", "wait=1&wait=x"] {
      #expect(try forwarded(query, to: call).time == APISettings().delivery.maximumWait, "\(query)")
    }
    #expect(try forwarded("%FF=1&wait=50", to: call).time == IncomingCall.defaultWait)
  }
}
