import ByteStreams
import Testing

@testable import Events
import SocketIO

@Suite struct SocketIOEnvelopeTests {
  private func read(_ text: String) throws -> EventEnvelope {
    try EventEnvelope(Array(text.utf8).span, attachmentLimit: 2)
  }

  @Test func anEventHasItsParts() throws {
    var parts = EventParts()
    parts.name = Array("chat".utf8)
    #expect(try read(#"{"event":"chat"}"#) == .event(parts))
    parts.arguments = Array(#""hi" , {"n":1}"#.utf8)
    parts.namespace = Array("/admin".utf8)
    #expect(try read(#" {"args": [ "hi" , {"n":1} ], "namespace":"\/admin","event":"ch\u0061t"} "#) == .event(parts))
  }

  @Test func anAcknowledgementHasATokenOnly() throws {
    var parts = EventParts()
    parts.kind = .acknowledgement
    parts.arguments = Array("1".utf8)
    #expect(try read(#"{"ack":"a-1","args":[1]}"#) == .acknowledgement(token: Array("a-1".utf8), parts))
  }

  @Test(arguments: [
    ("", "not valid JSON"), ("[]", "an envelope is an object"), ("{}", "no 'event'"), (#"{"event":1}"#, "a string"),
    (#"{"event":""}"#, "1 to 1024 bytes"), (#"{"event":"connect"}"#, "reserved"), (#"{"event":"a","x":1}"#, #""x""#),
    (#"{"event":"a","event":"b"}"#, "twice"), (#"{"event":"a","args":{}}"#, "array of the arguments"),
    (#"{"event":"a","namespace":1}"#, "'namespace' is a string"), (#"{"event":"a","ack":"b"}"#, "both"),
    (#"{"ack":1}"#, "the value of 'ack'"), (#"{"ack":"a","namespace":"/"}"#, "belongs to an event"),
    (#"{"event":"a","attachments":"AQID"}"#, "an array of at most 2"),
    (#"{"event":"a","attachments":["","",""]}"#, "an array of at most 2"),
    (#"{"event":"a","attachments":[1]}"#, "not a string"), (#"{"event":"a","attachments":["A"]}"#, "not base64"),
    (#"{"event":"a","attachments":["AQ=="]}"#, #""num":0"#),
    (#"{"event":"a","args":[{"_placeholder":true,"num":0}],"attachments":["AQ==","AQ=="]}"#, #""num":1"#),
    (
      #"{"event":"a","args":[{"_placeholder":true,"num":1}],"attachments":["AQ=="]}"#,
      "not have the number of an attachment"
    ),
  ])
  func errorsNameTheAcceptedForm(text: String, part: String) {
    do {
      let envelope = try read(text)
      Issue.record("accepted as \(envelope)")
    } catch {
      #expect("\(error)".contains(part), "\(error)")
    }
  }
}

@Suite struct EventRecordTests {
  @Test func aRecordHasTheParts() {
    var parts = EventParts()
    parts.id = .max >> 1
    parts.connection = 3
    parts.name = Array("chat".utf8)
    parts.arguments = Array("1,2".utf8)
    parts.attachments = [[], [1, 2, 3]]
    parts.token = Array("t".utf8)
    let bytes = parts.record
    #expect(isValid(bytes))
    let words = Self.words(bytes)
    #expect(words == ["event", "\(parts.id)", "3", "/", "chat", "1,2", "t", "[]", "[1, 2, 3]"])
    let identity = Self.identity(bytes)
    parts.token = Array("another".utf8)
    (parts.id, parts.connection) = (1, 4)
    #expect(Self.identity(parts.record) == identity)
    parts.name = Array("chats".utf8)
    #expect(Self.identity(parts.record) != identity)
    for count in 0..<bytes.count { #expect(!isValid(Array(bytes.prefix(count)))) }
    #expect(!isValid(bytes + [0]))
  }

  private func isValid(_ bytes: [UInt8]) -> Bool { EventRecord.isValid(bytes.span) }

  private static func identity(_ bytes: [UInt8]) -> [UInt8] { [UInt8](copying: EventRecord(bytes.span).identity) }

  private static func words(_ bytes: [UInt8]) -> [String] {
    let record = EventRecord(bytes.span)
    var words = ["\(record.kind)", "\(record.id)", "\(record.connection)", record.namespace.text()]
    words += [record.name.text(), record.arguments.text(), record.token.text()]
    for index in 0..<record.attachmentCount { words.append("\([UInt8](copying: record.attachment(index)))") }
    return words
  }
}
