import ByteStreams
import JSONCodec

/// One packet of Socket.IO without its attachments: `type[attachments-][/namespace,][id][json]`.
package struct SocketIOPacket: Equatable, Sendable {
  package enum Kind: UInt8, CaseIterable, Sendable {
    case connect, disconnect, event, acknowledgement, connectError, binaryEvent, binaryAcknowledgement

    package var isBinary: Bool { self == .binaryEvent || self == .binaryAcknowledgement }
  }

  package let kind: Kind
  /// The number of binary messages that follow.
  package let attachments: Int
  /// Empty for the default namespace.
  package let namespace: Range<Int>
  package let id: UInt64?
  /// Empty if there is no data.
  package let data: Range<Int>
  /// The elements of `data`, for events and acknowledgements.
  package let elements: ArrayElements?
  /// Whether a string of `data` has half of a surrogate pair. The grammar allows it, but many parsers refuse it.
  package let hasUnpairedSurrogates: Bool

  /// Maximum digits of an id: every number of 19 digits fits into 64 bits.
  private static var idDigits: Int { 19 }

  /// Parses the packet from byte `start` on. `text` must be UTF-8.
  package init(
    _ text: Span<UInt8>, from start: Int = 0, _ limits: SocketIOLimits
  ) throws(SocketIOViolation) {
    guard start < text.count, let kind = Kind(rawValue: text[start] &- 0x30) else { throw .unknownPacket }
    self.kind = kind
    var index = start &+ 1
    attachments = try kind.isBinary ? Self.attachments(text, &index, limits) : 0
    namespace = Self.namespace(text, &index)
    id = try Self.id(text, &index)
    data = index..<text.count

    var isUnpaired = false
    if !data.isEmpty {
      do throws(JSONError) {
        isUnpaired = try JSONValidator.validate(text.extracting(data)).hasUnpairedSurrogates
      } catch {
        throw .invalidJSON(offset: index &- start &+ error.offset)
      }
    }
    hasUnpairedSurrogates = isUnpaired
    elements = try Self.elements(kind, text, data)
    if kind.isBinary, !Placeholders.areValid(text, data, attachments: attachments) { throw .invalidPlaceholder }
    if kind == .acknowledgement || kind == .binaryAcknowledgement, id == nil { throw .missingID }
  }

  private static func attachments(
    _ text: Span<UInt8>, _ index: inout Int, _ limits: SocketIOLimits
  ) throws(SocketIOViolation) -> Int {
    let start = index
    while index < text.count, ASCII.isDigit(text[index]) { index &+= 1 }
    guard index > start, index < text.count, text[index] == UInt8(ascii: "-") else { throw .invalidAttachmentCount }
    // If there are too many digits for a number, the count is above any limit.
    let count = text.extracting(start..<index).decimalValue() ?? .max
    guard count <= limits.attachments else { throw .tooManyAttachments(limit: limits.attachments) }
    index &+= 1
    return count
  }

  private static func namespace(_ text: Span<UInt8>, _ index: inout Int) -> Range<Int> {
    guard index < text.count, text[index] == UInt8(ascii: "/") else { return index..<index }
    let start = index
    let end = text.firstIndex(of: UInt8(ascii: ","), from: start) ?? text.count
    index = min(end &+ 1, text.count)
    return start..<end
  }

  private static func id(_ text: Span<UInt8>, _ index: inout Int) throws(SocketIOViolation) -> UInt64? {
    let start = index
    var value: UInt64 = 0
    while index < text.count, ASCII.isDigit(text[index]) {
      guard index &- start < idDigits else { throw .longID }
      value = value &* 10 &+ UInt64(text[index] &- 0x30)
      index &+= 1
    }
    return index > start ? value : nil
  }

  /// Checks that `data`, which is empty or valid JSON, fits the type of the packet.
  private static func elements(
    _ kind: Kind, _ text: Span<UInt8>, _ data: Range<Int>
  ) throws(SocketIOViolation) -> ArrayElements? {
    // JSON may begin with whitespace, which is not accepted here: the official parser reads whitespace as the id 0, and
    // servers do not send it.
    let first = data.isEmpty ? 0 : text[data.lowerBound]
    switch kind {
    case .disconnect:
      guard data.isEmpty else { throw .invalidPayload }
    case .connect:
      guard [0, UInt8(ascii: "{"), UInt8(ascii: "["), UInt8(ascii: "n")].contains(first) else { throw .invalidPayload }
    case .connectError:
      guard [0, UInt8(ascii: "\""), UInt8(ascii: "{"), UInt8(ascii: "["), UInt8(ascii: "n")].contains(first) else {
        throw .invalidPayload
      }
    case .acknowledgement, .binaryAcknowledgement:
      guard first == UInt8(ascii: "["), let elements = ArrayElements(text, data) else { throw .invalidPayload }
      return elements
    case .event, .binaryEvent:
      guard first == UInt8(ascii: "["), let elements = ArrayElements(text, data), let name = elements.first,
        isName(text[name.lowerBound])
      else { throw .invalidPayload }
      return elements
    }
    return nil
  }

  /// Whether a value that begins with `byte` is a string or a number.
  private static func isName(_ byte: UInt8) -> Bool {
    byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "-") || ASCII.isDigit(byte)
  }
}
