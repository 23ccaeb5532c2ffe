import ByteStreams
import JSONCodec

/// A JSON object that a gateway has sent.
struct Document {
  /// Maximum number of elements that are read from an array.
  private static let elementLimit = 10_000

  /// The JSON text, without a line break.
  let bytes: [UInt8]
  private let object: JSONObject

  /// Returns nil unless `bytes` is a JSON object.
  init?(_ bytes: [UInt8]) {
    guard JSONValidator.isValid(bytes.span), let object = JSONObject(bytes.span) else { return nil }
    self.bytes = bytes
    self.object = object
  }

  private func value(_ name: String) -> Range<Int>? {
    object.members.first { JSONString.equals(bytes.span.extracting($0.name), Array(name.utf8)) }?.value
  }

  /// The content of a string; nil if the member is missing or not a string.
  func content(_ name: String) -> [UInt8]? { value(name).flatMap { JSONString.content(of: bytes.span.extracting($0)) } }

  /// The text of a string; nil if the member is missing or not a string.
  func text(_ name: String) -> String? { content(name).map { String(decoding: $0, as: UTF8.self) } }

  /// The value of any member, as JSON; nil if the member is missing.
  func json(_ name: String) -> String? { value(name).map { String(decoding: bytes[$0], as: UTF8.self) } }

  func integer(_ name: String) -> Int? { json(name).flatMap { Int($0) } }

  func number(_ name: String) -> Double? { json(name).flatMap { Double($0) } }

  func isTrue(_ name: String) -> Bool { json(name) == "true" }

  func object(_ name: String) -> Document? { value(name).flatMap { Document(Array(bytes[$0])) } }

  /// The elements of an array that are objects.
  func objects(_ name: String) -> [Document] { elements(name).compactMap { Document(Array(bytes[$0])) } }

  /// The elements of an array that are strings.
  func texts(_ name: String) -> [String] {
    elements(name).compactMap { JSONString.content(of: bytes.span.extracting($0)) }.map {
      String(decoding: $0, as: UTF8.self)
    }
  }

  private func elements(_ name: String) -> [Range<Int>] {
    guard let range = value(name) else { return [] }
    let elements = JSONArray.elements(of: bytes.span.extracting(range), maximum: Self.elementLimit) ?? []
    return elements.map { range.lowerBound + $0.lowerBound..<range.lowerBound + $0.upperBound }
  }

  /// Returns the JSON string token for this text.
  static func string(_ text: String) -> String {
    var output = ByteQueue()
    output.append(jsonString: text)
    return output.bytes.text()
  }
}
