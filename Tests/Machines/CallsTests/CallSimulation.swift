import ByteStreams
import TestSupport
import Testing
import UpstreamSession

@testable import Calls

/// Clients call over connections that break, to an upstream that replies in any order, late, twice or never. Each call
/// must have exactly one outcome, and that outcome must be true. No reply may reach another client.
@Suite struct CallSimulation {
  private struct Caller {
    let id: CallID
    let sequence: UInt64
    let lane: Int
    let deadline: MonotonicTime
    var carrier: Generation?
    var outcome: String?
    /// The number of replies that the table got before the client collected the outcome.
    var repliesSeen = 0
    var lateRepliesSeen = 0
    var end = MonotonicTime.distantFuture
  }

  private struct World {
    var generator: SeededGenerator
    var table: CallTable
    var callers: [Caller] = []
    var queue: [Int] = []
    /// The requests that the upstream has received. It may reply to each of them at any time, and more than once.
    var upstream: [Int] = []
    var now = MonotonicTime.zero + .seconds(1)
    var connection = Generation(1)
    var woken: Set<Int> = []
    let limits: CallTable.Limits

    init(seed: UInt64) {
      generator = SeededGenerator(seed: seed)
      var limits = CallTable.Limits()
      limits.calls = 16
      limits.late.calls = 12
      self.limits = limits
      table = CallTable(limits)
    }

    private mutating func number(_ limit: Int) -> Int { Int.random(in: 0..<limit, using: &generator) }

    private var waiting: [Int] { callers.indices.filter { callers[$0].outcome == nil } }

    mutating func step() {
      now = now + .milliseconds(Int64(number(3_000)))
      switch number(10) {
      case 0...2: call()
      case 3...4: send()
      case 5...6: reply()
      case 7: breakConnection()
      case 8: expireMessage()
      default: leave()
      }
      // A client may be slow to collect its outcome.
      for index in waiting where callers[index].deadline <= now || table.isOver(callers[index].id) && number(2) == 0 {
        collect(index)
      }
      #expect(table.count == waiting.count && table.count <= limits.calls)
    }

    private mutating func call() {
      guard table.hasRoom(for: 0) else {
        #expect(waiting.count == limits.calls)
        return
      }
      let number = callers.count
      let random = UInt128(generator.next()) << 64 | UInt128(generator.next())
      let id = CallID(number % 2 == 0 ? .number : .string, random: random)
      let token = ByteString(Array("\(number)".utf8))
      let sequence = UInt64(number + 1)
      let lane = table.open(id, token: token, sequence: sequence)
      #expect(!waiting.contains { callers[$0].lane == lane }, "a lane belongs to one call")
      callers.append(
        Caller(
          id: id, sequence: sequence, lane: lane, deadline: now + .milliseconds(Int64(self.number(40_000)))))
      queue.append(number)
    }

    private mutating func send() {
      guard !queue.isEmpty else { return }
      let index = queue.removeFirst()
      table.taken(callers[index].sequence, by: connection)
      callers[index].carrier = connection
      if number(8) > 0 { upstream.append(index) }
    }

    private mutating func reply() {
      guard !upstream.isEmpty else { return }
      let place = number(upstream.count)
      let index = upstream[place]
      if number(5) > 0 { upstream.remove(at: place) }
      let message = ByteString(Array("{\"id\":X,\"n\":\(index)}".utf8))
      let caller = callers[index]
      switch table.receive(caller.id, message, 6..<7, canBeLate: true, now: now) {
      case .reply(let lane):
        #expect(caller.outcome == nil && lane == caller.lane && caller.repliesSeen == 0)
        callers[index].repliesSeen += 1
      case .lateReply:
        #expect(caller.outcome == "timed out" && now < caller.end && caller.lateRepliesSeen == 0)
        callers[index].lateRepliesSeen += 1
        #expect(text(table.lateReply(to: caller.sequence, for: "me", now: now)) == "{\"id\":\(index),\"n\":\(index)}")
      case .none:
        // The call already has an outcome, or a reply that its client has not collected.
        #expect(caller.outcome != nil || caller.repliesSeen > 0)
      }
    }

    private func text(_ reply: CallReply?) -> String? { reply.map { $0.pieces.map { $0.bytes.text() }.joined() } }

    private mutating func breakConnection() {
      let ended = connection
      connection = connection.next
      // Half of the carried requests return to the queue.
      let carried = callers.indices.filter { callers[$0].carrier == ended && callers[$0].outcome == nil }
      let again = Set(carried.filter { _ in number(2) == 0 })
      for index in again {
        callers[index].carrier = nil
        upstream.removeAll { $0 == index }
        queue.append(index)
      }
      let queued = Set(again.map { callers[$0].sequence })
      let lanes = table.connectionEnded(ended) { queued.contains($0) }
      let expected = carried.filter { !again.contains($0) && callers[$0].repliesSeen == 0 }
      #expect(Set(lanes) == Set(expected.map { callers[$0].lane }) && lanes.count == expected.count)
      for index in expected {
        callers[index].outcome = collected(index)
        #expect(callers[index].outcome == "closed")
      }
    }

    private mutating func expireMessage() {
      guard !queue.isEmpty else { return }
      let index = queue.remove(at: number(queue.count))
      guard callers[index].outcome == nil else { return }
      let lanes = table.messagesEnded([callers[index].sequence]) { _, _ in .notSent }
      guard callers[index].repliesSeen == 0 else {
        #expect(lanes == [], "the call has its reply")
        return
      }
      #expect(lanes == [callers[index].lane])
      callers[index].outcome = collected(index)
      #expect(callers[index].outcome == "not sent")
    }

    private mutating func leave() {
      guard let index = waiting.randomElement(using: &generator), number(3) == 0 else { return }
      table.abandon(callers[index].id)
      callers[index].outcome = "left"
      queue.removeAll { $0 == index }
    }

    private mutating func collect(_ index: Int) {
      let outcome = collected(index)
      callers[index].outcome = outcome
      if callers[index].repliesSeen > 0 {
        #expect(outcome == "{\"id\":\(index),\"n\":\(index)}")
      } else {
        #expect(outcome == "timed out" && callers[index].deadline <= now)
        callers[index].end = now + limits.late.time
        queue.removeAll { $0 == index }
      }
    }

    private mutating func collected(_ index: Int) -> String {
      switch table.finish(callers[index].id, for: "me", now: now) {
      case .replied(let reply): text(reply) ?? ""
      case .upstreamClosed: "closed"
      case .notSent: "not sent"
      case .timedOut: "timed out"
      }
    }

    mutating func end() {
      for index in waiting { callers[index].outcome = collected(index) }
      #expect(table.count == 0 && table.pending == 0)
      table.expire(now: now + limits.late.time)
      #expect(table.isEmpty)
    }
  }

  @Test(arguments: 0..<100)
  func everyCallHasExactlyItsOwnOutcome(seed: UInt64) {
    var world = World(seed: seed)
    for _ in 0..<1_000 { world.step() }
    world.end()
    #expect(Set(world.callers.compactMap(\.outcome).map { $0.hasPrefix("{") ? "replied" : $0 }).count == 5)
  }
}
