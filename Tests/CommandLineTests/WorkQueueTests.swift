import ByteStreams
import Testing

@testable import drawbridge

/// Leases of `drawbridge work`: when they are extended, and how they are settled.
@Suite struct WorkQueueTests {
  private let zero = MonotonicTime.zero

  private func queue(_ parallel: Int = 2) -> WorkQueue { WorkQueue(parallel: parallel, visibility: .seconds(30)) }

  @Test func theDelayOfAReleaseGrowsWithTheDeliveries() {
    #expect(
      [0, 1, 2, 3, 9, 10, 1000].map { WorkQueue.delay(afterDeliveries: $0) }
        == [1, 1, 2, 4, 256, 300, 300].map { .seconds($0) })
  }

  @Test func aCommandThatEndsIsSettledOnce() {
    var queue = queue()
    queue.start(1, lease: "a", push: "p", deliveries: 1, at: zero)
    queue.start(2, lease: "b", push: "q", deliveries: 3, at: zero)
    #expect(queue.free == 0)
    #expect(queue.end(1, isSuccess: true)?.delay == nil)
    #expect(queue.end(2, isSuccess: false)?.delay == .seconds(4))
    #expect(queue.end(2, isSuccess: true) == nil)
    #expect(queue.free == 2)
    let request = queue.request(at: zero)
    #expect(request.body == #"{"ack":["a"],"release":["b"],"delay":"4s"}"#)
    // The queue repeats the request until the gateway has responded.
    #expect(queue.request(at: zero) == request)
    queue.sent(request, lost: [], at: zero)
    #expect(queue.isEmpty)
    #expect(queue.request(at: zero).isEmpty)
  }

  @Test func releasesWithOtherDelaysAreSentInTheNextRequest() {
    var queue = queue(3)
    for (process, deliveries) in [(Int32(1), 1), (2, 2), (3, 1)] {
      queue.start(process, lease: "l\(process)", push: "", deliveries: deliveries, at: zero)
      _ = queue.end(process, isSuccess: false)
    }
    let first = queue.request(at: zero)
    #expect((first.released, first.delay) == (["l1", "l3"], .seconds(1)))
    queue.sent(first, lost: [], at: zero)
    let second = queue.request(at: zero)
    #expect((second.released, second.delay) == (["l2"], .seconds(2)))
    queue.sent(second, lost: ["l2"], at: zero)
    #expect(queue.isEmpty, "a lease that is lost is settled, too")
  }

  @Test func aLeaseIsExtendedWhileItsCommandRuns() {
    var queue = queue()
    queue.start(1, lease: "a", push: "", deliveries: 1, at: zero)
    #expect(queue.nextExtension == zero + .seconds(10))
    #expect(queue.request(at: zero + .seconds(9)).isEmpty)
    let due = zero + .seconds(10)
    let request = queue.request(at: due)
    #expect(request.body == #"{"extend":["a"]}"#)
    queue.sent(request, lost: [], at: due)
    #expect(queue.nextExtension == zero + .seconds(20))
    // The gateway has reported that the lease has ended, so the queue does not extend it again. The command keeps
    // running.
    queue.sent(queue.request(at: zero + .seconds(20)), lost: ["a"], at: zero + .seconds(20))
    #expect(queue.nextExtension == .distantFuture)
    #expect(queue.running.count == 1)
  }

  @Test func aPushThatIsNotHandledIsReleasedAtOnce() {
    var queue = queue()
    queue.giveBack("a")
    #expect(queue.hasSettlements)
    #expect(queue.request(at: zero).body == #"{"release":["a"]}"#)
  }

  // MARK: Pushes

  @Test(arguments: [
    (#"{"type":"text","data":"a\u0000\nb"}"#, Array("a\0\nb".utf8)),
    (#"{"type":"json","data":{"a": "b"}}"#, Array(#"{"a": "b"}"#.utf8)),
    (#"{"type":"binary","data_base64":"AP8="}"#, [0, 255]),
    (#"{"type":"event","data":[1,"x"]}"#, Array(#"[1,"x"]"#.utf8)),
    (#"{"type":"json","data":"s"}"#, Array(#""s""#.utf8)), (#"{"type":"gap"}"#, []),
  ])
  func aCommandGetsTheUnchangedPayload(json: String, payload: [UInt8]) throws {
    #expect(Push(document: try #require(Document(Array(json.utf8)))).payload == payload)
  }

  @Test func theFieldsOfAPushAreEnvironmentVariables() throws {
    let json = #"{"id":"p-1","time":"T","type":"event","topic":"a\u0000b","namespace":"/n","deliveries":2,"data":[]}"#
    let variables = Push(document: try #require(Document(Array(json.utf8)))).variables(session: "s")
    let expected = [
      "PUSH_ID": "p-1", "PUSH_TIME": "T", "PUSH_TYPE": "event", "PUSH_TOPIC": "ab", "PUSH_NAMESPACE": "/n",
      "PUSH_DELIVERIES": "2", "PUSH_SESSION": "s",
    ]
    #expect(variables == expected)
  }

  // MARK: Sending and states

  @Test func anExitCodeSaysWhetherTheStateWasReached() {
    func code(_ state: String, _ awaited: String, _ isFinal: Bool) -> Int32 {
      SendCommand.exitCode(for: state, awaiting: awaited, isFinal: isFinal)
    }
    #expect(code("confirmed", "written", true) == 0)
    #expect(code("written", "written", true) == 0)
    #expect(code("expired", "confirmed", true) == 1)
    #expect(code("queued", "confirmed", false) == 75)
  }

  @Test(arguments: [
    (#"{"state":"ready","seconds_in_state":7260}"#, "connected for 2 h"),
    (
      #"{"state":"backoff","next_attempt_in_seconds":12,"last_failure":"connection refused"}"#,
      "trying again in 12 s: connection refused"
    ),
    (#"{"state":"stopped","desired":"down","seconds_in_state":60}"#, "closed by an operator for 60 s"),
    (#"{"state":"new-state"}"#, "new-state"),
  ])
  func aStateIsShownInWords(json: String, text: String) throws {
    #expect(SessionText.state(of: try #require(Document(Array(json.utf8)))) == text)
  }
}
