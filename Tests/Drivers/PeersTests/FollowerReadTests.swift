import ByteStreams
import Host
import Inbox
import Journal
import LoopbackSupport
import RedisStore
import Replication
import Synchronization
import Testing
import Threading

@testable import Sessions

/// Polls and streams at a gateway that follows the session, with a script instead of Redis.
@Suite struct FollowerReadTests {
  /// The requests of the gateway to the store.
  private final class Requests: Sendable {
    struct Seen: Sendable {
      var calls = 0
      var refresh: UInt64 = 0
      var wakes = 0
      var isAway = false
    }
    let seen = Locked(Seen())
    var refresh: UInt64 { seen.withLock { $0.refresh } }
    var calls: Int { seen.withLock { $0.calls } }
  }

  private struct Follower {
    let gateway: TestGateway
    let requests = Requests()
    var terms = HolderTerms()
    static let epoch: UInt64 = 0xABC

    init() throws {
      gateway = try TestGateway(isShared: true)
      gateway.slot?.copy.use(
        FollowedCopy.Source(
          follow: { [requests] refresh, hasReaders in
            requests.seen.withLock {
              $0.calls += 1
              if hasReaders { $0.wakes += 1 }
              $0.refresh = max($0.refresh, refresh)
            }
          }, isAway: { [requests] in requests.seen.withLock { $0.isAway } }))
      begin(1, at: 1)
    }

    /// Another gateway begins a term.
    mutating func begin(_ counter: UInt32, at push: UInt64) {
      terms.append(HolderTerms.Begin(HolderTerm(counter: counter, random: 7), firstPush: push))
    }

    func term(_ counter: UInt32) -> UInt64 { HolderTerm(counter: counter, random: 7).value }

    func cursor(_ counter: UInt32, _ number: UInt64) -> String {
      var text = ByteQueue()
      Cursor(epoch: Epoch(Self.epoch), term: term(counter), sequence: number).write(into: &text)
      return text.bytes.text()
    }

    func report(_ change: FollowedChange) { gateway.shared?.follow("default", change) }

    func push(_ number: UInt64, _ counter: UInt32 = 1) -> LogChange {
      var renderer = MessageRenderer()
      let id = Cursor(epoch: Epoch(Self.epoch), term: term(counter), sequence: number)
      let payload = Array("push-\(number)".utf8)
      let message = renderer.render(payload.span, kind: .text, topic: Span(), id: id, time: 0, arrival: .zero)
      return .push(message.stored(time: ProcessInformation.wallClockMilliseconds()))
    }

    /// Reports that the session was read, with these pushes.
    func load(_ pushes: ClosedRange<UInt64>) {
      report(.restarted(epoch: Self.epoch, terms))
      report(.entries(pushes.map { push($0) }))
      report(.isCurrent)
    }

    func poll(_ query: String) throws -> LoopbackClient {
      let client = try gateway.connect()
      client.send("GET", "/v1/messages?\(query)")
      return client
    }
  }

  @Test func aPollWithoutACursorWaitsUntilTheSessionIsRead() async throws {
    let follower = try Follower()
    let polls = [try follower.poll("last=2&wait=0"), try follower.poll("last=2&wait=30s")]
    #expect(eventually { follower.requests.calls > 0 })
    #expect(polls.allSatisfy { !$0.isReadable })
    follower.load(1...3)
    for poll in polls {
      let response = try poll.response()
      #expect(response.status == 200 && response.body.contains("push-3") && !response.body.contains("push-1"))
      #expect(response.field("Gateway-Cursor") == follower.cursor(1, 3))
    }
    // At a follower as at the holder, the request is then held until a push arrives.
    let next = try follower.poll("wait=30s")
    #expect(eventually { follower.gateway.metric("drawbridge_polls_held") == 1 })
    follower.report(.entries([follower.push(4)]))
    #expect(try next.response().body.contains("push-4"))
    let none = try Follower()
    let start = ContinuousClock.now
    #expect(try none.poll("wait=30s").response().problem == "holder-unavailable")
    #expect(ContinuousClock.now - start >= .seconds(2))
  }

  @Test func aPollWithoutACursorIsHeldOnceTheSessionIsRead() async throws {
    let follower = try Follower()
    let poll = try follower.poll("cursor=latest&wait=30s")
    #expect(eventually { follower.requests.calls > 0 })
    follower.load(1...3)
    // The session that replaced the first session now holds the request.
    let inbox = try #require(follower.gateway.slot).session.inbox
    #expect(eventually { inbox.hasReaders })
    #expect(!poll.isReadable)
    // The poll starts after the newest push in the copy when the copy is known to be current. This push may be one of
    // the pushes below.
    var newest: UInt64 = 3
    let isAnswered = eventually {
      newest += 1
      follower.report(.entries([follower.push(newest)]))
      return poll.isReadable
    }
    #expect(isAnswered)
    let response = try poll.response()
    #expect(response.body.contains("push-") && !response.body.contains("push-3"))
  }

  @Test func aCursorOfAnUnknownTermWaitsForARefresh() async throws {
    var follower = try Follower()
    follower.load(1...3)
    follower.begin(2, at: 4)
    let polls = [
      try follower.poll("cursor=\(follower.cursor(2, 4))&wait=30s"),
      try follower.poll("cursor=\(follower.cursor(2, 4))&wait=0"),
    ]
    #expect(eventually { follower.requests.refresh == 2 })
    // Reads that began before the request do not count.
    follower.report(.isCurrent)
    follower.report(.continued(after: nil, follower.terms))
    follower.report(.entries([follower.push(4, 2), follower.push(5, 2)]))
    follower.report(.isCurrent)
    follower.report(.refreshed(2))
    for poll in polls {
      let response = try poll.response()
      #expect(response.status == 200 && response.field("Gateway-Gap") == nil)
      #expect(response.body.contains("push-5") && !response.body.contains("push-4"))
    }
    // Redis has lost this push.
    let lost = try follower.poll("cursor=\(follower.cursor(3, 9))&wait=30s")
    #expect(eventually { follower.requests.refresh == 3 })
    #expect(!lost.isReadable)
    follower.report(.refreshed(3))
    let response = try lost.response()
    #expect(response.field("Gateway-Gap")?.contains("reason=store") == true && response.body.contains("push-4"))
  }

  @Test func aReaderOfAnOutdatedCopyWaitsUntilItIsCurrent() async throws {
    let follower = try Follower()
    follower.load(1...3)
    follower.report(.isOutdated)
    let poll = try follower.poll("cursor=\(follower.cursor(1, 3))&wait=0")
    let latest = try follower.poll("cursor=latest&wait=0")
    #expect(eventually { follower.gateway.metric("drawbridge_polls_held") == 2 })
    follower.report(.entries([follower.push(4)]))
    follower.report(.isCurrent)
    #expect(try poll.response().body.contains("push-4"))
    #expect(try latest.response().field("Gateway-Cursor") == follower.cursor(1, 4))
  }

  @Test func whileRedisIsAwayReadersGetTheReceivedPushes() async throws {
    var follower = try Follower()
    follower.requests.seen.withLock { $0.isAway = true }
    #expect(try follower.poll("wait=30s").response().problem == "holder-unavailable")
    follower.load(1...3)
    follower.report(.isOutdated)
    #expect(try follower.poll("last=1&wait=0").response().body.contains("push-3"))
    #expect(try follower.poll("cursor=\(follower.cursor(1, 2))&wait=0").response().body.contains("push-3"))
    follower.begin(2, at: 4)
    let cursor = follower.cursor(2, 4)
    let empty = try follower.poll("cursor=\(cursor)&wait=0").response()
    #expect(empty.status == 200 && empty.field("Gateway-Cursor") == cursor && empty.field("Gateway-Gap") == nil)
    #expect(!empty.body.contains("push-"))
  }

  @Test func streamsWaitForTheirPosition() async throws {
    var follower = try Follower()
    let first = try follower.gateway.connect()
    first.send("GET", "/v1/messages?last=1&stream=1", "Accept: application/x-ndjson\r\n")
    #expect(eventually { follower.requests.calls > 0 })
    #expect(!first.isReadable)
    follower.load(1...3)
    #expect(first.readHead()?.contains("Gateway-Cursor: \(follower.cursor(1, 2))") == true)

    follower.begin(2, at: 4)
    let second = try follower.gateway.connect()
    let cursor = follower.cursor(2, 4)
    second.send("GET", "/v1/messages?cursor=\(cursor)&stream=1", "Accept: application/x-ndjson\r\n")
    #expect(second.readHead()?.contains("Gateway-Cursor: \(cursor)\r\n") == true)
    #expect(follower.requests.refresh == 1)
    follower.report(.continued(after: nil, follower.terms))
    follower.report(.entries([follower.push(4, 2), follower.push(5, 2)]))
    follower.report(.isCurrent)
    follower.report(.refreshed(1))
    #expect(eventually { follower.gateway.metric("drawbridge_messages_delivered_total") == 4 }, "3 and 1")
    // Both streams end when this gateway becomes the holder.
    follower.gateway.slot?.session.inbox.replaced()
    #expect(first.readToEnd().contains("push-5"))
    let text = second.readToEnd()
    #expect(text.contains("push-5") && !text.contains("push-4") && !text.contains("gap"), "\(text)")
  }

  @Test func manyReadersCauseOneRefreshPerSecond() async throws {
    let follower = try Follower()
    follower.load(1...1)
    let copy = try #require(follower.gateway.slot).copy
    let start = ProcessInformation.monotonicTime()
    for index in 0..<10_000 as Range<Int64> {
      copy.noteUse(at: start + .microseconds(index * 300), wakesHolder: true)
    }
    #expect(follower.requests.seen.withLock { [$0.calls, $0.wakes] } == [3, 3])
    // First a copy with waiting readers, then a copy that is followed even without readers.
    copy.keep(at: start + .seconds(10), hasReaders: true, wakesHolder: true)
    copy.keep(at: start + .seconds(15), hasReaders: false, wakesHolder: true)
    #expect(follower.requests.seen.withLock { [$0.calls, $0.wakes] } == [4, 4])
    copy.keep(at: start + .seconds(31), hasReaders: false, wakesHolder: true)
    #expect(follower.requests.seen.withLock { [$0.calls, $0.wakes] } == [5, 4])
  }

  @Test func theLagIsTheAgeOfTheNewestPush() async throws {
    let follower = try Follower()
    follower.load(1...3)
    let copy = try #require(follower.gateway.slot).copy
    #expect(copy.isCurrent && copy.lag == nil, "the pushes of the first load arrived long before")
    follower.report(.entries([follower.push(4)]))
    let lag = try #require(copy.lag)
    #expect(lag >= .zero && lag < .seconds(10))
    #expect(follower.gateway.metric("drawbridge_store_lag_seconds_count") == 1)
    follower.report(.isOutdated)
    #expect(!copy.isCurrent)
  }
}
