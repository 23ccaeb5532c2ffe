import ByteStreams
import HTTPCodec

/// The `Sec-WebSocket-Extensions` field (RFC 6455 §9.1): names with parameters.
struct ExtensionElement: Equatable {
  let name: String
  /// In order; a parameter without a value has nil.
  let parameters: [(name: String, value: String?)]

  static func == (left: ExtensionElement, right: ExtensionElement) -> Bool {
    left.name == right.name
      && left.parameters.elementsEqual(right.parameters) { $0.name == $1.name && $0.value == $1.value }
  }

  /// The elements of one field value; nil where it does not follow the grammar.
  static func parse(_ value: Span<UInt8>) -> [ExtensionElement]? {
    var result: [ExtensionElement] = []
    var elements = HTTPListElements(value)
    while let element = elements.next() {
      guard let parsed = parse(element: element) else { return nil }
      result.append(parsed)
    }
    return result
  }

  private static func parse(element: Span<UInt8>) -> ExtensionElement? {
    var pieces = HTTPListElements(element, separatedBy: UInt8(ascii: ";"))
    guard let name = pieces.next(), isToken(name) else { return nil }
    var parameters: [(name: String, value: String?)] = []
    while let piece = pieces.next() {
      guard let equals = piece.firstIndex(of: UInt8(ascii: "=")) else {
        guard isToken(piece) else { return nil }
        parameters.append((piece.text(), nil))
        continue
      }
      let parameter = piece.extracting(0..<equals).trimmingWhitespace()
      var value = piece.extracting((equals + 1)..<piece.count).trimmingWhitespace()
      if value.count >= 2, value[0] == UInt8(ascii: "\""), value[value.count - 1] == UInt8(ascii: "\"") {
        value = value.extracting(1..<(value.count - 1))
      }
      // §9.1: a quoted value must be a token once unquoted.
      guard isToken(parameter), isToken(value) else { return nil }
      parameters.append((parameter.text(), value.text()))
    }
    return ExtensionElement(name: name.text(), parameters: parameters)
  }

  private static func isToken(_ bytes: Span<UInt8>) -> Bool {
    for index in bytes.indices where !ASCII.isToken(bytes[index]) { return false }
    return !bytes.isEmpty
  }
}
