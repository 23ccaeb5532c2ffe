import ByteStreams
import JSONCodec
import JournalCoding
import TestSupport
import Testing

@testable import UpstreamProtocol

@Suite struct SubscriptionLedgerTests {
  /// The rules for GraphQL's protocol.
  private func rules(_ change: (inout SubscriptionRules) -> Void = { _ in }) throws -> SubscriptionRules {
    let type = try #require(JSONPointer("/type"))
    let id = try #require(JSONPointer("/id"))
    var rules = SubscriptionRules()
    rules.add.match = Matcher([.value(type, "subscribe")])
    rules.add.key = id
    rules.remove.match = Matcher([.value(type, "complete")])
    rules.remove.key = id
    rules.ended = rules.remove
    change(&rules)
    return rules
  }

  private func say(
    _ ledger: inout SubscriptionLedger, _ text: String, by client: UInt64 = 0
  ) -> SubscriptionLedger.Effect {
    ledger.sent(ByteSlice(ByteString(Array(text.utf8))), kind: .text, by: client)
  }

  private func hear(_ ledger: inout SubscriptionLedger, _ text: String) -> SubscriptionLedger.Effect {
    let bytes = Array(text.utf8)
    return ledger.received(bytes.span)
  }

  private func texts(_ ledger: SubscriptionLedger) -> [String] { ledger.messages.map { $0.payload.bytes.text() } }

  @Test func keepsReplacesAndRemovesSubscriptions() throws {
    var ledger = SubscriptionLedger(try rules())
    let first = #"{"id":"a","type":"subscribe"}"#
    let second = #"{"id":"b","type":"subscribe"}"#
    let third = #"{"id":"a","type":"subscribe","n":2}"#
    #expect(say(&ledger, first) == .stored && say(&ledger, second) == .stored)
    #expect(texts(ledger) == [first, second])
    #expect(say(&ledger, third) == .stored)
    #expect(texts(ledger) == [second, third], "replaced by key, and now the last")
    #expect(say(&ledger, #"{"id":"b","type":"complete"}"#) == .removed)
    #expect(say(&ledger, #"{"id":"b","type":"complete"}"#) == .none)
    #expect(hear(&ledger, #"{"id":"zz","type":"complete"}"#) == .none)
    #expect(hear(&ledger, #"{"id":"a","type":"complete"}"#) == .removed)
    #expect(ledger.count == 0 && ledger.bytes == 0)
  }

  /// Submitted changes, and the changes that replace them, restore the messages of a ledger.
  @Test(arguments: 0..<10 as Range<UInt64>)
  func storedSubscriptionsAreTheSubscriptionsOfTheLedger(seed: UInt64) throws {
    var random = SeededGenerator(seed: seed)
    var ledger = SubscriptionLedger(try rules { $0.entries = 8 })
    var stored = StoredMemory()
    for number in 0..<300 {
      let id = Int.random(in: 0..<12, using: &random)
      let effect =
        switch Int.random(in: 0..<4, using: &random) {
        case 0: say(&ledger, #"{"id":"\#(id)","type":"complete"}"#)
        case 1: hear(&ledger, #"{"id":"\#(id)","type":"complete"}"#)
        default: say(&ledger, #"{"id":"\#(id)","type":"subscribe","n":\#(number)}"#)
        }
      if let change = ledger.change(after: effect) { stored.apply(try coded(change)) }
      if number % 50 == 0 {
        let before = stored
        stored = StoredMemory()
        for change in before.changes { stored.apply(try coded(change)) }
        #expect(stored == before)
      }
      #expect(stored.subscriptions.map { $0.payload.bytes.text() } == texts(ledger))
      #expect(stored.subscriptions.map(\.key) == ledger.messages.map(\.key))
    }
  }

  @Test(arguments: UpstreamKind.allCases) func everyKindOfUpstreamCanBeStored(kind: UpstreamKind) throws {
    #expect(try coded(.speaks(kind)) == .speaks(kind))
  }

  private func coded(_ change: MemoryChange) throws -> MemoryChange {
    var coder = JournalCoder(appendingTo: ByteQueue())
    change.write(&coder)
    let bytes = coder.finish()
    var reader = JournalCoder(reading: bytes.bytes)
    let read = MemoryChange(tag: reader.byte(nil), &reader)
    #expect(read == change && reader.rest == 0)
    return try #require(read)
  }

  @Test func aMessageOfMoreThanAMebibyteIsNotExamined() throws {
    var ledger = SubscriptionLedger(try rules { $0.bytes = 4 << 20 })
    func text(_ type: String, _ size: Int) -> String {
      let text = #"{"id":"a","type":"\#(type)","fill":""#
      return text + String(repeating: "x", count: size - text.utf8.count - 2) + "\"}"
    }
    #expect(say(&ledger, text("subscribe", 1 << 20 + 1)) == .none && ledger.count == 0)
    #expect(say(&ledger, text("subscribe", 1 << 20)) == .stored)
    #expect(say(&ledger, text("complete", 1 << 20 + 1)) == .none)
    #expect(hear(&ledger, text("complete", 1 << 20 + 1)) == .none)
    #expect(hear(&ledger, text("complete", 1 << 20)) == .removed)
  }

  /// The gateway has chosen the id of the call. If the ledger kept the message under this id, the client could not
  /// remove it, because it does not know the id.
  @Test func aCallIsNotKeptUnderItsOwnID() throws {
    let id = try #require(JSONPointer("/id"))
    let channel = try #require(JSONPointer("/channel"))
    var ledger = SubscriptionLedger(try rules())
    let call = ByteSlice(ByteString(Array(#"{"id":73016284019255,"type":"subscribe","channel":"a"}"#.utf8)))
    #expect(ledger.sent(call, kind: .text, message: 1, callID: id) == .none && ledger.count == 0)
    #expect(ledger.sent(call, kind: .text, message: 2) == .stored, "a message that is not a call has its client's id")
    var byChannel = SubscriptionLedger(
      try rules {
        $0.add.key = channel
        $0.remove.key = channel
      })
    #expect(
      byChannel.sent(call, kind: .text, message: 3, callID: id) == .stored, "the channel is a key that the client knows"
    )
    // Earlier versions can read the entry.
    #expect(byChannel.messages.map(\.message) == [3] && byChannel.messages.map(\.isCall) == [false])
    #expect(byChannel.sent(call, kind: .text, message: 3, callID: id, isNumbered: true) == .stored)
    #expect(byChannel.messages.map(\.isCall) == [true])
    #expect(ledger.messages.map(\.isCall) == [false])
    let removal = ByteSlice(ByteString(Array(#"{"id":73016284019256,"type":"complete","channel":"a"}"#.utf8)))
    #expect(byChannel.sent(removal, kind: .text, message: 4, callID: id) == .removed)
  }

  @Test func dropsSubscriptionsThatTheRulesNoLongerRecognise() throws {
    var ledger = SubscriptionLedger(try rules())
    let messages = [#"{"id":"a","type":"subscribe"}"#, #"{"id":"b","type":"subscribe","v":2}"#]
    for message in messages { #expect(say(&ledger, message) == .stored) }
    let version = try #require(JSONPointer("/v"))
    let narrower = try rules { $0.add.match = Matcher([.value(version, "2")]) }
    #expect(ledger.change(try rules()).isEmpty)
    #expect(ledger.change(narrower) == [Array("a".utf8)])
    #expect(texts(ledger) == [messages[1]] && ledger.bytes == messages[1].utf8.count + 1)
    #expect(ledger.change(SubscriptionRules()) == [Array("b".utf8)])
    #expect(ledger.count == 0 && ledger.bytes == 0)
    // The rules after a restart.
    for (rules, restored) in [
      (try rules(), [true, true]), (narrower, [false, true]), (SubscriptionRules(), [false, false]),
    ] {
      var next = SubscriptionLedger(rules)
      let results = zip(["a", "b"], messages).map { key, message in
        next.restore(Array(key.utf8), ByteString(Array(message.utf8)), kind: .text)
      }
      #expect(results == restored && next.count == restored.count { $0 })
    }
    var few = SubscriptionLedger(try rules { $0.entries = 1 })
    let isRestored = ["a", "b"].map { key in
      few.restore(Array(key.utf8), ByteString(Array(#"{"id":"\#(key)","type":"subscribe"}"#.utf8)), kind: .text)
    }
    #expect(isRestored == [true, false])
  }

  @Test func ignoresOtherMessages() throws {
    var ledger = SubscriptionLedger(try rules())
    for text in ["hello", "{}", #"{"type":"subscribe"}"#, #"{"type":"ping","id":"a"}"#] {
      #expect(say(&ledger, text) == .none && hear(&ledger, text) == .none)
    }
    #expect(ledger.count == 0)
  }

  @Test func staysWithinItsLimits() throws {
    var few = SubscriptionLedger(try rules { $0.entries = 2 })
    #expect(
      say(&few, #"{"id":1,"type":"subscribe"}"#) == .stored && say(&few, #"{"id":2,"type":"subscribe"}"#) == .stored)
    #expect(say(&few, #"{"id":3,"type":"subscribe"}"#) == .full(.init(.entries, isOfClient: false)))
    #expect(say(&few, #"{"id":2,"type":"subscribe","x":1}"#) == .stored, "a replacement takes no more room")
    #expect(few.count == 2)

    var small = SubscriptionLedger(try rules { $0.bytes = 100 })
    let long = String(repeating: "x", count: 100)
    let tooLarge = SubscriptionLedger.Effect.full(.init(.bytes, isOfClient: false))
    #expect(say(&small, #"{"id":1,"type":"subscribe"}"#) == .stored)
    #expect(say(&small, #"{"id":2,"type":"subscribe","x":"\#(long)"}"#) == tooLarge)
    #expect(say(&small, #"{"id":1,"type":"subscribe","x":"\#(long)"}"#) == tooLarge)
    #expect(
      small.count == 0 && small.bytes == 0, "the replaced message is removed even if the new message does not fit")
  }

  @Test func oneClientCannotUseUpTheSubscriptions() throws {
    var ledger = SubscriptionLedger(try rules { $0.entries = 128 })
    func subscribe(_ id: String, by client: UInt64) -> SubscriptionLedger.Effect {
      say(&ledger, #"{"id":"\#(id)","type":"subscribe"}"#, by: client)
    }
    for id in 0..<128 { #expect(subscribe("first \(id)", by: 1) == .stored) }
    #expect(subscribe("more", by: 1) == .full(.init(.entries, isOfClient: true)))
    for client in 2...9 as ClosedRange<UInt64> {
      #expect(subscribe("a\(client)", by: client) == .stored && subscribe("b\(client)", by: client) == .stored)
      #expect(subscribe("c\(client)", by: client) == .full(.init(.entries, isOfClient: true)))
      #expect(subscribe("a\(client)", by: client) == .stored, "a replacement takes no more room")
    }
    #expect(subscribe("last", by: 10) == .full(.init(.entries, isOfClient: false)), "all have used it up")
    #expect(
      say(&ledger, #"{"id":"a2","type":"complete"}"#, by: 3) == .removed, "another client may remove the subscription")
    #expect(subscribe("d2", by: 2) == .stored && ledger.count == 144)
    // The next process keeps all subscriptions, although it does not know which client has made each of them.
    var next = SubscriptionLedger(ledger.rules)
    let isRestored = ledger.messages.map { next.restore($0.key, $0.payload, kind: $0.kind) }
    #expect(isRestored.allSatisfy { $0 } && next.count == 144)
  }

  @Test func theBytesOfSubscriptionsHaveAReserve() throws {
    var ledger = SubscriptionLedger(try rules { $0.bytes = 6_400 })
    let long = String(repeating: "x", count: 6_300)
    #expect(say(&ledger, #"{"id":1,"type":"subscribe","x":"\#(long)"}"#, by: 1) == .stored)
    let full = SubscriptionLedger.Effect.full(.init(.bytes, isOfClient: true))
    #expect(say(&ledger, #"{"id":2,"type":"subscribe","x":"\#(long.prefix(60))"}"#, by: 1) == full)
    #expect(say(&ledger, #"{"id":3,"type":"subscribe","x":"\#(long.prefix(60))"}"#, by: 2) == .stored)
    #expect(say(&ledger, #"{"id":4,"type":"subscribe","x":"\#(long.prefix(60))"}"#, by: 2) == full)
  }

  /// After thousands of changes, the ledger has exactly the last message of each key.
  @Test func keepsTheLastMessageOfEachKey() throws {
    var ledger = SubscriptionLedger(try rules { $0.entries = 64 })
    var expected: [Int: Int] = [:]
    for round in 0..<5_000 {
      let key = (round * 7_919) % 64
      if round % 5 == 0 {
        _ = say(&ledger, #"{"id":\#(key),"type":"complete"}"#)
        expected[key] = nil
      } else {
        _ = say(&ledger, #"{"id":\#(key),"type":"subscribe","n":\#(round)}"#)
        expected[key] = round
      }
    }
    let wanted = expected.sorted { $0.value < $1.value }.map {
      #"{"id":\#($0.key),"type":"subscribe","n":\#($0.value)}"#
    }
    #expect(texts(ledger) == wanted)
  }
}
