import ByteStreams
import HTTPServer
import Metrics
import Sessions
import Testing

@testable import API

/// The measurements of requests and pushes at the end of a turn.
@Suite struct LoopLatenciesTests {
  private func requests(_ kind: LoopLatencies.Request, _ api: APIFixture) -> (count: UInt64, seconds: Double) {
    let (counts, sum) = api.api.common.metrics.latencies.requests[kind.rawValue].snapshot
    return (counts.last ?? 0, sum)
  }

  private func intervals(_ interval: LoopLatencies.Interval, _ api: APIFixture) -> (count: UInt64, seconds: Double) {
    let (counts, sum) = api.api.common.metrics.latencies.intervals[interval.rawValue].snapshot
    return (counts.last ?? 0, sum)
  }

  private func push(_ text: String, _ api: APIFixture, at time: MonotonicTime) throws {
    try api.session().inbox.append(Array(text.utf8).span, kind: .text, time: 0, now: time)
  }

  @Test func requestsOfATurnTakeUntilItsEnd() throws {
    let api = try APIFixture()
    for _ in 0..<3 { _ = try api.post("a") }
    _ = try api.respond("GET", "/v1/messages?wait=0")
    _ = try api.respond("GET", "/v1/session")
    _ = try api.respond("GET", "/livez", "", .management)
    _ = try api.respond("GET", "/nowhere")
    #expect(requests(.send, api).count == 0, "the turn has not ended")
    api.api.latencies.turnEnded(from: api.now, to: api.now + .milliseconds(2))
    #expect(requests(.send, api).count == 3)
    #expect(abs(requests(.send, api).seconds - 0.006) < 1e-9)
    for kind in [LoopLatencies.Request.poll, .session, .management, .other] { #expect(requests(kind, api).count == 1) }
    _ = try api.post("b")
    api.api.latencies.turnEnded(from: api.now, to: api.now + .milliseconds(9))
    #expect(requests(.send, api).count == 4, "a request is measured once")
    #expect(api.api.common.metrics.latencies.turns.snapshot.cumulative.last == 2)
  }

  @Test func aHeldPollIsMeasuredFromThePushThatEndsIt() throws {
    let api = try APIFixture()
    let polls = try (0..<3).map { _ in try api.hold("/v1/messages?wait=20s") }
    let late = api.now + .seconds(5)
    try push("first", api, at: late)
    try push("second", api, at: late + .milliseconds(1))
    for poll in polls { _ = api.finish(poll) }
    api.api.latencies.turnEnded(from: late, to: late + .milliseconds(4))
    #expect(requests(.poll, api).count == 0, "the client and the upstream decide how long it waits")
    #expect(intervals(.pushToPoll, api).count == 3)
    #expect(abs(intervals(.pushToPoll, api).seconds - 0.012) < 1e-9)
  }

  @Test func aPollThatEndsWithoutAPushIsNotMeasured() throws {
    let api = try APIFixture()
    _ = api.finish(try api.hold("/v1/messages?wait=20s"))
    api.api.latencies.turnEnded(from: api.now, to: api.now + .seconds(20))
    #expect(intervals(.pushToPoll, api).count == 0 && requests(.poll, api).count == 0)
  }

  @Test func aStreamIsMeasuredOnlyIfItWaited() throws {
    let api = try APIFixture()
    try push("before", api, at: api.now - .seconds(60))
    let (outcome, _) = try api.send(
      Array("GET /v1/messages?cursor=earliest HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".utf8))
    guard case .stream(let source) = outcome else { throw CancellationError() }
    var content = ResponseContent()
    _ = source.next(at: api.now, into: &content)
    api.api.latencies.turnEnded(from: api.now, to: api.now + .milliseconds(1))
    #expect(intervals(.pushToStream, api).count == 0, "this push waited for its client")
    #expect(!source.advance(at: api.now).isReady)
    try push("now", api, at: api.now)
    #expect(source.advance(at: api.now).isReady)
    _ = source.next(at: api.now, into: &content)
    api.api.latencies.turnEnded(from: api.now, to: api.now + .milliseconds(3))
    #expect(intervals(.pushToStream, api).count == 1)
    #expect(abs(intervals(.pushToStream, api).seconds - 0.003) < 1e-9)
    source.close()
  }

  @Test func aReceiveIsMeasuredUnlessThePushWaitedForAWorker() throws {
    let api = try APIFixture()
    #expect(try api.put("jobs", #"{"share":true}"#).status == 201)
    let receive = try api.hold("/v1/consumers/jobs/receive?wait=20s", "POST")
    let late = api.now + .seconds(5)
    try push("job", api, at: late)
    #expect(api.advance(receive).isReady)
    #expect(api.finish(receive).body.contains("job"))
    api.api.latencies.turnEnded(from: late, to: late + .milliseconds(4))
    #expect(intervals(.pushToConsumer, api).count == 1)
    #expect(abs(intervals(.pushToConsumer, api).seconds - 0.004) < 1e-9)
  }

  @Test func manyIntervalsOfOneTurnAreAllMeasured() throws {
    let api = try APIFixture()
    for number in 0..<200 { api.api.latencies.note(.call, since: api.now - .seconds(Int64(number))) }
    api.api.latencies.turnEnded(from: api.now, to: api.now + .milliseconds(1))
    #expect(intervals(.call, api).count == 200)
  }
}
