import ByteStreams
import TestSupport
import Testing

@testable import RESPCodec

@Suite struct RESPReaderTests {
  /// The replies, followed by `incomplete` or the error, if there is one.
  private func read(_ pieces: [[UInt8]], _ limits: RESPLimits = RESPLimits()) -> [String] {
    var reader = RESPReader(limits: limits)
    var input = ByteQueue()
    var events: [String] = []
    do throws(RESPProtocolError) {
      for piece in pieces {
        input.append(piece)
        while let reply = try reader.next(from: &input) { events.append(Self.text(of: reply)) }
      }
    } catch {
      return events + ["\(error)"]
    }
    return input.isEmpty && !reader.isInsideReply ? events : events + ["incomplete"]
  }

  private static func text(of reply: RESPReply) -> String {
    switch reply {
    case .simple(let text): "+\(text)"
    case .error(let text): "-\(text)"
    case .integer(let value): ":\(value)"
    case .bulk(let bytes): "$\(String(decoding: bytes, as: UTF8.self))"
    case .null: "nil"
    case .array(let elements): "[\(elements.map(text).joined(separator: " "))]"
    }
  }

  @Test(arguments: [
    ("+OK\r\n", ["+OK"]),
    ("+\r\n", ["+"]),
    ("-READONLY You can't write\r\n", ["-READONLY You can't write"]),
    (":0\r\n:-1\r\n:+7\r\n", [":0", ":-1", ":7"]),
    (":9223372036854775807\r\n:-9223372036854775808\r\n", [":9223372036854775807", ":-9223372036854775808"]),
    ("$5\r\nhello\r\n$0\r\n\r\n", ["$hello", "$"]),
    ("$4\r\n\r\n\r\n\r\n+OK\r\n", ["$\r\n\r\n", "+OK"]),
    ("$-1\r\n*-1\r\n", ["nil", "nil"]),
    ("*0\r\n*2\r\n:1\r\n$1\r\na\r\n", ["[]", "[:1 $a]"]),
    ("*2\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nk\r\n$-1\r\n*0\r\n+OK\r\n", ["[[$1-1 [$k nil]] []]", "+OK"]),
    ("*1\r\n-NOSCRIPT No matching script.\r\n", ["[-NOSCRIPT No matching script.]"]),
    ("*2\r\n:1\r\n", ["incomplete"]),
    ("$3\r\nab", ["incomplete"]),
    ("+OK\r\n$3", ["+OK", "incomplete"]),
  ])
  func readsRepliesHoweverTheyAreSplit(text: String, expected: [String]) {
    expectEvents(expected, from: text) { read($0) }
  }

  @Test(arguments: [
    ("HTTP/1.1 400 Bad Request\r\n", RESPProtocolError.unknownType(UInt8(ascii: "H"))),
    // Types of version 3, which is never requested.
    ("_\r\n", .unknownType(UInt8(ascii: "_"))),
    (">1\r\n", .unknownType(UInt8(ascii: ">"))),
    ("+OK\n", .malformedLine),
    ("+O\rK\r\n", .malformedLine),
    ("+OK\r\r\n", .malformedLine),
    (":\r\n", .malformedInteger),
    (":1.5\r\n", .malformedInteger),
    (":+-5\r\n", .malformedInteger),
    (":9223372036854775808\r\n", .malformedInteger),
    (":-9223372036854775809\r\n", .malformedInteger),
    ("$\r\n", .malformedLength),
    ("$-2\r\n", .malformedLength),
    ("$+1\r\n", .malformedLength),
    ("$1 \r\n", .malformedLength),
    ("*99999999999999999999\r\n", .malformedLength),
    ("$9223372036854775807\r\n", .replyTooLarge(limit: 32 << 20)),
    ("*9223372036854775807\r\n", .tooManyElements(limit: 262_144)),
    ("$2\r\nabcd", .missingLineEnd),
    ("$2\r\nab\n\n", .missingLineEnd),
    (String(repeating: "*1\r\n", count: 9), .tooDeep(limit: 8)),
  ])
  func refusesAnInvalidReply(text: String, error: RESPProtocolError) {
    expectEvents(["\(error)"], from: text) { read($0) }
    expectEvents(["+OK", "\(error)"], from: "+OK\r\n" + text) { read($0) }
  }

  /// Attack: a reply that grows endlessly, in each of its dimensions.
  @Test func aReplyHasLimits() {
    var limits = RESPLimits()
    limits.lineBytes = 8
    limits.replyBytes = 40
    limits.elements = 4
    limits.depth = 2
    let cases: [(String, [String])] = [
      ("+1234567\r\n", ["+1234567"]),
      ("+12345678\r\n", ["\(RESPProtocolError.lineTooLong(limit: 8))"]),
      ("+12345678\r", ["\(RESPProtocolError.lineTooLong(limit: 8))"]),
      ("+1234567\r", ["incomplete"]),
      ("$33\r\n" + String(repeating: "x", count: 33) + "\r\n", ["$" + String(repeating: "x", count: 33)]),
      ("$34\r\n", ["\(RESPProtocolError.replyTooLarge(limit: 40))"]),
      ("*2\r\n$12\r\n123456789012\r\n$13\r\n", ["\(RESPProtocolError.replyTooLarge(limit: 40))"]),
      ("*2\r\n*1\r\n:1\r\n*1\r\n:2\r\n", ["[[:1] [:2]]"]),
      ("*2\r\n*2\r\n:1\r\n:2\r\n*1\r\n", ["\(RESPProtocolError.tooManyElements(limit: 4))"]),
      ("*1\r\n*1\r\n*0\r\n", ["\(RESPProtocolError.tooDeep(limit: 2))"]),
    ]
    for (text, expected) in cases { expectEvents(expected, from: text) { read($0, limits) } }
    // The limits apply to each reply separately.
    expectEvents(
      Array(repeating: "[:1 :2 :3]", count: 5), from: String(repeating: "*3\r\n:1\r\n:2\r\n:3\r\n", count: 5)
    ) {
      read($0, limits)
    }
  }

  /// Attack: a header that announces more than ever arrives.
  @Test func storageGrowsWithReceivedBytesAndNotWithAnnouncedLengths() throws {
    var reader = RESPReader()
    var input = ByteQueue()
    input.append("*262144\r\n$33000000\r\n")
    #expect(try reader.next(from: &input) == nil)
    #expect(input.isEmpty && input.allocatedBytes <= 256)
    #expect(reader.allocatedElements <= 128)
  }

  @Test func repliesOfOneKindAreRead() {
    #expect(RESPReply.integer(7).integer == 7 && RESPReply.simple("7").integer == nil)
    #expect(RESPReply.bulk([0x61]).text == "a" && RESPReply.simple("OK").text == "OK" && RESPReply.null.text == nil)
    #expect(RESPReply.bulk([0xFF]).bytes == [0xFF] && RESPReply.simple("OK").bytes == nil)
    #expect(RESPReply.array([.null]).elements == [.null] && RESPReply.null.elements == nil)
  }
}
