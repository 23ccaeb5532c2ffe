import ByteStreams
import HTTPCodec

/// One element of `Sec-WebSocket-Extensions` (RFC 6455 §9.1): a name and its parameters.
package struct ExtensionElement: Equatable, Sendable {
  package let name: String
  /// The parameters, in the order in which they were received. `value` is nil for a parameter without a value.
  package let parameters: [(name: String, value: String?)]

  package static func == (left: ExtensionElement, right: ExtensionElement) -> Bool {
    left.name == right.name
      && left.parameters.elementsEqual(right.parameters) { $0.name == $1.name && $0.value == $1.value }
  }

  /// Parses a field value. Returns nil if it does not match the grammar.
  package static func parse(_ value: Span<UInt8>) -> [ExtensionElement]? {
    var result: [ExtensionElement] = []
    var elements = HTTPListElements(value, quoting: .strings)
    while let element = elements.next() {
      var reader = Reader(element)
      guard let parsed = reader.element() else { return nil }
      result.append(parsed)
    }
    return result
  }

  /// Parses one element from the front.
  private struct Reader: ~Escapable {
    private let bytes: Span<UInt8>
    private var position = 0

    @_lifetime(copy bytes)
    init(_ bytes: Span<UInt8>) { self.bytes = bytes }

    /// `extension = extension-token *( ";" extension-param )`
    @_lifetime(self: copy self)
    mutating func element() -> ExtensionElement? {
      guard let name = token() else { return nil }
      var parameters: [(name: String, value: String?)] = []
      while position < bytes.count {
        guard take(UInt8(ascii: ";")), let name = token() else { return nil }
        var value: String?
        if take(UInt8(ascii: "=")) {
          value = position < bytes.count && bytes[position] == UInt8(ascii: "\"") ? quotedToken() : token()
          if value == nil { return nil }
        }
        parameters.append((name, value))
      }
      return ExtensionElement(name: name, parameters: parameters)
    }

    @_lifetime(self: copy self)
    private mutating func token() -> String? {
      let start = position
      while position < bytes.count, ASCII.isToken(bytes[position]) { position += 1 }
      guard position > start else { return nil }
      let token = bytes.extracting(start..<position).text()
      skipSpace()
      return token
    }

    /// §9.1: a quoted value, without its quotes and backslashes, must be a token.
    @_lifetime(self: copy self)
    private mutating func quotedToken() -> String? {
      var text: [UInt8] = []
      position += 1
      while position < bytes.count, bytes[position] != UInt8(ascii: "\"") {
        if bytes[position] == UInt8(ascii: "\\") { position += 1 }
        guard position < bytes.count, ASCII.isToken(bytes[position]) else { return nil }
        text.append(bytes[position])
        position += 1
      }
      guard take(UInt8(ascii: "\"")), !text.isEmpty else { return nil }
      return text.span.text()
    }

    @_lifetime(self: copy self)
    private mutating func take(_ byte: UInt8) -> Bool {
      guard position < bytes.count, bytes[position] == byte else { return false }
      position += 1
      skipSpace()
      return true
    }

    @_lifetime(self: copy self)
    private mutating func skipSpace() {
      while position < bytes.count, bytes[position] == 0x20 || bytes[position] == 0x09 { position += 1 }
    }
  }
}
