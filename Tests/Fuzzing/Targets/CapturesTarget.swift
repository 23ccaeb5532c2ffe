import ByteStreams
import JSONCodec
import UpstreamProtocol

/// Values of an upstream's messages that messages of the gateway repeat: no value changes the structure of a message.
enum CapturesTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    guard let pointer = JSONPointer("/x"), let text = JSONPointer("/a"), let last = JSONPointer("/z") else { return }
    let source = ValueSource([
      .pointer(pointer), .text(after: TextPattern("M "), isPrefix: true, until: TextPattern(" ")),
      .text(after: TextPattern("\nx:"), isPrefix: false, until: nil),
    ])
    var conventions = UpstreamConventions()
    conventions.captures = [CaptureRule("x", source)]
    let (json, value) = try rendered(
      #"{"a":"${capture:x}","b":${capture:x},"c":["${json:${capture:x}}"],"z":0}"#, conventions, input)
    if let json {
      try require(JSONValidator.isValid(json.span), "the message is not valid JSON")
      try require(!last.isAmbiguous(in: json.span) && last.content(in: json.span) == [0x30], "a member was added")
      try require(text.content(in: json.span) == value?.content, "the value is repeated in another form")
    }
    let (line, _) = try rendered("SUB ${capture:x} 1", conventions, input)
    if let line { try require(line.allSatisfy { $0 >= 0x20 && $0 != 0x7F }, "the message has a control character") }
    let (xml, _) = try rendered("<a b='${capture:x}'>", conventions, input)
    if let xml {
      try require(xml.count { $0 == UInt8(ascii: "<") || $0 == UInt8(ascii: "'") } == 3, "the message has other markup")
    }
  }

  /// The message after `input` has arrived; nil if there is no value or it is refused.
  private static func rendered(
    _ text: String, _ conventions: UpstreamConventions, _ input: Span<UInt8>
  ) throws(Finding) -> (message: [UInt8]?, value: CapturedValue?) {
    var conventions = conventions
    guard let template = try? Template(text, in: .closing, environment: [:]) else {
      throw Finding("the template '\(text)' is refused")
    }
    conventions.onClose = [template]
    var spoken = PlainProtocol(conventions)
    var memory = ProtocolMemory(SubscriptionRules())
    _ = spoken.receive(input, kind: .binary, &memory)
    let value = spoken.captures["x"]
    if let value {
      try require(value.content.count <= CapturedValue.maximumBytes, "the value has \(value.content.count) bytes")
    }
    let message = (try? spoken.lastMessages(memory, now: 0))?.first.map { [UInt8](copying: $0.payload.bytes) }
    return (message, value)
  }
}
