import ByteStreams
import Calls
import JSONCodec
import Testing

@testable import UpstreamProtocol

@Suite struct NumberedIDsTests {
  private let correlation = Correlation.jsonRPC(.sequence)
  private let first = CallID(.string, random: 1)
  private let second = CallID(.number, random: 2)

  private func request(_ id: CallID) -> String {
    #"{"jsonrpc":"2.0","id":\#(String(decoding: id.token, as: UTF8.self)),"method":"m"}"#
  }

  /// The message as it is sent.
  private func sent(_ text: String, _ ids: inout NumberedIDs, isCall: Bool = true) -> String {
    let bytes = Array(text.utf8)
    guard let (range, number) = ids.number(bytes.span, isCall: isCall) else { return text }
    return String(decoding: bytes[..<range.lowerBound], as: UTF8.self) + "\(number)"
      + String(decoding: bytes[range.upperBound...], as: UTF8.self)
  }

  private func call(_ text: String, _ ids: inout NumberedIDs) -> CallID? { ids.reply(Array(text.utf8).span)?.call }

  @Test func callsAndOtherMessagesAreNumberedInTheirOrder() {
    var ids = NumberedIDs(correlation)
    #expect(sent(request(first), &ids) == #"{"jsonrpc":"2.0","id":1,"method":"m"}"#)
    #expect(sent(#"{"id": 77 }"#, &ids) == #"{"id": 2 }"# && sent(#"{"id":-1.5e3}"#, &ids) == #"{"id":3}"#)
    #expect(ids.next() == 4)
    #expect(sent(request(second), &ids) == #"{"jsonrpc":"2.0","id":5,"method":"m"}"#)
    #expect(call(#"{"id":5,"result":1}"#, &ids) == second && call(#"{"id":1,"error":{}}"#, &ids) == first)
  }

  /// A client may choose an id of the form that the gateway gives to calls.
  @Test func messagesThatAreNoCallsAreNotNumberedAsCalls() {
    var ids = NumberedIDs(correlation)
    #expect(sent(request(first), &ids, isCall: false) == request(first))
    #expect(sent(request(second), &ids, isCall: false) == #"{"jsonrpc":"2.0","id":1,"method":"m"}"#)
    #expect(ids.takeAssigned().isEmpty && call(#"{"id":1,"result":1}"#, &ids) == nil)
  }

  @Test(arguments: [
    #"{"method":"m"}"#, #"{"id":"a"}"#, #"{"id":null}"#, #"{"id":[1]}"#, "hello", "", #"{"id":"#,
    // A client's response to a request of the upstream.
    #"{"id":7,"result":true}"#, #"{"id":"00000000-0000-4000-8000-000000000007","error":{}}"#,
  ])
  func otherMessagesStayAsTheyAre(text: String) {
    var ids = NumberedIDs(correlation)
    #expect(sent(text, &ids) == text && ids.next() == 1)
  }

  @Test func onlyTheFirstReplyToACallIsItsReply() {
    var ids = NumberedIDs(correlation)
    #expect(call(#"{"id":1,"result":1}"#, &ids) == nil)
    _ = sent(request(first), &ids)
    // No reply, a reply with another id, or an id in a form that the gateway does not write.
    for text in [
      #"{"id":1,"method":"event"}"#, #"{"id":2,"result":1}"#, #"{"id":"1","result":1}"#, #"{"id":1.0,"result":1}"#,
      #"{"id":4294967297,"result":1}"#, #"{"id":-1,"result":1}"#, #"{"id":1,"id":1,"result":1}"#,
    ] {
      #expect(call(text, &ids) == nil, "\(text)")
    }
    #expect(call(#"{"result":1,"id":1}"#, &ids) == first && call(#"{"result":1,"id":1}"#, &ids) == nil)
  }

  @Test func anAcknowledgementLeavesTheCallOpen() throws {
    let ack = try #require(JSONPointer("/ack"))
    var ids = NumberedIDs(.jsonRPC(.sequence, ignore: Matcher([.present(ack)])))
    _ = sent(request(first), &ids)
    let match = ids.reply(Array(#"{"id":1,"ack":true}"#.utf8).span)
    #expect(match?.isIgnored == true && match?.call == first)
    #expect(call(#"{"id":1,"result":1}"#, &ids) == first)
  }

  @Test func aConnectionIsReplacedBeforeItsNumbersAreUsedUp() {
    var ids = NumberedIDs(correlation, after: NumberedIDs.largest - 65_538)
    #expect(ids.next() == NumberedIDs.largest - 65_537 && !ids.takeExhaustion())
    _ = ids.next()
    #expect(ids.takeExhaustion() && !ids.takeExhaustion())
    for _ in 0..<65_536 { _ = ids.next() }
    #expect(ids.next() == 1)
  }

  /// An upstream that never replies does not make the table grow. A call whose client still waits is not forgotten.
  @Test func callsWithoutAReplyAreForgottenWhenTheyHaveEnded() {
    var ids = NumberedIDs(correlation)
    _ = sent(request(first), &ids)
    var forgets = 0
    for number in 0..<100_000 as Range<UInt64> {
      _ = sent(request(CallID(.string, random: UInt128(number) << 64)), &ids)
      if ids.isFull {
        forgets += 1
        ids.forget { $0 == first }
      }
    }
    #expect(forgets == 100_000 / NumberedIDs.limit && call(#"{"id":1,"result":1}"#, &ids) == first)
  }
}
