import Access
import Configuration
import LoopbackSupport
import Metrics
import Outbox
import Sessions
import Testing

@testable import API
@testable import Peers

/// Credentials that end while the client's gateway receives a request for the holder.
@Suite struct ForwardedCredentialsTests {
  private static let token = "token-of-the-client"
  /// The file of tokens, with the digest of `token`.
  private static let file =
    "me sha256:cbee9ddeb19ce1090630bea7229a6a3b2655bae3c9d89140b8b6f669468c50bc scopes=send,receive,call,admin\n"

  private static let operations = [
    ("POST", "/v1/messages", "abc"), ("POST", "/v1/messages?until=written&wait=0", "abc"),
    ("PATCH", "/v1/session", #"{"desired":"down"}"#), ("PUT", "/v1/consumers/new", #"{"share":true}"#),
    ("GET", "/v1/session", "abc"),
  ]

  @Test(arguments: operations, [false, true])
  func aSlowBodyDoesNothingAtTheHolderAfterItsTokenWasRemoved(
    operation: (method: String, target: String, body: String), isRemoved: Bool
  ) throws {
    let pair = try ForwardingTests.Pair(settings: {
      $0.authentication.certificates = [.init(name: "dns:other", scopes: ["send"])]
    })
    let gateway = pair.follower
    try gateway.use(tokens: Self.file)
    let (method, target, body) = operation
    let client = try gateway.connect()
    client.send(
      "\(method) \(target) HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \(Self.token)\r\n"
        + "Content-Length: \(body.utf8.count)\r\n\r\n\(body.dropLast())")
    #expect(try eventually { try gateway.onLoop { $0.pendingRequests } == 1 }, "the head was judged")
    if isRemoved { try gateway.use(tokens: "") }
    client.send(String(body.suffix(1)))
    let answer = try client.response(to: method)
    if isRemoved {
      #expect(answer.status == 401 && answer.text("detail")?.contains("nothing was done") == true, "\(answer.body)")
    } else {
      #expect((200..<300).contains(answer.status), "\(answer.body)")
    }
    #expect(gateway.network.metrics.attempts.total == (isRemoved ? 0 : 1))
    #expect(try pair.holder.session().consumers.statuses.isEmpty || !isRemoved)
    #expect(pair.holder.metric("drawbridge_messages_accepted_total") == (isRemoved || method != "POST" ? 0 : 1))
  }

  /// The holder counts what it queues by the client of the other gateway.
  @Test func onePrincipalCannotTakeTheQueueOfAllThroughAnotherGateway() throws {
    let pair = try ForwardingTests.Pair(settings: {
      $0.authentication.certificates = [.init(name: "dns:other", scopes: ["send"])]
      $0.session.upstream.outbox.maximumMessages = 16
    })
    let other = "token-of-another-client"
    try pair.follower.use(
      tokens: Self.file
        + "other sha256:3c7fbdfc55fbbe1a0348a5a969ea9e46413146ca5e1d0a295e83eddf53293da5 scopes=send\n")
    func post(_ token: String) throws -> Int {
      try pair.follower.request("POST", "/v1/messages", "Authorization: Bearer \(token)\r\n", "m").status
    }
    for _ in 0..<16 { #expect(try post(Self.token) == 202) }
    #expect(try [post(Self.token), post(other), post(other)] == [503, 202, 503])
  }
}
