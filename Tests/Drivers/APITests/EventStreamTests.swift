import ByteStreams
import Foundation
import HTTPServer
import Inbox
import Metrics
import Reactor
import Testing
import Threading

@testable import API
@testable import Sessions
@testable import Upstream
@testable import UpstreamSession

/// `GET /v1/messages` as a stream: batches, positions and gaps, in both formats.
@Suite struct EventStreamTests {
  var api: APIFixture
  let epoch: String

  init() throws {
    api = try APIFixture(sessions: ["default", "market"])
    epoch = try #require(try api.respond("HEAD", "/v1/messages").field("Gateway-Cursor")?.dropLast(2)).description
  }

  private func push(_ text: String, topic: String = "") throws { try api.push(text, topic: topic) }

  @Test func aStreamBeginsWithAPositionAndEachMessageHasItsOwn() throws {
    try push("a")
    let stream = try api.open()
    #expect(stream.response.status == 200)
    #expect(stream.response.field("Content-Type") == "text/event-stream; charset=utf-8")
    #expect(stream.response.field("Cache-Control") == "no-store, no-transform")
    #expect(stream.response.field("X-Accel-Buffering") == "no")
    #expect(stream.response.field("X-Content-Type-Options") == "nosniff")
    #expect(stream.response.field("Gateway-Cursor") == "\(epoch).1")
    #expect(stream.response.field("Gateway-Heartbeat") == "15")
    #expect(stream.next(at: api.now) == "retry: 2000\nid: \(epoch).1\n\n")
    #expect(!stream.source.advance(at: api.now).isReady && stream.next(at: api.now).isEmpty)
    try push("b \"quoted\"")
    try push("[1]")
    #expect(stream.source.advance(at: api.now).isReady)
    let events = stream.next(at: api.now).components(separatedBy: "\n\n")
    #expect(events.count == 3 && events[2].isEmpty)
    #expect(events[0].hasPrefix("id: \(epoch).2\ndata: {\"id\":\"\(epoch).2\","))
    #expect(events[0].hasSuffix(#""type":"text","topic":null,"data":"b \"quoted\""}"#))
    #expect(events[1].hasPrefix("id: \(epoch).3\n") && events[1].hasSuffix(#""type":"json","topic":null,"data":[1]}"#))
  }

  @Test func lineBreaksOfAMessageAreSeveralDataFieldsOrSpaces() throws {
    let long = String(repeating: "1,", count: 1_000)
    try push("[\n\r\n\r[\(long)1]\r\n ]\n")
    let events = try api.open("cursor=earliest").next(at: api.now)
    let data = try #require(events.firstRange(of: "\"data\":")).upperBound
    #expect(events[data...] == "[\ndata: \ndata: \ndata: [\(long)1]\ndata:  ]\ndata: }\n\n", "\(events)")
    let lines = try api.open("cursor=earliest&stream=1", .lines).next(at: api.now).split(separator: "\n")
    #expect(lines.count == 2 && lines[1].hasSuffix("\"data\":[    [\(long)1]   ] }"), "\(lines)")
  }

  @Test func linesAreHeartbeatsMessagesAndGaps() throws {
    let stream = try api.open("stream=1", .lines)
    #expect(stream.response.field("Content-Type") == "application/x-ndjson")
    #expect(stream.next(at: api.now) == "{\"type\":\"heartbeat\",\"cursor\":\"\(epoch).0\"}\n")
    try push("a")
    let line = stream.next(at: api.now)
    #expect(line.hasPrefix("{\"id\":\"\(epoch).1\",") && line.hasSuffix("\"data\":\"a\"}\n"))
    try api.session().inbox.recordUpstreamGap()
    #expect(
      stream.next(at: api.now)
        == "{\"type\":\"gap\",\"cursor\":\"\(epoch).1g\",\"missed\":null,\"reason\":\"upstream\",\"reasons\":[\"upstream\"]}\n"
    )
  }

  @Test func aGapHasThePositionBeforeTheFirstMessageAfterIt() throws {
    try push("a")
    try push("b")
    try api.session().inbox.recordUpstreamGap()
    try push("c")
    let stream = try api.open("cursor=earliest")
    #expect(stream.next(at: api.now).hasSuffix("\"data\":\"b\"}\n\n"))
    #expect(stream.step == .more)
    let gap =
      "event: gap\nid: \(epoch).2g\ndata: {\"missed\":null,\"reason\":\"upstream\",\"reasons\":[\"upstream\"]}\n\n"
    #expect(stream.next(at: api.now).hasPrefix("\(gap)id: \(epoch).3\ndata: "))
    #expect(stream.step == .wait)
    // If the connection breaks after the gap, the next stream begins with the message, without the gap.
    let after = try api.open("", fields: "Last-Event-ID: \(epoch).2g\r\n").next(at: api.now)
    #expect(after.hasPrefix("retry: 2000\nid: \(epoch).2g\n\nid: \(epoch).3\ndata: "))
    // If the connection breaks before the gap, the next stream sends the gap again.
    let before = try api.open("", fields: "Last-Event-ID: \(epoch).2\r\n").next(at: api.now)
    #expect(before.hasPrefix("retry: 2000\nid: \(epoch).2\n\n\(gap)id: \(epoch).3\n"))
  }

  @Test func theLastEventIDTakesPrecedenceOverTheURL() throws {
    for text in ["a", "b", "c"] { try push(text) }
    for query in ["cursor=earliest", "last=3", "since=1h", ""] {
      let events = try api.open(query, fields: "Last-Event-ID: \(epoch).2\r\n").next(at: api.now)
      #expect(events.contains("\"data\":\"c\"") && !events.contains("\"data\":\"b\""), "\(query)")
    }
    let empty = try api.open("last=2", fields: "Last-Event-ID: \r\n").next(at: api.now)
    #expect(empty.contains("\"data\":\"b\""), "an empty one counts as absent")
    let lines = try api.open("stream=1&cursor=earliest", .lines, fields: "Last-Event-ID: \(epoch).2\r\n")
    #expect(lines.next(at: api.now).split(separator: "\n").count == 2)
  }

  @Test func anIDOfAnotherLogBeginsAtTheNextMessageWithAGap() throws {
    try push("a")
    for id in ["17", "\(epoch).2", "latest"] {
      let stream = try api.open("cursor=earliest", fields: "Last-Event-ID: \(id)\r\n")
      // The gap has the first position. If the connection breaks before the gap, the client thus gets the gap again.
      #expect(
        stream.next(at: api.now)
          == "retry: 2000\n\nevent: gap\nid: \(epoch).1\ndata: {\"missed\":null,\"reason\":\"restart\",\"reasons\":[\"restart\"]}\n\n",
        "\(id)")
    }
    let other = try api.open("", fields: "Last-Event-ID: p-0123456789ab.7\r\n").next(at: api.now)
    #expect(
      other.hasPrefix("retry: 2000\nid: p-0123456789ab.7\n\nevent: gap\nid: \(epoch).0g\ndata: {\"missed\":null,"))
    #expect(other.contains("\"data\":\"a\""), "what is kept follows")
  }

  @Test func aHeartbeatStatesThePositionPastMessagesThatDoNotMatch() throws {
    let stream = try api.open("topic=x*")
    _ = stream.next(at: api.now)
    let start = api.now
    #expect(stream.source.advance(at: start).deadline == start + .seconds(15))
    try push("a", topic: "y")
    #expect(!stream.source.advance(at: api.now).isReady)
    #expect(stream.next(at: start + .seconds(14)).isEmpty && stream.step == .wait)
    #expect(stream.next(at: start + .seconds(15)) == "id: \(epoch).1\n\n")
    #expect(stream.source.advance(at: start).deadline == start + .seconds(30))
    try push("b", topic: "x1")
    #expect(stream.source.advance(at: api.now).isReady)
    #expect(stream.next(at: start + .seconds(16)).hasPrefix("id: \(epoch).2\ndata: "))
    #expect(stream.source.advance(at: start).deadline == start + .seconds(31), "a message is a sign of life, too")
    let lines = try api.open("stream=1&topic=x", .lines)
    _ = lines.next(at: start)
    #expect(lines.next(at: start + .seconds(15)) == "{\"type\":\"heartbeat\",\"cursor\":\"\(epoch).2\"}\n")
  }

  @Test func aStreamEndsAfterItsLifetimeOrWithinTheTimeoutOfAProxy() throws {
    var ends: Set<UInt64> = []
    for _ in 0..<50 {
      let source = try api.open().source
      var now = api.now
      var content = ResponseContent()
      while source.next(at: now, into: &content) != .end {
        content.removeAll()
        now = try #require(source.advance(at: now).deadline)
      }
      #expect((now - api.now).seconds >= 540 && (now - api.now).seconds <= 660)
      ends.insert(now.nanoseconds)
    }
    #expect(ends.count > 20, "clients do not return together")
    let short = try api.open("", fields: "x-envoy-expected-rq-timeout-ms: 10000\r\n")
    #expect(short.source.advance(at: api.now).deadline == api.now + .milliseconds(9_500))
    try push("a")
    #expect(short.next(at: api.now + .milliseconds(9_500)).contains("\"data\":\"a\"") && short.step == .end)
    let none = try api.open("", fields: "x-envoy-expected-rq-timeout-ms: 100\r\n")
    #expect(none.next(at: api.now + .milliseconds(50)).hasPrefix("retry: 2000\nid: ") && none.step == .end)
  }

  @Test(arguments: ["lines", "events"])
  func aStreamThatEndsBeforeItsFirstHeartbeatHasStatedItsLastPosition(_ format: String) throws {
    let fields = "x-envoy-expected-rq-timeout-ms: 15000\r\n"
    let isLines = format == "lines"
    let stream = try api.open(
      isLines ? "topic=x&stream=1" : "topic=x", isLines ? .lines : .events, fields: fields)
    _ = stream.next(at: api.now)
    for _ in 0..<3 { try push("a", topic: "y") }
    #expect(
      !stream.source.advance(at: api.now).isReady && stream.next(at: api.now + .seconds(14)).isEmpty
        && stream.step == .wait)
    let last = stream.next(at: api.now + .milliseconds(14_500))
    #expect(stream.step == .end)
    #expect(last == (isLines ? "{\"type\":\"heartbeat\",\"cursor\":\"\(epoch).3\"}\n" : "id: \(epoch).3\n\n"))
    // The end of a stream does not repeat a position that the stream has already sent, alone or with a message.
    let quiet = try api.open(fields: fields)
    _ = quiet.next(at: api.now)
    #expect(quiet.next(at: api.now + .milliseconds(14_500)).isEmpty && quiet.step == .end)
    let busy = try api.open(fields: fields)
    _ = busy.next(at: api.now)
    try push("b")
    #expect(busy.next(at: api.now + .milliseconds(14_500)).hasSuffix("\"data\":\"b\"}\n\n") && busy.step == .end)
    // One message matches, but the later message does not.
    let filtered = try api.open("topic=x", fields: fields)
    _ = filtered.next(at: api.now)
    try push("c", topic: "x")
    try push("d", topic: "y")
    let batch = filtered.next(at: api.now + .milliseconds(14_500))
    #expect(batch.contains("\"data\":\"c\"") && batch.hasSuffix("\n\nid: \(epoch).6\n\n"))
  }

  @Test func anOpenStreamKeepsItsSessionInUseAlsoWhileItDoesNotWait() throws {
    let session = try api.session()
    #expect(!session.upstream.sink.hasReaders)
    // The streams are not registered with the notifier, like a stream whose client has not read the last batch.
    let streams = [try api.open(), try api.open("topic=x")]
    #expect(!session.inbox.notifier.hasWaiters && session.upstream.sink.hasReaders)
    streams[0].source.close()
    #expect(session.upstream.sink.hasReaders)
    streams[1].source.close()
    #expect(!session.upstream.sink.hasReaders)
  }

  @Test func aGapAtTheStartIsAlsoInAHeaderField() throws {
    try push("a")
    let stream = try api.open("", fields: "Last-Event-ID: 17\r\n")
    #expect(stream.response.field("Gateway-Gap") == "missed=null, reason=restart")
    #expect(stream.response.field("Gateway-Cursor") == "\(epoch).1")
    #expect(try api.open().response.field("Gateway-Gap") == nil)
    // The position is before the gap, so a client that continues there gets the gap.
    let other = try api.open("", fields: "Last-Event-ID: p-0123456789ab.7\r\n")
    #expect(other.response.field("Gateway-Gap") == nil)
    #expect(other.response.field("Gateway-Cursor") == "p-0123456789ab.7")
  }

  @Test func theValidatorOfAPollIsAPositionAndPreferWaitIsIgnored() throws {
    try push("a")
    let validator = "If-None-Match: W/\"\(epoch).0\"\r\n"
    #expect(try api.open(fields: validator).response.field("Gateway-Cursor") == "\(epoch).0")
    #expect(try api.open("cursor=latest", fields: validator).response.field("Gateway-Cursor") == "\(epoch).1")
    let both = try api.open(fields: "\(validator)Last-Event-ID: \(epoch).1\r\n")
    #expect(both.response.field("Gateway-Cursor") == "\(epoch).1")
    let compressed = "If-None-Match: W/\"\(epoch).0-gzip\"\r\n"
    #expect(try api.open(fields: compressed).response.field("Gateway-Cursor") == "\(epoch).0")
    #expect(try api.open(fields: "If-None-Match: \"\"\r\n").response.field("Gateway-Gap") == nil)
    let other = try api.open(fields: "If-None-Match: \"x\"\r\n")
    #expect(other.response.field("Gateway-Gap") == "missed=null, reason=restart")
    let stream = try api.open(fields: "Prefer: wait=1\r\n")
    _ = stream.next(at: api.now)
    #expect(stream.next(at: api.now + .seconds(2)).isEmpty && stream.step == .wait)
  }

  @Test func aBatchIsLimitedAndStreamsAtOnePositionUseOneCopy() throws {
    for index in 0..<400 { try push(String(repeating: "x", count: 200) + "\(index)") }
    let streams = try (0..<4).map { _ in try api.open("cursor=earliest") }
    for stream in streams { _ = stream.next(at: api.now) }
    let first = streams.map(\.text)
    #expect(first.allSatisfy { $0 == first[0] && $0.utf8.count <= 64 << 10 && $0.utf8.count > 40 << 10 })
    #expect(streams.allSatisfy { $0.step == .more })
    var ids: [Int] = []
    while streams[0].step == .more { _ = streams[0].next(at: api.now) }
    for line in streams[0].all.split(separator: "\n") where line.hasPrefix("data: ") {
      ids.append(line.dropLast(2).split(separator: "x").last.flatMap { Int($0) } ?? -1)
    }
    #expect(ids == Array(0..<400))
    try push(String(repeating: "y", count: 200_000))
    #expect(streams[0].next(at: api.now).utf8.count > 200_000, "a single larger message is sent")
  }

  @Test func aStreamRefusesParametersThatItDoesNotUse() throws {
    for query in ["wait=5", "limit=5", "max_bytes=5", "limit=1"] {
      for (accept, more) in [("text/event-stream", ""), ("application/x-ndjson", "&stream=1")] {
        let response = try api.respond("GET", "/v1/messages?\(query)\(more)", "Accept: \(accept)\r\n")
        let name = query.prefix { $0 != "=" }
        #expect(response.status == 400 && response.text("detail")?.hasPrefix("\(name) is a parameter of polls") == true)
      }
    }
    for query in ["stream=0", "stream=", "stream=true", "events=session", "events=x", "stream=1&stream=1", "data=omit"]
    {
      #expect(try api.respond("GET", "/v1/messages?\(query)").problem == "invalid-parameter", "\(query)")
    }
    for (accept, problem) in [
      ("", "invalid-parameter"), ("Accept: */*\r\n", "invalid-parameter"),
      ("Accept: application/json\r\n", "not-acceptable"), ("Accept: text/plain\r\n", "not-acceptable"),
    ] {
      let response = try api.respond("GET", "/v1/messages?stream=1", accept)
      #expect(response.problem == problem, "\(accept)")
      #expect(response.text("detail")?.contains("application/x-ndjson") == true)
    }
    #expect(
      try api.respond("GET", "/v1/messages?cursor=\(epoch).9", "Accept: text/event-stream\r\n").problem
        == "invalid-parameter")
    #expect(try api.respond("GET", "/v1/messages?wait=0", "Accept: text/event-stream;q=0.5, */*\r\n").status == 200)
  }

  @Test func aStreamThatOmitsDataHasTheSizeOfEachPayloadInstead() throws {
    try push("plain \"text\" \u{1}ä", topic: "a \"b\"")
    try push("{\"a\":\n[1]}")
    let inbox = try api.session().inbox
    for count in 0...4 {
      inbox.append([UInt8](repeating: 0xFF, count: count).span, kind: .binary, time: 0, now: api.now)
    }
    let sizes = [16, 10, 0, 1, 2, 3, 4]
    for format in [StreamFormat.lines, .events] {
      let more = format == .lines ? "&stream=1" : ""
      let text = try api.open("cursor=earliest&data=omit" + more, format).next(at: api.now)
      let messages = text.split(separator: "\n").compactMap { line -> [String: Any]? in
        let json = line.hasPrefix("data: ") ? line.dropFirst(6) : line
        return (try? JSONSerialization.jsonObject(with: Data(json.utf8))) as? [String: Any]
      }.filter { $0["type"] as? String != "heartbeat" }
      #expect(messages.map { $0["bytes"] as? Int } == sizes, "\(text)")
      #expect(messages.allSatisfy { Set($0.keys) == ["id", "time", "type", "topic", "bytes"] }, "\(text)")
      #expect(messages.first?["topic"] as? String == "a \"b\"")
      #expect(messages.map { $0["type"] as? String } == ["text", "json"] + Array(repeating: "binary", count: 5))
    }
    // A batch with data differs from the batch without data at the same position.
    let whole = try api.open("cursor=earliest&stream=1", .lines).next(at: api.now)
    #expect(whole.contains("\"data\":\"plain"))
    #expect(try api.respond("GET", "/v1/messages?stream=1&data=x", "Accept: application/x-ndjson\r\n").status == 400)
  }

  @Test func headHasTheFieldsOfAStreamAndTheLatestPosition() throws {
    try push("a")
    let stream = try api.open("cursor=earliest", method: "HEAD")
    #expect(stream.response.field("Gateway-Cursor") == "\(epoch).1")
    #expect(stream.response.field("Content-Type") == "text/event-stream; charset=utf-8")
  }

  private func addTransitions(_ numbers: ClosedRange<UInt64>) throws {
    let handle = try api.session().upstream
    for number in numbers {
      let transition = SessionTransition(
        sequence: number, from: number % 2 == 0 ? .connecting : .backoff, to: number % 2 == 0 ? .backoff : .connecting,
        cause: .waited, generation: Generation(number), time: api.now, roundTrip: nil, nextAttempt: nil)
      handle.guarded.withLock { $0.status.facts.transitions.append(transition) }
    }
    handle.noteStateChange()
  }

  @Test func everyTransitionOfTheSessionIsAnEventWithTheStateAfterIt() throws {
    try addTransitions(1...3)
    let stream = try api.open("events=session&stream=1", .lines)
    func events() -> [(state: String, transition: Int)] {
      stream.next(at: api.now).split(separator: "\n").filter { $0.hasPrefix("{\"type\":\"session\"") }.map { line in
        (
          line.firstRange(of: "\"state\":\"").map { String(line[$0.upperBound...].prefix { $0 != "\"" }) } ?? "",
          line.firstRange(of: "{\"sequence\":").flatMap { Int(line[$0.upperBound...].prefix { $0.isNumber }) } ?? 0
        )
      }
    }
    #expect(events().map(\.transition) == [3], "at the start, only the present state")
    // The state changes back before the loop of the stream has noticed the first change.
    try addTransitions(4...6)
    #expect(stream.source.advance(at: api.now).isReady)
    let three = events()
    #expect(three.map(\.transition) == [4, 5, 6])
    #expect(three.map(\.state) == ["backoff", "connecting", "backoff"])
    #expect(!stream.source.advance(at: api.now).isReady)
    // A client that has read nothing meanwhile gets the transitions that the session remembers. The numbers show the
    // jump.
    try addTransitions(7...100)
    #expect(events().map(\.transition) == Array(69...100))
    // Only the desired state changes.
    try api.session().upstream.open()
    #expect(events().map(\.transition) == [100])
  }

  @Test func theStateOfTheSessionIsSentWithoutAPosition() throws {
    let session = try api.session()
    let stream = try api.open("events=session")
    let events = stream.next(at: api.now).components(separatedBy: "\n\n")
    #expect(events.count == 3 && events[0] == "retry: 2000\nid: \(epoch).0")
    #expect(
      events[1]
        == "event: session\ndata: {\"session\":\"default\",\"desired\":\"down\",\"state\":\"stopped\",\"upstream\":\"ws://127.0.0.1:1/\",\"last_failure\":null,\"transition\":null}"
    )
    #expect(!stream.source.advance(at: api.now).isReady)
    session.upstream.open()
    session.upstream.close()
    session.upstream.open()
    #expect(stream.source.advance(at: api.now).isReady)
    let change = stream.next(at: api.now + .seconds(10))
    #expect(change.hasPrefix("event: session\ndata: {\"session\":\"default\",\"desired\":\"up\","))
    #expect(change.components(separatedBy: "event: ").count == 2 && !change.contains("id: "))
    #expect(stream.next(at: api.now + .seconds(15)) == "id: \(epoch).0\n\n", "it delays no heartbeat")
    let plain = try api.open()
    _ = plain.next(at: api.now)
    let lines = try api.open("stream=1&events=session&topic=x", .lines)
    #expect(lines.next(at: api.now).contains("\n{\"type\":\"session\",\"session\":\"default\",\"desired\":\"up\","))
    session.upstream.close()
    #expect(!plain.source.advance(at: api.now).isReady && lines.source.advance(at: api.now).isReady)
  }

  @Test func changesOfTheStateNotifyOnlyWhereAStreamReadsThem() throws {
    let inbox = try api.session().inbox
    let plain = try api.open()
    #expect(!inbox.hasStateReaders)
    let stream = try api.open("events=session")
    #expect(inbox.hasStateReaders)
    plain.source.close()
    #expect(inbox.hasStateReaders)
    stream.source.close()
    #expect(!inbox.hasStateReaders)
  }

  @Test func openStreamsAreCountedUntilTheyAreClosed() throws {
    func open() -> String? {
      var text = ByteQueue()
      api.registry.render(into: &text)
      return text.bytes.text().split(separator: "\n").first { $0.hasPrefix("drawbridge_streams_open ") }.map {
        String($0.dropFirst("drawbridge_streams_open ".count))
      }
    }
    let stream = try api.open()
    #expect(open() == "1")
    stream.source.close()
    #expect(open() == "0")
  }
}

extension APIFixture {
  func push(_ text: String, topic: String = "") throws {
    try session().inbox.append(
      Array(text.utf8).span, kind: .text, topic: Array(topic.utf8).span, time: 0, now: now)
  }

  /// A stream that a test reads batch by batch.
  final class OpenStream {
    let source: any Source
    let response: Received
    private(set) var step = SourceStep.wait
    /// The last batch.
    private(set) var text = ""
    /// All batches.
    private(set) var all = ""

    init(_ source: any Source, _ response: Received) {
      self.source = source
      self.response = response
    }

    func next(at now: MonotonicTime) -> String {
      var content = ResponseContent()
      step = source.next(at: now, into: &content)
      text = String(decoding: content.copyBytes(), as: UTF8.self)
      all += text
      return text
    }
  }

  func open(
    _ query: String = "", _ format: StreamFormat = .events, fields: String = "", method: String = "GET"
  ) throws -> OpenStream {
    let accept = format == .events ? "text/event-stream" : "application/x-ndjson"
    let (outcome, response) = try send(
      Array(
        "\(method) /v1/messages?\(query) HTTP/1.1\r\nHost: localhost\r\nAccept: \(accept)\r\n\(fields)\r\n".utf8))
    guard case .stream(let source) = outcome else {
      Issue.record("no stream: \(response.body)")
      throw NoStream()
    }
    return OpenStream(source, response)
  }

  private struct NoStream: Error {}
}
