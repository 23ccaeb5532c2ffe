import ByteStreams
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
}
