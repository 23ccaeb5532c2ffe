import ByteStreams
import Testing
import UpstreamSession

@testable import Calls

/// Every state of a call with every input.
@Suite struct CallTableTests {
  private let now = MonotonicTime.zero + .seconds(1_000)
  private let connection = Generation(1)

  private func id(_ number: Int) -> CallID { CallID(.number, random: UInt128(number)) }

  private func bytes(_ text: String) -> ByteString { ByteString(Array(text.utf8)) }

  /// A table with one call, whose request is message 1.
  private func table(_ change: (inout CallTable.Limits) -> Void = { _ in }) -> CallTable {
    var limits = CallTable.Limits()
    change(&limits)
    var table = CallTable(limits)
    _ = table.open(id(1), token: bytes("\"a\""), sequence: 1)
    return table
  }

  private func receive(
    _ table: inout CallTable, _ number: Int, _ text: String = "[ID]", canBeLate: Bool = true, after: TimeSpan = .zero
  ) -> CallTable.Match {
    table.receive(id(number), bytes(text), 1..<3, canBeLate: canBeLate, now: now + after)
  }

  private func text(_ reply: CallReply?) -> String? {
    reply.map { $0.pieces.map { $0.bytes.text() }.joined() }
  }

  /// The result of `finish`, as a word.
  private func finish(_ table: inout CallTable, _ number: Int, after: TimeSpan = .zero) -> String {
    switch table.finish(id(number), for: "me", now: now + after) {
    case .replied(let reply): text(reply) ?? ""
    case .upstreamClosed: "closed"
    case .notSent: "not sent"
    case .timedOut: "timed out"
    }
  }

  // MARK: One outcome

  @Test func oneClientCannotUseUpTheCalls() {
    var limits = CallTable.Limits()
    limits.calls = 64
    var table = CallTable(limits)
    func open(_ number: Int, by client: UInt64) -> Bool {
      guard table.hasRoom(for: client) else { return false }
      _ = table.open(id(number), token: bytes("0"), sequence: UInt64(number), by: client)
      return true
    }
    for number in 1...64 { #expect(open(number, by: 1)) }
    let more = [open(65, by: 1), open(65, by: 2), open(66, by: 2), open(66, by: 3)]
    #expect(more == [false, true, false, true])
    table.abandon(id(65))
    let again = open(67, by: 2)
    #expect(again)
  }

  @Test func theReplyHasTheIDOfTheClient() {
    var table = table()
    #expect(!table.isOver(id(1)) && table.pending == 1)
    #expect(receive(&table, 1) == .reply(lane: 0))
    #expect(table.isOver(id(1)) && table.pending == 0 && table.count == 1)
    #expect(finish(&table, 1) == #"["a"]"#)
    #expect(table.isEmpty && table.pending == 0)
  }

  @Test func theFirstReplyCounts() {
    var table = table()
    _ = receive(&table, 1, "[ID,1]")
    #expect(receive(&table, 1, "[ID,2]") == .none)
    #expect(finish(&table, 1) == #"["a",1]"#)
    #expect(receive(&table, 1) == .none)
  }

  @Test func anUnknownIDIsNotAReply() {
    var table = table()
    #expect(!table.contains(id(2)) && receive(&table, 2) == .none)
    #expect(!table.contains(CallID(.string, random: 1)))
    #expect(finish(&table, 1) == "timed out")
  }

  @Test func aConnectionEndsTheCallsThatItCarried() {
    var table = table()
    // The message is in the queue.
    #expect(table.connectionEnded(connection) { _ in false } == [])
    table.taken(1, by: connection)
    #expect(table.connectionEnded(Generation(2)) { _ in false } == [])
    #expect(table.connectionEnded(connection) { $0 == 1 } == [], "the request is sent again")
    table.taken(1, by: connection)
    #expect(table.connectionEnded(connection) { _ in false } == [0])
    #expect(table.connectionEnded(connection) { _ in false } == [], "once")
    #expect(receive(&table, 1) == .none, "the first outcome counts")
    #expect(finish(&table, 1) == "closed")
    #expect(table.isEmpty)
  }

  @Test func aRequestThatIsSentAgainBelongsToItsLastConnection() {
    var table = table()
    table.taken(1, by: connection)
    table.taken(1, by: Generation(2))
    #expect(table.connectionEnded(connection) { _ in false } == [])
    #expect(table.connectionEnded(Generation(2)) { _ in false } == [0])
  }

  @Test func aRequestHasACarrierUntilThatConnectionEnds() {
    var table = table()
    func hasCarrier() -> Bool {
      var result = false
      _ = table.messagesEnded([1]) { _, hasCarrier in
        result = hasCarrier
        return nil
      }
      return result
    }
    #expect(!hasCarrier())
    table.taken(1, by: connection)
    #expect(hasCarrier())
    _ = table.connectionEnded(Generation(2)) { _ in true }
    #expect(hasCarrier())
    _ = table.connectionEnded(connection) { _ in true }
    #expect(!hasCarrier(), "the request is queued")
    table.taken(1, by: Generation(2))
    #expect(hasCarrier())
  }

  @Test func aMessageThatEndsEndsItsCall() {
    var table = table()
    _ = table.open(id(2), token: bytes("2"), sequence: 2)
    #expect(Set(table.sequences) == [1, 2])
    #expect(table.messagesEnded([1, 2, 3]) { _, _ in nil } == [])
    #expect(table.messagesEnded([3, 2]) { _, _ in .notSent } == [1])
    #expect(table.messagesEnded([2]) { _, _ in .upstreamClosed } == [], "the first outcome counts")
    #expect(finish(&table, 2) == "not sent")
    _ = receive(&table, 1)
    #expect(table.messagesEnded([1, 2]) { _, _ in .upstreamClosed } == [], "the call has its reply")
    #expect(finish(&table, 1) == #"["a"]"#)
  }

  @Test func aCallThatItsClientHasAbandonedIsForgotten() {
    for settle in [false, true] {
      var table = table()
      if settle { _ = receive(&table, 1) }
      table.abandon(id(1))
      #expect(table.isEmpty && table.pending == 0)
      #expect(receive(&table, 1) == .none)
      table.taken(1, by: connection)
      #expect(table.connectionEnded(connection) { _ in false } == [])
    }
  }

  // MARK: Late replies

  @Test func aLateReplyIsKeptForAMinuteAfterTheTimeout() {
    var table = table()
    #expect(finish(&table, 1) == "timed out")
    #expect(!table.isEmpty && table.count == 0 && table.contains(id(1)))
    #expect(table.lateReply(to: 1, for: "me", now: now) == nil)
    #expect(receive(&table, 1, after: .seconds(59)) == .lateReply)
    #expect(receive(&table, 1, after: .seconds(59)) == .none, "the first reply counts")
    #expect(text(table.lateReply(to: 1, for: "me", now: now + .seconds(59))) == #"["a"]"#)
    for other in ["", "m", "another"] { #expect(table.lateReply(to: 1, for: other, now: now) == nil) }
    #expect(table.lateReply(to: 2, for: "me", now: now) == nil)
    #expect(table.lateReply(to: 1, for: "me", now: now + .seconds(60)) == nil)
    table.expire(now: now + .seconds(60))
    #expect(table.isEmpty)
  }

  @Test func aReplyAMinuteAfterTheEndOfItsCallIsAPush() {
    var table = table()
    _ = finish(&table, 1)
    #expect(receive(&table, 1, after: .seconds(60)) == .none)
    #expect(table.isEmpty)
  }

  @Test func aLateReplyThatCannotBeShownIsAPush() {
    var table = table()
    _ = finish(&table, 1)
    #expect(receive(&table, 1, canBeLate: false) == .none)
    #expect(receive(&table, 1) == .lateReply)
  }

  @Test func theOldestLateCallIsForgottenAtTheLimit() {
    var table = table { $0.late.calls = 2 }
    for number in 2...3 { _ = table.open(id(number), token: bytes("\(number)"), sequence: UInt64(number)) }
    for number in 1...3 { _ = finish(&table, number) }
    #expect(receive(&table, 1) == .none)
    #expect(receive(&table, 2) == .lateReply && receive(&table, 3) == .lateReply)
  }

  @Test func lateRepliesAreLimitedInBytes() {
    var table = table { $0.late.replyBytes = 10 }
    for number in 2...3 { _ = table.open(id(number), token: bytes("\(number)"), sequence: UInt64(number)) }
    for number in 1...3 { _ = finish(&table, number) }
    #expect(receive(&table, 1, "[ID,456789,]") == .none, "larger than the limit: nothing is forgotten for it")
    #expect(receive(&table, 1, "[ID,45]") == .lateReply)
    #expect(receive(&table, 3, "[ID,45]") == .lateReply)
    #expect(table.lateReply(to: 1, for: "me", now: now) == nil, "the oldest reply was dropped")
    #expect(text(table.lateReply(to: 3, for: "me", now: now)) == "[3,45]")
    #expect(receive(&table, 2, "[ID,4567]") == .none, "call 2 was the oldest call, and its reply was dropped")
    table.expire(now: now + .seconds(61))
    #expect(table.isEmpty)
  }

  @Test func oneClientCannotUseUpTheLateRepliesOfASession() {
    var limits = CallTable.Limits()
    (limits.late.calls, limits.late.replyBytes) = (128, 6_400)
    var table = CallTable(limits)
    func end(_ number: Int, by client: UInt64) {
      _ = table.open(id(number), token: bytes("0"), sequence: UInt64(number), by: client)
      _ = table.finish(id(number), for: "me", now: now)
    }
    let reply = "[ID" + String(repeating: ",", count: 96) + "]"
    end(1, by: 2)
    #expect(receive(&table, 1, reply) == .lateReply)
    for number in 2...400 {
      end(number, by: 1)
      #expect(receive(&table, number, reply) == .lateReply)
    }
    #expect(table.lateReply(to: 1, for: "me", now: now) != nil, "its client has its share")
    #expect(
      table.lateReply(to: 300, for: "me", now: now) == nil && table.lateReply(to: 400, for: "me", now: now) != nil)
    // For calls without replies, the total counts only their number.
    for number in 401...1_000 { end(number, by: 1) }
    #expect(table.contains(id(1)) && !table.contains(id(400)))
    // With calls of many clients, no client exceeds its share.
    for number in 1_001...1_200 { end(number, by: UInt64(number)) }
    #expect(!table.contains(id(1)) && table.contains(id(1_200)) && !table.contains(id(1_001)))
    table.expire(now: now + .seconds(60))
    #expect(table.isEmpty && table.lateMemory == 0)
  }

  @Test func lateCallsUseLimitedMemory() {
    var table = table()
    _ = table.open(id(2), token: bytes("22"), sequence: 2)
    var asked: [Int] = []
    _ = table.finish(id(1), for: "me", now: now) { bytes in
      asked.append(bytes)
      return false
    }
    #expect(table.lateMemory == 0 && !table.contains(id(1)), "the call is not remembered")
    _ = table.finish(id(2), for: "me", now: now) { bytes in
      asked.append(bytes)
      return true
    }
    let call = table.lateMemory
    #expect(asked == [call + 1, call])
    let isKept = table.receive(id(2), bytes("[ID]"), 1..<3, canBeLate: true, now: now) { $0 < 4 }
    #expect(isKept == .none && table.lateMemory == call)
    #expect(receive(&table, 2) == .lateReply && table.lateMemory == call + 4)
    table.expire(now: now + .seconds(60))
    #expect(table.lateMemory == 0)
  }

  // MARK: Limits

  @Test func theNumberOfCallsIsLimited() {
    var table = table { $0.calls = 2 }
    #expect(table.hasRoom(for: 0))
    _ = table.open(id(2), token: bytes("2"), sequence: 2)
    #expect(!table.hasRoom(for: 0))
    // A reply that its client has not collected still counts.
    _ = receive(&table, 2)
    #expect(!table.hasRoom(for: 0))
    _ = finish(&table, 2)
    #expect(table.hasRoom(for: 0))
  }

  @Test func theRepliesThatWaitForTheirClientsAreLimitedInBytes() {
    var table = table { $0.replyBytes = 10 }
    for number in 2...3 { _ = table.open(id(number), token: bytes("\(number)"), sequence: UInt64(number)) }
    #expect(receive(&table, 1, "[ID,456789012]") == .reply(lane: 0), "a single reply is accepted whatever its size")
    #expect(receive(&table, 2) == .none)
    _ = finish(&table, 1)
    #expect(receive(&table, 2) == .reply(lane: 1))
    #expect(receive(&table, 3, "[ID,45]") == .none)
    table.abandon(id(2))
    #expect(receive(&table, 3, "[ID,45]") == .reply(lane: 2))
  }

  @Test func numbersOfLanesAreReused() {
    var table = CallTable()
    let lanes = (0..<100).map { table.open(id($0), token: bytes("0"), sequence: UInt64($0)) }
    #expect(lanes == Array(0..<100))
    table.abandon(id(7))
    table.abandon(id(3))
    #expect(table.open(id(200), token: bytes("0"), sequence: 200) == 3)
    for number in 0..<100 where number != 3 && number != 7 { table.abandon(id(number)) }
    table.abandon(id(200))
    #expect(table.isEmpty)
    #expect(table.open(id(300), token: bytes("0"), sequence: 300) == 0)
  }
}
