import ByteStreams
import Testing
import UpstreamSession

@Suite struct OwnLaneTests {
  private func message(_ kind: OwnLane.Kind, _ text: String) -> OwnLane.Message {
    OwnLane.Message(kind, isText: true, payload: SharedBytes(Array(text.utf8)))
  }

  private func texts(_ messages: [OwnLane.Message]) -> [String] { messages.map { $0.payload.bytes.text() } }

  @Test func keepsTheOrderOfOpeningMessages() {
    var lane = OwnLane()
    for text in ["hello", "subscribe a", "subscribe b"] { lane.append(message(.opening, text)) }
    #expect(texts(lane.takeAll()) == ["hello", "subscribe a", "subscribe b"])
    #expect(lane.takeAll().isEmpty)
  }

  @Test func keepsOnlyTheNewestHeartbeat() {
    var lane = OwnLane()
    lane.append(message(.opening, "hello"))
    for number in 0..<10_000 { lane.append(message(.heartbeat, "pong \(number)")) }
    #expect(lane.count == 2)
    #expect(texts(lane.takeAll()) == ["hello", "pong 9999"])
  }
}
