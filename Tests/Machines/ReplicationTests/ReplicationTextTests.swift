import ByteStreams
import RedisProtocol
import Testing

@testable import Replication

/// The texts that gateways write to Redis, and the texts that they accept.
@Suite struct ReplicationTextTests {
  private func text(_ write: (inout ByteQueue) -> Void) -> String {
    var output = ByteQueue()
    write(&output)
    return output.bytes.text()
  }

  private let term = HolderTerm(counter: 7, random: 0x89AB_CDEF)

  @Test func aTokenIsWrittenAndReadWhole() {
    let token = HolderToken(term: term, gateway: GatewayID(0xA), bits: 1)
    let written = text { token.write(into: &$0) }
    #expect(written == "0000000789abcdef:00000000000a:0000000000000001")
    #expect(HolderToken(Array(written.utf8).span) == token)
    for wrong in [
      "", String(written.dropLast()), written + "0", written.uppercased(), written.replacing(":", with: "-"),
      "0000000089abcdef" + written.dropFirst(16), "f000000789abcdef" + written.dropFirst(16),
    ] {
      #expect(HolderToken(Array(wrong.utf8).span) == nil, "\(wrong)")
    }
  }

  @Test func termsAreWrittenAndReadInTheirOrder() {
    var terms = HolderTerms()
    #expect(HolderTerms(Span()) == terms)
    for counter in 1...UInt32(HolderTerms.maximum + 1) {
      terms.append(.init(HolderTerm(counter: counter, random: 1), firstPush: UInt64(counter) * 2))
    }
    #expect(terms.begins.count == HolderTerms.maximum)
    let written = text { terms.write(into: &$0) }
    #expect(HolderTerms(Array(written.utf8).span) == terms)
    let one = "0000000200000001@4"
    for wrong in [
      one + " ", " " + one, one + " " + one, "0000000200000001", "0000000200000001@", "0000000200000001@0",
      "0000000200000001@x", one + " 0000000300000001@3", written + " 0000006000000001@999",
    ] {
      #expect(HolderTerms(Array(wrong.utf8).span) == nil, "\(wrong)")
    }
  }

  @Test func aListOfTermsExtendsAnyListThatItContains() {
    let one = HolderTerms().appending(HolderTerm(counter: 1, random: 1), firstPush: 1)
    let two = one.appending(HolderTerm(counter: 2, random: 1), firstPush: 10)
    #expect(two.extend(HolderTerms(), endingAt: 0) && two.extend(two, endingAt: 99) && two.extend(one, endingAt: 9))
    #expect(two.appending(HolderTerm(counter: 3, random: 1), firstPush: 5).begins.map(\.firstPush) == [1, 5])
    #expect(!two.extend(one, endingAt: 10) && !one.extend(two, endingAt: 10))
    #expect(!two.extend(one.appending(HolderTerm(counter: 2, random: 2), firstPush: 10), endingAt: 9))
  }

  @Test func anEntryOfALaterVersionIsRead() {
    var entry = GatewayEntry(
      beat: 12, history: "ab", lease: .milliseconds(2500), isDraining: true, address: "http://10.0.0.1:8080")
    entry.configuration = "cd"
    let written = text { entry.write(into: &$0) }
    #expect(
      written == "beat=12 history=ab lease=2500 format=1 draining=1 address=http://10.0.0.1:8080 configuration=cd")
    #expect(GatewayEntry(Array((written + " colour=blue").utf8).span) == entry)
    entry.unreachable = [GatewayID(1), GatewayID(0xABC)]
    let naming = text { entry.write(into: &$0) }
    #expect(naming == written + " unreachable=000000000001,000000000abc")
    #expect(GatewayEntry(Array(naming.utf8).span) == entry)
    func lease(_ text: String) -> TimeSpan? { GatewayEntry(Array(text.utf8).span)?.lease }
    #expect(lease("beat=1 history=ab") == .seconds(5), "earlier versions have no other one")
    #expect(lease("beat=1 history=ab lease=4000000000000000000") == TenureTimes.longestTenure)
    for wrong in [
      "", "history=ab", "beat=x", "beat=1 draining", "beat=1 lease=-1", "beat=1 unreachable=1",
      "beat=1 " + String(repeating: "x=1 ", count: 300),
    ] {
      #expect(GatewayEntry(Array(wrong.utf8).span) == nil, "\(wrong)")
    }
  }

  @Test func aRecordIsReadAsItIsStored() {
    let fields: [String?] = [
      "0000000789abcdef:00000000000a:0000000000000001", "ab", "5", "00000000000c", "0000000789abcdef@3",
      "00000000000b", "1", "8",
    ]
    func record(_ fields: [String?], last: String? = "4-2") -> SharedRecord? {
      SharedRecord(fields: fields.map { $0.map { Array($0.utf8) } }, lastEntry: last.map { Array($0.utf8) })
    }
    let token = HolderToken(term: term, gateway: GatewayID(0xA), bits: 1)
    #expect(
      record(fields)
        == SharedRecord(
          token: token, history: "ab", sequence: 5, epoch: 0xC, terms: HolderTerms().appending(term, firstPush: 3),
          counter: 8, successor: GatewayID(0xB), last: PushEntryID(push: 4, count: 2)))
    #expect(record(Array(repeating: nil, count: 8), last: nil)?.isNew == true)
    for index in fields.indices {
      var damaged = fields
      damaged[index] = "?\u{1}"
      #expect(record(damaged) == nil, "field \(index)")
    }
    #expect(record(fields, last: "4") == nil && record(fields, last: "-1") == nil && record([]) == nil)
  }

  @Test func gatewaysAgreeOnAnOrderThatDiffersBySession() {
    let gateways = (1...5).map { GatewayID($0 &* 0x1234_5678_9ABC) }
    let first = Set((0..<100).compactMap { GatewayID.order(of: gateways, for: "session-\($0)").first })
    #expect(first.count == gateways.count)
    let order = GatewayID.order(of: gateways, for: "s")
    #expect(order == GatewayID.order(of: gateways.reversed(), for: "s"))
    #expect(order.filter { $0 != order[0] } == GatewayID.order(of: gateways.filter { $0 != order[0] }, for: "s"))
  }

  /// The number of keys equals the number in the first lines of the script.
  @Test func aScriptHasTheKeysThatItNames() throws {
    #expect(Set(ReplicationScript.all.map(\.script)).count == ReplicationScript.all.count)
    for script in ReplicationScript.all {
      let keys = try #require(script.script.text.firstMatch(of: /\n-- KEYS ([^\n]+)\n/)).1.split(separator: " ")
      #expect(keys.count == script.keyCount)
      let used = Set(script.script.text.matches(of: /KEYS\[(\d)\]/).compactMap { Int($0.1) })
      #expect(used == Set(1...script.keyCount))
    }
  }
}
