import ByteStreams
import Deflate
import JSONCodec
import Testing

@testable import UpstreamProtocol

@Suite struct MessageMeaningTests {
  private func pointer(_ text: String) throws -> JSONPointer { try #require(JSONPointer(text)) }

  private func matches(_ text: String, _ conditions: Matcher.Condition...) -> Bool {
    Matcher(conditions).matches(Array(text.utf8).span)
  }

  @Test func comparesTheWholeText() {
    #expect(matches("pong", .text("pong")))
    #expect(!matches("pong ", .text("pong")) && !matches("pon", .text("pong")) && !matches("", .text("pong")))
    #expect(matches("pong 1", .prefix("pong")) && !matches("pon", .prefix("pong")) && matches("x", .prefix("")))
  }

  private func contains(_ message: [UInt8], _ pattern: TextPattern) -> Bool { pattern.isContained(in: message.span) }

  @Test(arguments: ["b", "ab", "aab", "abaab", "aabaaab", "é", "\u{0}", "tick \u{1F600}"])
  func findsATextAtEveryPosition(text: String) {
    let pattern = TextPattern(text)
    let bytes = Array(text.utf8)
    // Compares the search with a slow search, in all texts of six letters, alone and around the searched text.
    for number in 0..<729 {
      let letters = [1, 3, 9, 27, 81, 243].map { UInt8(ascii: "a") + UInt8(number / $0 % 3) }
      for message in [letters, letters + bytes + letters, letters + bytes.dropLast(), bytes + letters] {
        let isContained = message.indices.contains { message[$0...].starts(with: bytes) }
        #expect(contains(message, pattern) == isContained)
      }
    }
    #expect(!contains([], pattern))
    #expect(matches("<a \(text)>", .prefix("<a"), .contains(pattern)) && !matches("<a>", .contains(pattern)))
  }

  /// A simple search would take time proportional to the product of both lengths.
  @Test func searchesALongMessageForALongTextInLinearTime() {
    let pattern = TextPattern(String(repeating: "a", count: 1 << 16) + "b")
    let message = [UInt8](repeating: UInt8(ascii: "a"), count: 1 << 20)
    #expect(!contains(message, pattern))
    #expect(contains(message + [UInt8(ascii: "b")], pattern))
  }

  @Test func comparesValuesInJSON() throws {
    let type = try pointer("/type")
    let operation = try pointer("/op")
    let ping = try pointer("/ping")
    #expect(matches(#"{"id":1,"type":"auth_ok"}"#, .value(type, "auth_ok")))
    #expect(matches(#"{"type":"auth\u005fok"}"#, .value(type, "auth_ok")))
    #expect(!matches(#"{"type":"auth_ok "}"#, .value(type, "auth_ok")) && !matches("auth_ok", .value(type, "auth_ok")))
    #expect(matches(#"{"op":2}"#, .value(operation, "2")) && !matches(#"{"op":20}"#, .value(operation, "2")))
    #expect(matches(#"{"result":null}"#, .value(try pointer("/result"), "null")))
    #expect(matches(#"{"id":"hb-7"}"#, .valuePrefix(try pointer("/id"), "hb-")))
    #expect(matches(#"{"ping":0}"#, .present(ping)) && !matches("{}", .present(ping)))
  }

  @Test func needsEveryCondition() throws {
    let event = try pointer("/event")
    let channel = try pointer("/channel")
    #expect(matches(#"{"event":"a","channel":"b"}"#, .value(event, "a"), .value(channel, "b")))
    #expect(!matches(#"{"event":"a"}"#, .value(event, "a"), .value(channel, "b")))
  }

  @Test func needsOneAlternative() throws {
    let type = try pointer("/type")
    let matcher = Matcher(anyOf: [[.text("pong")], [.value(type, "error"), .present(try pointer("/id"))]])
    for (text, isMatch) in [
      ("pong", true), (#"{"type":"error","id":"1"}"#, true), (#"{"type":"error"}"#, false), ("x", false),
    ] {
      #expect(matcher.matches(Array(text.utf8).span) == isMatch, "\(text)")
    }
  }

  @Test(arguments: [
    ("subscription { price }", true), ("subscription{price}", true),
    ("subscription Prices($of: [ID!]) @live { p }", true),
    ("\n\t , subscription { price }", true), ("\u{FEFF}subscription { price }", true),
    ("# the prices\r\n#more\nsubscription { price }", true),
    ("fragment F on P { a } subscription { p { ...F } }", true),
    ("subscription { p } fragment F on P { a { b } }", true),
    ("subscription A { a } subscription B { b }", true),
    (#"subscription { p(text: "} mutation {", more: {a: [1]}) }"#, true),
    (#"subscription { p(text: "\" } mutation {") }"#, true),
    (#"subscription($a: In = {b: "}"}) { p }"#, true),
    (##"subscription { p(text: """ " } \""" mutation { # """) }"##, true),
    ("mutation { buy }", false), ("{ price }", false), ("query { subscription }", false),
    ("query subscription { a }", false), ("subscriptions { a }", false), ("subscription_ { a }", false),
    ("subscription A { a } mutation B { b }", false), ("mutation B { b } subscription A { a }", false),
    ("{ a } subscription A { a }", false), ("# subscription\nmutation { buy }", false),
    (#""""subscription""" mutation { buy }"#, false), ("fragment F on P { a }", false),
    ("subscription { price", false), ("subscription } mutation { buy }", false), ("(a) subscription { a }", false),
    ("", false), ("subscription", false), ("#subscription {", false), (#"subscription { a(b: "} mutation {b}"#, false),
  ])
  func findsTheOperationsOfAGraphQLDocument(document: String, isSubscription: Bool) throws {
    let bytes = Array(document.utf8)
    #expect(GraphQLOperation.subscription.isOnlyOne(in: bytes.span) == isSubscription)
    var json = ByteQueue()
    json.append("{\"query\":")
    json.append(jsonString: document)
    json.append("}")
    let matcher = Matcher([.graphQL(try pointer("/query"), .subscription)])
    #expect(matcher.matches(json.bytes) == isSubscription)
    // The check ends for every prefix of the document.
    for end in bytes.indices { _ = GraphQLOperation.subscription.isOnlyOne(in: bytes.span.extracting(..<end)) }
  }

  @Test func distinguishesPushesFromMessagesForTheSession() throws {
    var conventions = UpstreamConventions()
    #expect(!conventions.examinesMessages)
    var step = UpstreamConventions.OpeningMessage()
    step.expect = Matcher([.value(try pointer("/type"), "ok")])
    step.refuse = Matcher([.value(try pointer("/type"), "no")])
    conventions.onOpen = [step]
    conventions.server.match = Matcher([.present(try pointer("/ping"))])
    conventions.client.expect = Matcher([.text("pong")])
    #expect(conventions.examinesMessages)
    func meaning(_ text: String, awaited: Int? = nil) -> MessageMeaning {
      conventions.meaning(of: Array(text.utf8).span, awaited: awaited)
    }
    #expect(meaning(#"{"type":"ok"}"#, awaited: 0) == .setupResponse)
    #expect(meaning(#"{"type":"no"}"#, awaited: 0) == .refusal)
    #expect(meaning(#"{"type":"ok"}"#) == .push, "no step waits for the message")
    #expect(meaning(#"{"ping":1}"#, awaited: 0) == .heartbeat)
    #expect(meaning("pong") == .heartbeatResponse)
    #expect(meaning("news") == .push)
  }

  @Test func readsTheCursorFromPushes() throws {
    var conventions = UpstreamConventions()
    func cursor(_ text: String) -> [UInt8]? { conventions.cursor(in: Array(text.utf8).span) }
    #expect(cursor(#"{"seq":1}"#) == nil)
    conventions.cursor.pointer = try pointer("/seq")
    #expect(cursor(#"{"seq":17}"#) == Array("17".utf8))
    #expect(cursor(#"{"seq":"a-1"}"#) == Array("a-1".utf8))
    let long = String(repeating: "x", count: UpstreamConventions.CursorSource.maximumBytes + 1)
    #expect(cursor(#"{"seq":"\#(long)"}"#) == nil)
    conventions.cursor.match = Matcher([.value(try pointer("/kind"), "event")])
    #expect(cursor(#"{"seq":17}"#) == nil)
    #expect(cursor(#"{"kind":"event","seq":18}"#) == Array("18".utf8))
  }
}

@Suite struct PayloadDecoderTests {
  /// `{"ping":1}`, compressed by Python's gzip, zlib, and zlib with negative window bits.
  private static let gzip: [UInt8] = [
    0x1F, 0x8B, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xAB, 0x56, 0x2A, 0xC8, 0xCC, 0x4B, 0x57, 0xB2, 0x32,
    0xAC, 0x05, 0x00, 0x2D, 0xEC, 0x98, 0x21, 0x0A, 0x00, 0x00, 0x00,
  ]
  private static let zlib: [UInt8] = [
    0x78, 0x9C, 0xAB, 0x56, 0x2A, 0xC8, 0xCC, 0x4B, 0x57, 0xB2, 0x32, 0xAC, 0x05, 0x00, 0x13, 0x15, 0x03, 0x56,
  ]
  private static let bare: [UInt8] = [0xAB, 0x56, 0x2A, 0xC8, 0xCC, 0x4B, 0x57, 0xB2, 0x32, 0xAC, 0x05, 0x00]
  private static let plain = Array(#"{"ping":1}"#.utf8)

  private func decode(
    _ codec: PayloadCodec, _ payload: [UInt8], limit: Int = 1 << 20
  ) -> (PayloadDecoder.Outcome, [UInt8]) {
    var decoder = PayloadDecoder(codec, limit: limit)
    // Twice, since one decoder serves all messages.
    _ = decoder.decode(payload.span)
    let outcome = decoder.decode(payload.span)
    return (outcome, outcome == .decompressed ? [UInt8](copying: decoder.decompressed) : [])
  }

  @Test(
    arguments: [
      (.gzip, gzip), (.deflate, zlib), (.deflate, bare), (.auto, gzip), (.auto, zlib),
    ] as [(PayloadCodec, [UInt8])])
  func unpacksPayloads(codec: PayloadCodec, payload: [UInt8]) {
    let (outcome, bytes) = decode(codec, payload)
    #expect(outcome == .decompressed && bytes == Self.plain)
  }

  @Test func leavesOtherPayloadsUnchanged() {
    #expect(decode(.raw, Self.gzip).0 == .notCompressed)
    #expect(decode(.auto, Self.plain).0 == .notCompressed)
    #expect(decode(.auto, []).0 == .notCompressed)
  }

  @Test(
    arguments: [
      (.gzip, plain), (.gzip, []), (.gzip, zlib), (.gzip, Array(gzip.dropLast())), (.gzip, gzip + [1]), (.deflate, []),
      (.deflate, [0xFF, 0xFF]), (.auto, Array(gzip.prefix(12))),
    ] as [(PayloadCodec, [UInt8])])
  func reportsMalformedPackedPayloads(codec: PayloadCodec, payload: [UInt8]) {
    #expect(decode(codec, payload).0 == .malformed)
  }

  /// Attack: a few bytes decompress to many. The decoder stops at its limit.
  @Test func stopsUnpackingAtTheLimit() {
    var deflater = Deflater(.gzip)
    var bomb = ByteQueue()
    let zeros = [UInt8](repeating: 0, count: 1 << 20)
    deflater.compress(zeros.span, into: &bomb)
    deflater.finish(into: &bomb)
    let (outcome, _) = decode(.gzip, bomb.copyBytes(), limit: 64 << 10)
    #expect(outcome == .tooLarge)
    #expect(decode(.gzip, bomb.copyBytes(), limit: 1 << 20).0 == .decompressed)
  }
}
