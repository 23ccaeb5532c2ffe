import ByteStreams
import Testing
import UpstreamSession

@Suite struct PriorityMessagesTests {
  private func message(_ purpose: PriorityMessage.Purpose, _ text: String) -> PriorityMessage {
    PriorityMessage(purpose, kind: .text, payload: ByteString(Array(text.utf8)))
  }

  private func texts(_ messages: [PriorityMessage]) -> [String] { messages.map { $0.payload.bytes.text() } }

  @Test func keepsTheOrderOfSetupMessages() {
    var messages = PriorityMessages()
    for text in ["hello", "subscribe a", "subscribe b"] { messages.append(message(.setup, text)) }
    #expect(texts(messages.takeAll()) == ["hello", "subscribe a", "subscribe b"])
    #expect(messages.takeAll().isEmpty)
  }

  @Test func keepsOnlyTheNewestHeartbeat() {
    var messages = PriorityMessages()
    messages.append(message(.setup, "hello"))
    for number in 0..<10_000 { messages.append(message(.heartbeat, "pong \(number)")) }
    #expect(messages.count == 2)
    #expect(texts(messages.takeAll()) == ["hello", "pong 9999"])
  }

  /// A large setup message does not count: the upstream may send before it reads the message.
  @Test func acknowledgementsThatAreNotReadAreLimitedInNumberAndBytes() {
    for (bytes, count) in [(1, PriorityMessages.limit), (4_096, PriorityMessages.byteLimit / 4_096)] {
      var messages = PriorityMessages()
      messages.append(message(.setup, String(repeating: "s", count: PriorityMessages.byteLimit)))
      for _ in 1..<count { messages.append(message(.acknowledgement, String(repeating: "a", count: bytes))) }
      #expect(!messages.isFull || bytes == 1)
      messages.append(message(.acknowledgement, String(repeating: "a", count: bytes)))
      #expect(messages.isFull)
      _ = messages.takeAll()
      #expect(!messages.isFull)
    }
  }
}
