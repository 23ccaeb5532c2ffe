import ByteStreams
import Events
import Testing

@testable import Inbox

@Suite struct MessageRendererTests {
  private func render(_ payload: [UInt8], _ kind: MessageKind, topic: String = "") -> RetainedMessage {
    var renderer = MessageRenderer()
    let id = Cursor(epoch: Epoch(1), sequence: 2)
    return renderer.render(
      payload.span, kind: kind, topic: Array(topic.utf8).span, id: id, time: 1_795_253_400_125, arrival: .zero)
  }

  private func payload(_ message: RetainedMessage) -> [UInt8] {
    var output = ByteQueue()
    message.writePayload(into: &output)
    return output.copyBytes()
  }

  @Test(arguments: [
    ("{\"a\": 1}", "json", "{\"a\": 1}"), ("12", "json", "12"), ("\"abc\"", "json", "\"abc\""),
    ("abc", "text", "\"abc\""), ("", "text", "\"\""), ("[1,", "text", "\"[1,\""),
    ("\"\\ud800\"", "text", "\"\\\"\\\\ud800\\\"\""),
  ])
  func embedsJSONUnchangedAndOtherTextAsAString(payload: String, type: String, data: String) {
    let message = render(Array(payload.utf8), .text)
    let rendered = message.rendered.bytes.text()
    #expect(
      rendered
        == "{\"id\":\"p-000000000001.2\",\"time\":\"2026-11-21T09:30:00.125Z\",\"type\":\"\(type)\",\"topic\":null,\"data\":\(data)}"
    )
    #expect(self.payload(message) == Array(payload.utf8))
    #expect(message.kind.name.description == type && message.topic == nil)
  }

  @Test func showsBinaryAsBase64() {
    for size in 0..<10 {
      let bytes = (0..<size).map { UInt8($0 * 83 & 0xFF) }
      #expect(payload(render(bytes, .binary, topic: "a")) == bytes)
    }
    let message = render([0xFF, 0x00], .binary).rendered.bytes.text()
    #expect(message.hasSuffix("\"type\":\"binary\",\"topic\":null,\"data_base64\":\"/wA=\"}"))
  }

  @Test(arguments: ["a", "orders.eu", "a\"b\\c\n", "Straße", String(repeating: "\u{1}", count: 256)])
  func readsTheTopicAndTimeBackFromTheRendering(topic: String) {
    let message = render(Array("{}".utf8), .text, topic: topic)
    #expect(message.topic == Array(topic.utf8))
    let time = message.time.text()
    #expect(time == "2026-11-21T09:30:00.125Z")
    #expect(payload(message) == Array("{}".utf8))
  }

  /// A large push is rendered before its number is known.
  @Test(arguments: [1, 9, 10, 123_456_789_012] as [UInt64])
  func aMessageGetsItsPlaceAfterItIsRendered(number: UInt64) {
    var event = EventParts()
    (event.name, event.arguments) = (Array("chat".utf8), Array("1,[2]".utf8))
    let record = event.record
    func rendered(at id: Cursor, _ arrival: MonotonicTime) -> [RetainedMessage] {
      var renderer = MessageRenderer()
      let topic = Array("a\"b".utf8)
      let pushes: [(String, MessageKind)] = [("{}\n", .text), ("text", .text), ("binary", .binary)]
      let messages = pushes.map { text, kind in
        renderer.render(
          Array(text.utf8).span, kind: kind, topic: kind.isText ? topic.span : Span(), id: id, time: 5, arrival: arrival
        )
      }
      return messages + [renderer.render(EventRecord(record.span), id: id, time: 5, arrival: arrival)]
    }
    let id = Cursor(epoch: Epoch(1), term: 3, sequence: number)
    let arrival = MonotonicTime.zero + .seconds(9)
    for likely in [id, Cursor(epoch: Epoch(1), sequence: 77), Cursor(epoch: Epoch(1), term: .max >> 2, sequence: 99)] {
      for (early, expected) in zip(rendered(at: likely, .zero), rendered(at: id, arrival)) {
        var message = early
        message.place(at: id, arrival: arrival)
        #expect(form(message) == form(expected) && message.layout == expected.layout)
        #expect(message.sequence == number && message.arrival == arrival && message.topic == expected.topic)
        #expect(form(early) != form(message) || likely == id, "a copy stays the same")
      }
    }
  }

  private func form(_ message: RetainedMessage) -> String { message.rendered.bytes.text() }

  /// A large content is rendered a part at a time.
  @Test func aLargeMessageHasTheFormOfASmallOne() {
    let count = 400_000
    let form = { (message: RetainedMessage) in message.rendered.bytes.text() }
    let prefix = { (type: String) in
      "{\"id\":\"p-000000000001.2\",\"time\":\"2026-11-21T09:30:00.125Z\",\"type\":\"\(type)\",\"topic\":\"a\",\"data"
    }
    let text = String(repeating: "Straße ", count: count / 8)
    #expect(form(render(Array(text.utf8), .text, topic: "a")) == prefix("text") + "\":\"\(text)\"}")
    let lines = String(repeating: "a\n\u{1}ß", count: count / 4)
    let escaped = String(repeating: "a\\n\\u0001ß", count: count / 4)
    let message = render(Array(lines.utf8), .text, topic: "a")
    #expect(form(message) == prefix("text") + "\":\"\(escaped)\"}")
    #expect(payload(message) == Array(lines.utf8))
    let json = "[" + String(repeating: "12,", count: count / 3) + "\n3]"
    let value = render(Array(json.utf8), .text, topic: "a")
    #expect(form(value) == prefix("json") + "\":\(json)}")
    #expect(value.hasLineBreaks)
    for size in count...count + 2 {
      let bytes = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 83) }
      let message = render(bytes, .binary, topic: "a")
      #expect(form(message) == prefix("binary") + "_base64\":\"\(Base64.encode(bytes.span))\"}")
      #expect(payload(message) == bytes)
    }
    #expect(form(render([0x31], .text, topic: "a")) == prefix("json") + "\":1}", "nothing of a large message is left")
  }
}
