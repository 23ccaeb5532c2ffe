import ByteStreams
import JSONCodec
import UpstreamProtocol
import WebSocketCodec

/// Values of an upstream's messages that the gateway repeats in its own messages, in acknowledgements, in subscriptions
/// and as URLs: no value changes the structure of a message, and no secret part of a URL is shown.
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
    if let value {
      try checkSubscription(value, last)
      try checkURL(value)
    }
    try checkAcknowledgement(input)
    try checkTopic(input, source)
  }

  private static func checkSubscription(_ value: CapturedValue, _ last: JSONPointer) throws(Finding) {
    guard let place = JSONPointer("/a/x") else { return }
    var rules = SubscriptionRules()
    rules.replacements = [.init(place, with: "x")]
    let payload = ByteString(Array(#"{"a":{"x":"old"},"z":0}"#.utf8))
    guard let sent = try? rules.replacing(payload, kind: .text, with: ["x": value]) else {
      throw Finding("the value is not written into a subscription")
    }
    try require(JSONValidator.isValid(sent.bytes), "the subscription is not valid JSON")
    try require(!last.isAmbiguous(in: sent.bytes) && last.content(in: sent.bytes) == [0x30], "a member was added")
    try require(place.content(in: sent.bytes) == value.content, "the subscription has another value")
  }

  private static func checkURL(_ value: CapturedValue) throws(Finding) {
    guard let configured = try? WebSocketURL("wss://a.example/p?configured"),
      let url = try? WebSocketURL(String(decoding: value.content, as: UTF8.self)).withoutCredentials,
      let next = try? url.withQuery(of: configured).withSecretPath
    else { return }
    try require(next.hasSameOrigin(as: url) && next.credentials == nil, "the query has changed the server")
    try require(next.target == url.target || next.target == url.target + "?configured", "the query is \(next.target)")
    let shown = next.redacted
    let isHidden = shown.count { $0 == "/" } == 3 && (shown.hasSuffix("/") || shown.hasSuffix("/***"))
    try require(isHidden && !shown.contains("?"), "\(shown) is shown")
  }

  private static func checkAcknowledgement(_ input: Span<UInt8>) throws(Finding) {
    guard let id = JSONPointer("/x"), let ack = JSONPointer("/ack"), let last = JSONPointer("/z"),
      let send = try? Template(#"{"ack":${raw:/x},"z":0}"#, in: .reply, environment: [:])
    else { return }
    var conventions = UpstreamConventions()
    conventions.acknowledgements = [.init(match: Matcher([.present(id)]), send: send, when: .received)]
    var spoken = PlainProtocol(conventions)
    var memory = ProtocolMemory(SubscriptionRules())
    _ = spoken.receive(input, kind: .text, &memory)
    guard let frame = (try? spoken.takeAcknowledgement(memory, now: 0))?.frame, let range = id.find(in: input) else {
      return
    }
    let sent = frame.payload.bytes
    try require(JSONValidator.isValid(sent), "the acknowledgement is not valid JSON")
    try require(!last.isAmbiguous(in: sent) && last.content(in: sent) == [0x30], "a member was added")
    try require(
      ack.find(in: sent).map { sent.extracting($0).equals(input.extracting(range)) } == true,
      "the acknowledgement has another id")
  }

  private static func checkTopic(_ input: Span<UInt8>, _ source: ValueSource) throws(Finding) {
    var topics = TopicSource()
    topics.source = source
    let topic = topics.topic(of: input)
    if case .value(let content, _) = source.value(in: input) {
      try require(topic == content, "the topic is not the value")
    } else {
      try require(topic.isEmpty, "there is a topic without a value")
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
