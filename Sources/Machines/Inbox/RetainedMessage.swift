import ByteStreams
import Events
import JSONCodec

/// The topic of a push: a name that clients can filter by.
package enum PushTopic {
  /// Maximum size in bytes. A push with a longer value has no topic.
  package static var maximumBytes: Int { 256 }
}

/// A retained push. It is rendered once, when it arrives.
package struct RetainedMessage: Sendable {
  /// The form of `data` in the rendered message.
  package enum Kind: UInt8, Sendable {
    /// A JSON value: the payload, byte for byte.
    case json
    /// A string: the payload, escaped.
    case text
    /// The payload in base64.
    case binary
    /// An event of Socket.IO: the array of its arguments, byte for byte. Further members follow `data`.
    case event

    package var name: StaticString {
      switch self {
      case .json: "json"
      case .text: "text"
      case .binary: "binary"
      case .event: "event"
      }
    }
  }

  package private(set) var sequence: UInt64
  /// When the push arrived, on the monotonic clock. The wall clock, which `rendered` shows, may jump.
  package private(set) var arrival: MonotonicTime
  package let kind: Kind
  /// The positions of the parts of `rendered`. `topicStart` is also set for an event without a topic. The properties
  /// are small enough to fit into the padding after `kind`.
  private var topicStart: UInt8
  private let topicCount: UInt16
  private var dataStart: UInt16
  /// Whether `rendered` contains CR or LF. They can only be between the tokens of JSON from the upstream.
  package let hasLineBreaks: Bool
  /// The JSON object in a response, from `{` to `}`.
  package private(set) var rendered: ByteString

  fileprivate init(
    _ id: Cursor, arrival: MonotonicTime, kind: Kind, topic: Range<Int>, dataStart: Int, rendered: ByteString
  ) {
    sequence = id.sequence
    self.arrival = arrival
    self.kind = kind
    topicStart = UInt8(topic.lowerBound)
    topicCount = UInt16(topic.count)
    self.dataStart = UInt16(dataStart)
    hasLineBreaks =
      (kind == .json || kind == .event)
      && (rendered.bytes.firstIndex(of: UInt8(ascii: "\n"), from: dataStart) != nil
        || rendered.bytes.firstIndex(of: UInt8(ascii: "\r"), from: dataStart) != nil)
    self.rendered = rendered
  }

  // MARK: Storing

  /// The positions of the parts of `rendered`, as one number.
  package var layout: UInt64 {
    UInt64(kind.rawValue) | UInt64(topicStart) << 8 | UInt64(topicCount) << 16 | UInt64(dataStart) << 32
      | (hasLineBreaks ? 1 << 48 : 0)
  }

  /// Restores a stored message; nil if `layout` does not fit `rendered`, since stored values may be damaged.
  package init?(_ sequence: UInt64, arrival: MonotonicTime, layout: UInt64, rendered: ByteString) {
    guard let kind = Kind(rawValue: UInt8(truncatingIfNeeded: layout)), layout < 1 << 49 else { return nil }
    self.sequence = sequence
    self.arrival = arrival
    self.kind = kind
    topicStart = UInt8(truncatingIfNeeded: layout >> 8)
    topicCount = UInt16(truncatingIfNeeded: layout >> 16)
    dataStart = UInt16(truncatingIfNeeded: layout >> 32)
    hasLineBreaks = layout >> 48 == 1
    self.rendered = rendered
    let topicEnd = Int(topicStart) + Int(topicCount)
    // The data is followed at least by the closing brace, and data in base64 has quotation marks.
    guard Int(dataStart) > topicEnd, rendered.count > Int(dataStart) + (kind == .binary ? 2 : 1),
      Int(dataStart) > MessageRenderer.binaryMember.utf8CodeUnitCount, topicCount == 0 || topicStart > 0
    else { return nil }
    // The namespace of an event is between its topic and its data.
    guard kind != .event || namespaceStart <= Int(dataStart) else { return nil }
  }

  /// This message as if it had arrived at another time.
  package func arriving(at time: MonotonicTime) -> RetainedMessage {
    var message = self
    message.arrival = time
    return message
  }

  /// The id of this message. `cursor` is any cursor of the present term of its log. A message of an earlier term keeps
  /// the id that it got in that term.
  package func id(like cursor: Cursor) -> Cursor {
    let ordinary = Cursor(epoch: cursor.epoch, term: cursor.term, sequence: sequence)
    guard cursor.term > 0, rendered.count > Self.idStart,
      let end = rendered.bytes.firstIndex(of: UInt8(ascii: "\""), from: Self.idStart)
    else { return ordinary }
    return Cursor(rendered.bytes.extracting(Self.idStart..<end)) ?? ordinary
  }

  /// Gives its place in the log to a message that was rendered before the place was known. Copies the message only if
  /// another value has the same memory.
  package mutating func place(at id: Cursor, arrival: MonotonicTime) {
    var text = ByteQueue()
    id.write(into: &text)
    let end = rendered.bytes.firstIndex(of: UInt8(ascii: "\""), from: Self.idStart) ?? Self.idStart
    let growth = text.count - (end - Self.idStart)
    rendered.replace(Self.idStart..<end, with: text.copyBytes())
    topicStart = UInt8(Int(topicStart) + growth)
    dataStart = UInt16(Int(dataStart) + growth)
    sequence = id.sequence
    self.arrival = arrival
  }

  /// The length of `{"id":"`.
  private static var idStart: Int { 7 }

  /// The bytes for which this message is counted towards the retention limit.
  package var cost: Int { rendered.count + Self.overhead }
  /// Memory of a message in addition to its bytes: its entry in the log and its allocation.
  package static let overhead = 96

  // MARK: Parts

  package var hasTopic: Bool { topicCount > 0 }

  /// The topic with JSON escapes; empty if there is none.
  var escapedTopic: Span<UInt8> {
    @_lifetime(borrow self)
    get {
      let span = rendered.bytes.extracting(Int(topicStart)..<Int(topicStart) + Int(topicCount))
      return unsafe _overrideLifetime(span, borrowing: self)
    }
  }

  /// The topic; nil if the push has no topic.
  package var topic: [UInt8]? {
    guard hasTopic else { return nil }
    let start = Int(topicStart)
    return JSONString.content(of: rendered.bytes.extracting(start - 1..<start + Int(topicCount) + 1))
  }

  /// The namespace of an event; empty for other pushes. It contains no character that JSON escapes.
  package var namespace: Span<UInt8> {
    @_lifetime(borrow self)
    get {
      let bytes = rendered.bytes
      guard kind == .event else { return unsafe _overrideLifetime(bytes.extracting(0..<0), borrowing: self) }
      let start = namespaceStart
      let end = bytes.firstIndex(of: UInt8(ascii: "\""), from: start) ?? start
      return unsafe _overrideLifetime(bytes.extracting(start..<end), borrowing: self)
    }
  }

  /// Where the namespace of an event begins. The topic before it is a string, or null.
  private var namespaceStart: Int {
    Int(topicStart) + (hasTopic ? Int(topicCount) + 1 : 4) + MessageRenderer.namespaceMember.utf8CodeUnitCount
  }

  /// The range of `data`. For an event, this scans the JSON value, so callers read it only once.
  private var dataRange: Range<Int> {
    let (start, end) = (Int(dataStart), rendered.count - 1)
    guard kind == .event else { return start..<end }
    return rendered.bytes.jsonValue(from: start) ?? start..<end
  }

  /// Returns the size of the attachments of an event, and the position where the members after them begin.
  ///
  /// - Parameter end: the position where the data of the event ends.
  private func attachments(after end: Int) -> (size: Int, end: Int) {
    let bytes = rendered.bytes
    let member = MessageRenderer.attachmentsMember
    let start = end + member.utf8CodeUnitCount
    guard start < bytes.count, bytes.extracting(end..<start).equals(member) else { return (0, end) }
    var size = 0
    var index = start
    // Strings in base64, with commas between them.
    while index < bytes.count, bytes[index] == UInt8(ascii: "\""),
      let close = bytes.firstIndex(of: UInt8(ascii: "\""), from: index + 1)
    {
      size += Base64.decodedCount(bytes.extracting(index + 1..<close))
      index = close + 1
      if index < bytes.count, bytes[index] == UInt8(ascii: ",") { index += 1 }
    }
    return (size, min(index + 1, bytes.count - 1))
  }

  /// The time of arrival, as in `rendered`.
  package var time: Span<UInt8> {
    @_lifetime(borrow self)
    get {
      // The time is the second member, after the id, and both are strings without escapes.
      let bytes = rendered.bytes
      var quotes = 0
      var start = 0
      while quotes < 7 {
        if bytes[start] == UInt8(ascii: "\"") { quotes += 1 }
        start += 1
      }
      let end = bytes.firstIndex(of: UInt8(ascii: "\""), from: start) ?? start
      return unsafe _overrideLifetime(bytes.extracting(start..<end), borrowing: self)
    }
  }

  /// Size of the payload as the upstream sent it, in bytes. The payload of an event is its arguments and its
  /// attachments.
  package var payloadCount: Int { payloadSize.count }

  /// The size of the payload, and the start of the members after it.
  private var payloadSize: (count: Int, end: Int) {
    let bytes = rendered.bytes
    let data = dataRange
    switch kind {
    case .json: return (data.count, data.upperBound)
    case .event:
      let (size, end) = attachments(after: data.upperBound)
      return (data.count + size, end)
    case .text: return (JSONString.content(of: bytes.extracting(data))?.count ?? 0, data.upperBound)
    case .binary:
      return (Base64.decodedCount(bytes.extracting(data.lowerBound + 1..<data.upperBound - 1)), data.upperBound)
    }
  }

  /// Appends the JSON object with the size of the payload, as `bytes`, in place of the payload. An event keeps `ack`.
  /// It also keeps `event`, which is its name if the name is too long for a topic.
  package func writeWithoutPayload(into output: inout ByteQueue) {
    let member = kind == .binary ? MessageRenderer.binaryMember : MessageRenderer.dataMember
    output.append(rendered.bytes.extracting(first: Int(dataStart) - member.utf8CodeUnitCount))
    output.append(",\"bytes\":" as StaticString)
    let (count, end) = payloadSize
    output.append(decimal: count)
    output.append(rendered.bytes.extracting(end..<rendered.count))
  }

  /// The payload as the upstream sent it, if `rendered` contains it byte for byte.
  package var embeddedPayload: ByteSlice? {
    kind == .json || kind == .event ? ByteSlice(rendered, range: dataRange) : nil
  }

  /// Appends the payload as the upstream sent it.
  package func writePayload(into output: inout ByteQueue) {
    let bytes = rendered.bytes
    let data = dataRange
    switch kind {
    case .json, .event: output.append(bytes.extracting(data))
    case .text: output.append(JSONString.content(of: bytes.extracting(data)) ?? [])
    case .binary: Base64.decode(bytes.extracting(data.lowerBound + 1..<data.upperBound - 1), into: &output)
    }
  }
}

/// Renders a push as the JSON object that polls return.
package struct MessageRenderer: ~Copyable {
  private var scratch = ByteQueue()
  /// The beginning of a large message. `scratch` has the bytes after it.
  private var large: [UInt8] = []
  private var clock = TimestampWriter()

  fileprivate static var dataMember: StaticString { ",\"data\":" }
  fileprivate static var binaryMember: StaticString { ",\"data_base64\":" }
  fileprivate static var namespaceMember: StaticString { ",\"namespace\":\"" }
  fileprivate static var attachmentsMember: StaticString { ",\"attachments\":[" }

  package init() {}

  /// `{"id","time","type","topic","data"}`, with `data_base64` in place of `data` for binary. Text that is itself valid
  /// JSON (without unpaired surrogates) has the type `json` and is inserted as `data`, byte for byte. Any other text
  /// has the type `text` and becomes a JSON string.
  ///
  /// The `payload` of a text must be UTF-8, which the WebSocket layer guarantees (RFC 6455 §8.1). `topic` must be
  /// UTF-8. The topic in the object is null if `topic` is empty or longer than `PushTopic.maximumBytes`. `time` is the
  /// time shown, in milliseconds since the UNIX epoch. `arrival` is the time from which retention counts.
  package mutating func render(
    _ payload: Span<UInt8>, kind: MessageKind, topic: Span<UInt8>, id: Cursor, time: Int64, arrival: MonotonicTime
  ) -> RetainedMessage {
    begin(payload.count, id, time)
    let type: RetainedMessage.Kind = kind == .binary ? .binary : isEmbeddable(payload) ? .json : .text
    switch type {
    case .json: scratch.append("\",\"type\":\"json\",\"topic\":" as StaticString)
    case .text: scratch.append("\",\"type\":\"text\",\"topic\":" as StaticString)
    case .binary: scratch.append("\",\"type\":\"binary\",\"topic\":" as StaticString)
    case .event: preconditionFailure("an event has its own form")
    }
    let topicRange = append(topic: topic)
    scratch.append(type == .binary ? Self.binaryMember : Self.dataMember)
    let dataStart = scratch.count
    switch type {
    case .json: append(payload, as: .json)
    case .text, .binary:
      scratch.append(UInt8(ascii: "\""))
      append(payload, as: type)
      scratch.append(UInt8(ascii: "\""))
    case .event: break
    }
    return end(id, arrival, type, topicRange, dataStart)
  }

  /// `{"id","time","type":"event","topic","namespace","data"}`, and if they apply, `attachments`, `ack` and `event`.
  /// The topic is the name of the event. A name that is too long for a topic is in `event`. `data` is the array of the
  /// arguments. If the event cannot be inserted into a JSON document (`EventRecord.Kind.rawEvent`), `data` is its text
  /// as a string.
  package mutating func render(
    _ event: EventRecord, id: Cursor, time: Int64, arrival: MonotonicTime
  ) -> RetainedMessage {
    begin(event.arguments.count, id, time)
    scratch.append("\",\"type\":\"event\",\"topic\":" as StaticString)
    let topicRange = append(topic: event.name)
    scratch.append(Self.namespaceMember)
    scratch.append(event.namespace)
    scratch.append(UInt8(ascii: "\""))
    scratch.append(Self.dataMember)
    let dataStart = scratch.count
    if event.kind == .rawEvent {
      scratch.append(jsonString: event.arguments)
    } else {
      scratch.append(UInt8(ascii: "["))
      append(event.arguments, as: .json)
      scratch.append(UInt8(ascii: "]"))
    }
    if event.attachmentCount > 0 { scratch.append(Self.attachmentsMember) }
    for index in 0..<event.attachmentCount {
      scratch.append(index == 0 ? "\"" : ",\"" as StaticString)
      append(event.attachment(index), as: .binary)
      scratch.append(UInt8(ascii: "\""))
    }
    if event.attachmentCount > 0 { scratch.append(UInt8(ascii: "]")) }
    if !event.token.isEmpty {
      scratch.append(",\"ack\":" as StaticString)
      scratch.append(jsonString: event.token)
    }
    if event.name.count > PushTopic.maximumBytes {
      scratch.append(",\"event\":" as StaticString)
      scratch.append(jsonString: event.name)
    }
    return end(id, arrival, .event, topicRange, dataStart)
  }

  private mutating func begin(_ size: Int, _ id: Cursor, _ time: Int64) {
    scratch.removeAll()
    scratch.reserve(min(size, Self.smallestLarge) &+ 128)
    scratch.append("{\"id\":\"" as StaticString)
    id.write(into: &scratch)
    scratch.append("\",\"time\":\"" as StaticString)
    clock.write(milliseconds: time, into: &scratch)
  }

  /// Returns the range of the topic between its quotes, or an empty range at the start of null.
  private mutating func append(topic: Span<UInt8>) -> Range<Int> {
    let start = scratch.count
    guard !topic.isEmpty, topic.count <= PushTopic.maximumBytes else {
      scratch.append("null" as StaticString)
      return start..<start
    }
    scratch.append(jsonString: topic)
    return start + 1..<scratch.count - 1
  }

  /// Appends content. Large content is rendered in parts and moved to `large`, so that it needs no second buffer of its
  /// size.
  private mutating func append(_ content: Span<UInt8>, as kind: RetainedMessage.Kind) {
    guard content.count >= Self.smallestLarge else { return appendPart(content, as: kind) }
    // This size is enough for the whole message, unless a text needs escapes or an event has several large values. In
    // these cases the array grows by itself: a reservation for each value would copy the values before it.
    let size = kind == .binary ? Base64.encodedCount(content.count) : content.count
    if large.isEmpty { large.reserveCapacity(scratch.count + size + Self.partBytes / 2) }
    var start = 0
    while start < content.count {
      let end = min(start + Self.partBytes, content.count)
      appendPart(content.extracting(start..<end), as: kind)
      moveToLarge()
      start = end
    }
  }

  private mutating func appendPart(_ part: Span<UInt8>, as kind: RetainedMessage.Kind) {
    switch kind {
    case .json, .event: scratch.append(part)
    case .text: scratch.append(jsonEscaped: part)
    case .binary: Base64.encode(part, into: &scratch)
    }
  }

  private mutating func moveToLarge() {
    Self.append(scratch, to: &large)
    scratch.removeAll()
  }

  private static func append(_ bytes: borrowing ByteQueue, to large: inout [UInt8]) {
    unsafe bytes.bytes.withUnsafeBytes { unsafe large.append(contentsOf: $0) }
  }

  private mutating func end(
    _ id: Cursor, _ arrival: MonotonicTime, _ kind: RetainedMessage.Kind, _ topic: Range<Int>, _ dataStart: Int
  ) -> RetainedMessage {
    scratch.append(UInt8(ascii: "}"))
    let rendered: ByteString
    if large.isEmpty {
      rendered = ByteString(copying: scratch.bytes)
    } else {
      moveToLarge()
      var bytes: [UInt8] = []
      swap(&bytes, &large)
      rendered = ByteString(bytes)
    }
    if scratch.allocatedBytes > Self.scratchKept { scratch.releaseStorage() }
    return RetainedMessage(id, arrival: arrival, kind: kind, topic: topic, dataStart: dataStart, rendered: rendered)
  }

  /// Maximum size of the buffer that is kept, in bytes. Only an exceptional message needs a larger buffer, so such a
  /// buffer is released.
  private static let scratchKept = 64 * 1024
  /// Content of at least this many bytes is large.
  private static let smallestLarge = 256 << 10
  /// Maximum bytes of large content that are rendered at once. It is a multiple of 3, the group of base64.
  private static let partBytes = 48 << 10

  private func isEmbeddable(_ payload: Span<UInt8>) -> Bool {
    do throws(JSONError) {
      return try !JSONValidator.validate(payload).hasUnpairedSurrogates
    } catch {
      return false
    }
  }
}
