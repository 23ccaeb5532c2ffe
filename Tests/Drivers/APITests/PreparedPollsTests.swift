import ByteStreams
import HTTPCodec
import HTTPServer
import Inbox
import Testing

@testable import API

@Suite struct PreparedPollsTests {
  private static func key(
    _ sequence: UInt64, limit: Int32 = 100, revision: UInt64 = 1, inbox: UInt64 = 7,
    coding: HTTPAcceptedCodings = .identity
  ) -> PreparedPolls.Key {
    PreparedPolls.Key(
      inbox: Epoch(inbox), start: ReadStart(Cursor(epoch: Epoch(7), sequence: sequence)),
      options: PollOptions(limit: limit, maxBytes: 1000, wait: 0, coding: coding), revision: revision)
  }

  private static func note(
    _ key: PreparedPolls.Key, _ text: String, isCompressed: Bool = false, in polls: inout PreparedPolls
  ) -> PreparedResponse? {
    var response = Response()
    response.content.text.append("[")
    response.content.append(ByteSlice(ByteString(Array(text.utf8))))
    response.content.text.append("]")
    return polls.note(key, response, messages: 3, arrival: nil, isCompressed: isCompressed)
  }

  @Test func keepsAResponseOnceItIsRequestedTwice() {
    var polls = PreparedPolls()
    #expect(Self.note(Self.key(1), "body", in: &polls) == nil)
    #expect(polls.find(Self.key(1)) == nil)
    let kept = Self.note(Self.key(1), "body", in: &polls)
    let content = kept?.content
    let text = content.map { String(decoding: [UInt8](copying: $0.bytes), as: UTF8.self) }
    #expect(text == "[body]")
    #expect(polls.find(Self.key(1))?.response === kept)
    #expect(polls.find(Self.key(1))?.messages == 3)
  }

  @Test func usesAResponseForNoOtherRequest() {
    var polls = PreparedPolls()
    for _ in 0..<2 { _ = Self.note(Self.key(1), "body", in: &polls) }
    #expect(polls.find(Self.key(2)) == nil)
    #expect(polls.find(Self.key(1, limit: 1)) == nil)
    #expect(polls.find(Self.key(1, revision: 2)) == nil)
    #expect(polls.find(Self.key(1, inbox: 8)) == nil)
  }

  @Test func clientsThatTakeTurnsGetTheSameResponse() {
    var polls = PreparedPolls()
    for _ in 0..<2 {
      _ = Self.note(Self.key(1), "plain", in: &polls)
      _ = Self.note(Self.key(1, coding: .gzip), "packed", in: &polls)
    }
    #expect(polls.find(Self.key(1)) != nil && polls.find(Self.key(1, coding: .gzip)) != nil)
    #expect(polls.find(Self.key(1))?.response !== polls.find(Self.key(1, coding: .gzip))?.response)
  }

  @Test func aCompressedResponseIsKeptAtOnce() {
    var polls = PreparedPolls()
    #expect(Self.note(Self.key(1, coding: .gzip), "packed", isCompressed: true, in: &polls) != nil)
    #expect(polls.find(Self.key(1, coding: .gzip)) != nil)
  }

  @Test func theOldestOfManyKeysIsReplaced() {
    var polls = PreparedPolls()
    for sequence in 1...5 as ClosedRange<UInt64> {
      for _ in 0..<2 { _ = Self.note(Self.key(sequence), "body", in: &polls) }
    }
    #expect(polls.find(Self.key(1)) == nil)
    for sequence in 2...5 as ClosedRange<UInt64> { #expect(polls.find(Self.key(sequence)) != nil) }
  }

  @Test func keepsNoLargeResponse() {
    var polls = PreparedPolls()
    let large = String(repeating: "a", count: 300_000)
    for _ in 0..<3 { #expect(Self.note(Self.key(1), large, in: &polls) == nil) }
    #expect(polls.find(Self.key(1)) == nil)
  }
}
