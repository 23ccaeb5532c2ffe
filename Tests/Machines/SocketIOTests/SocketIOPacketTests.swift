import ByteStreams
import Testing

@testable import SocketIO

@Suite struct SocketIOPacketTests {
  private func parse(_ text: String, limits: SocketIOLimits = SocketIOLimits()) throws -> ParsedPacket {
    try ParsedPacket(text, limits)
  }

  /// The examples from both protocol documents.
  @Test(
    arguments: [
      ("0", .connect, 0, "", nil, ""), ("0/admin,", .connect, 0, "/admin", nil, ""),
      ("0/admin", .connect, 0, "/admin", nil, ""),
      ("0/admin,{\"sid\":\"oSO0OpakMV_3jnilAAAA\"}", .connect, 0, "/admin", nil, "{\"sid\":\"oSO0OpakMV_3jnilAAAA\"}"),
      ("0/admin?token=1234&uid=abcd,", .connect, 0, "/admin?token=1234&uid=abcd", nil, ""),
      ("4{\"message\":\"Not authorized\"}", .connectError, 0, "", nil, "{\"message\":\"Not authorized\"}"),
      ("4/admin,\"Not authorized\"", .connectError, 0, "/admin", nil, "\"Not authorized\""),
      ("2[\"foo\"]", .event, 0, "", nil, "[\"foo\"]"), ("2/admin,[\"bar\"]", .event, 0, "/admin", nil, "[\"bar\"]"),
      ("2[\"hello\",1]", .event, 0, "", nil, "[\"hello\",1]"),
      ("2/admin,456[\"project:delete\",123]", .event, 0, "/admin", 456, "[\"project:delete\",123]"),
      ("212[\"foo\"]", .event, 0, "", 12, "[\"foo\"]"),
      ("3/admin,13[\"bar\"]", .acknowledgement, 0, "/admin", 13, "[\"bar\"]"),
      ("3/admin,456[]", .acknowledgement, 0, "/admin", 456, "[]"),
      (
        "51-[\"baz\",{\"_placeholder\":true,\"num\":0}]", .binaryEvent, 1, "", nil,
        "[\"baz\",{\"_placeholder\":true,\"num\":0}]"
      ),
      (
        "52-/admin,[\"baz\",{\"_placeholder\":true,\"num\":0},{\"_placeholder\":true,\"num\":1}]", .binaryEvent, 2,
        "/admin", nil, "[\"baz\",{\"_placeholder\":true,\"num\":0},{\"_placeholder\":true,\"num\":1}]"
      ),
      (
        "61-15[\"bar\",{\"_placeholder\":true,\"num\":0}]", .binaryAcknowledgement, 1, "", 15,
        "[\"bar\",{\"_placeholder\":true,\"num\":0}]"
      ),
      (
        "61-/admin,456[{\"_placeholder\":true,\"num\":0}]", .binaryAcknowledgement, 1, "/admin", 456,
        "[{\"_placeholder\":true,\"num\":0}]"
      ),
      ("1", .disconnect, 0, "", nil, ""), ("1/admin,", .disconnect, 0, "/admin", nil, ""),
    ] as [(String, SocketIOPacket.Kind, Int, String, UInt64?, String)])
  func readsTheExamplesOfTheDocuments(
    text: String, kind: SocketIOPacket.Kind, attachments: Int, namespace: String, id: UInt64?, data: String
  ) throws {
    let packet = try parse(text)
    #expect(packet.packet.kind == kind && packet.packet.attachments == attachments && packet.packet.id == id)
    #expect(packet.namespace == namespace && packet.data == data)
    // The packet follows the prefix of Engine.IO.
    let behind = try SocketIOPacket(Array(("4" + text).utf8).span, from: 1, SocketIOLimits())
    #expect(behind.kind == kind && behind.data.count == packet.packet.data.count && behind.id == id)
  }

  @Test(
    arguments: [
      ("2[\"a\"]", "\"a\"", ""), ("2[\"a\",1]", "\"a\"", "1"),
      ("2[1,{\"x\":[2,\"]\"]}, null]", "1", "{\"x\":[2,\"]\"]}, null"),
      ("2[ \"a\\\"]\" , [ ] ]", "\"a\\\"]\"", "[ ]"), ("2[\"\\\\\",\"\\\\\\\"\"]", "\"\\\\\"", "\"\\\\\\\"\""),
    ] as [(String, String, String)])
  func theArgumentsAreTheUnchangedBytesOfTheServer(text: String, name: String, arguments: String) throws {
    let packet = try parse(text)
    #expect(packet.name == name && packet.arguments == arguments)
  }

  @Test(
    arguments: [
      ("", .unknownPacket), ("7", .unknownPacket), ("9[\"a\"]", .unknownPacket), ("a", .unknownPacket),
      (" 2[\"a\"]", .unknownPacket), ("-", .unknownPacket),
      ("5[\"a\"]", .invalidAttachmentCount), ("5-[\"a\"]", .invalidAttachmentCount), ("5", .invalidAttachmentCount),
      ("51", .invalidAttachmentCount), ("5x-[\"a\"]", .invalidAttachmentCount),
      ("5-1-[\"a\"]", .invalidAttachmentCount),
      ("51.5-[\"a\"]", .invalidAttachmentCount), ("5 1-[\"a\"]", .invalidAttachmentCount),
      ("511-[\"a\"]", .tooManyAttachments(limit: 10)),
      ("599999999999999999999-[\"a\"]", .tooManyAttachments(limit: 10)),
      ("212345678901234567890[\"a\"]", .longID), ("2{}", .invalidPayload), ("2", .invalidPayload),
      ("2[]", .invalidPayload),
      ("2[null]", .invalidPayload), ("2[{}]", .invalidPayload), ("2[[]]", .invalidPayload),
      ("2[true]", .invalidPayload),
      ("2 [\"a\"]", .invalidPayload), ("2\"a\"", .invalidPayload), ("2/admin", .invalidPayload),
      ("21", .invalidPayload),
      ("2[\"a\"", .invalidJSON(offset: 5)), ("2[\"a\"]]", .invalidJSON(offset: 6)), ("2abc", .invalidJSON(offset: 1)),
      ("2/a,7[", .invalidJSON(offset: 6)), ("3abc", .invalidJSON(offset: 1)), ("31{}", .invalidPayload),
      ("31", .invalidPayload), ("3[]", .missingID), ("61-[]", .missingID), ("0\"a\"", .invalidPayload),
      ("0true", .invalidPayload),
      ("1{}", .invalidPayload), ("1[]", .invalidPayload), ("4true", .invalidPayload),
      ("2[\"a\",1,]", .invalidJSON(offset: 8)), ("2[\"a\",NaN]", .invalidJSON(offset: 6)),
    ] as [(String, SocketIOViolation)])
  func otherPacketsAreViolations(text: String, violation: SocketIOViolation) {
    #expect(throws: violation) { try parse(text) }
  }

  @Test func anIDHasUpToNineteenDigits() throws {
    #expect(try parse("29999999999999999999[\"a\"]").packet.id == 9_999_999_999_999_999_999)
    #expect(try parse("2007[\"a\"]").packet.id == 7)
  }

  @Test func theLimitOfAttachmentsIsASetting() throws {
    var limits = SocketIOLimits()
    limits.attachments = 2
    #expect(try parse("52-[\"a\"]", limits: limits).packet.attachments == 2)
    #expect(throws: SocketIOViolation.tooManyAttachments(limit: 2)) { try parse("53-[\"a\"]", limits: limits) }
  }

  @Test(
    arguments: [
      ("{\"_placeholder\":true,\"num\":0}", true), ("{\"num\":1,\"_placeholder\":true}", true),
      ("{\"num\":0,\"x\":{\"_placeholder\":true,\"num\":0},\"_placeholder\":true}", true),
      ("[[{\"a\":[{\"_placeholder\":true,\"num\":1}]}]]", true), ("{\"\\u005fplaceholder\":true,\"num\":1}", true),
      ("{\"_placeholder\":true,\"num\":2}", false), ("{\"_placeholder\":true,\"num\":-1}", false),
      ("{\"_placeholder\":true}", false), ("{\"_placeholder\":true,\"num\":\"0\"}", false),
      ("{\"_placeholder\":true,\"num\":0,\"num\":9}", false), ("{\"_placeholder\":true,\"num\":9,\"num\":0}", true),
      ("{\"_placeholder\":true,\"num\":{}}", false), ("{\"_placeholder\":true,\"num\":[0]}", false),
      ("{\"_placeholder\":false,\"num\":9}", true), ("{\"_placeholder\":\"true\",\"num\":9}", true),
      ("{\"_placeholder\":true,\"_placeholder\":null,\"num\":9}", true),
      ("{\"_placeholder\":true,\"num\":0,\"x\":{\"_placeholder\":true,\"num\":9}}", true),
      ("{\"x\":{\"_placeholder\":true,\"num\":9}}", false), ("\"_placeholder\"", true),
      ("[\"_placeholder\",true,{\"num\":9}]", true),
    ])
  func everyPlaceholderHasTheNumberOfAnAttachment(argument: String, isValid: Bool) throws {
    let text = "52-[\"a\",\(argument)]"
    if isValid {
      _ = try parse(text)
    } else {
      #expect(throws: SocketIOViolation.invalidPlaceholder) { try parse(text) }
    }
    // Placeholders have no meaning in a packet without attachments.
    _ = try parse("2[\"a\",\(argument)]")
  }

  @Test func writesTheExamplesOfTheDocuments() {
    func event(_ name: String, _ arguments: String, _ attachments: Int, _ namespace: String, _ id: UInt64?) -> String {
      var output = ByteQueue()
      SocketIOPacket.writeEvent(
        name: Array(name.utf8).span, arguments: Array(arguments.utf8).span, attachments: attachments,
        namespace: Array(namespace.utf8).span, id: id, into: &output)
      return output.bytes.text()
    }
    #expect(event("foo", "", 0, "/", nil) == #"2["foo"]"#)
    #expect(event("bar", "", 0, "/admin", nil) == #"2/admin,["bar"]"#)
    #expect(event("project:delete", "123", 0, "/admin", 456) == #"2/admin,456["project:delete",123]"#)
    #expect(
      event("baz", #"{"_placeholder":true,"num":0}"#, 1, "/", nil) == #"51-["baz",{"_placeholder":true,"num":0}]"#)
    #expect(event("a\"\n", "", 0, "/", 12) == #"212["a\"\n"]"#)
    var output = ByteQueue()
    SocketIOPacket.writeAcknowledgement(
      13, arguments: Array("\"bar\"".utf8).span, attachments: 0, namespace: Array("/admin".utf8).span, into: &output)
    #expect(output.bytes.text() == #"3/admin,13["bar"]"#)
    output.removeAll()
    SocketIOPacket.writeAcknowledgement(
      15, arguments: Span(), attachments: 1, namespace: Array("/".utf8).span, into: &output)
    #expect(output.bytes.text() == "61-15[]")
  }

  /// A parser before version 4.2.2 fails on the packet that follows a binary packet without attachments.
  @Test func aBinaryPacketWithoutAttachmentsIsNeverWritten() {
    var output = ByteQueue()
    SocketIOPacket.writeEvent(
      name: Array("a".utf8).span, arguments: Span(), attachments: 0, namespace: Array("/".utf8).span, into: &output)
    SocketIOPacket.writeAcknowledgement(
      1, arguments: Span(), attachments: 0, namespace: Array("/".utf8).span, into: &output)
    #expect(output.bytes.text() == #"2["a"]31[]"#)
  }

  @Test func reservesTheNamesOfTheLibraries() {
    func isReserved(_ name: String) -> Bool { SocketIOPacket.isReservedEventName(Array(name.utf8).span) }
    for name in ["connect", "connect_error", "disconnect", "disconnecting", "newListener", "removeListener"] {
      #expect(isReserved(name))
    }
    for name in ["connected", "message", "", "error"] { #expect(!isReserved(name)) }
  }

  @Test func deepNestingDoesNotCrashTheParser() {
    let deep = String(repeating: "[", count: 100_000)
    #expect(throws: SocketIOViolation.self) { try parse("2[\"a\"," + deep) }
    #expect(throws: SocketIOViolation.self) { try parse("51-[\"a\"," + deep) }
  }
}

/// A packet, with its parts as text.
struct ParsedPacket {
  let packet: SocketIOPacket
  let bytes: [UInt8]

  init(_ text: String, _ limits: SocketIOLimits = SocketIOLimits()) throws(SocketIOViolation) {
    let bytes = Array(text.utf8)
    packet = try SocketIOPacket(bytes.span, limits)
    self.bytes = bytes
  }

  func text(_ range: Range<Int>?) -> String { String(decoding: bytes[range ?? 0..<0], as: UTF8.self) }
  var namespace: String { text(packet.namespace) }
  var data: String { text(packet.data) }
  var name: String { text(packet.elements?.first) }
  var arguments: String { text(packet.elements?.rest) }
}
