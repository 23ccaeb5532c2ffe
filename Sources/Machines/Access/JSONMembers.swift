import ByteStreams
import JSONCodec

/// The members of a JSON object, by their decoded names. An object with two members of one name is refused, since some
/// parsers use the first of these members, and others the last (RFC 8259 §4).
struct JSONMembers {
  enum Invalid: Error, Equatable {
    /// Not UTF-8, not JSON, not an object, or with an unpaired surrogate, which has no encoding in UTF-8.
    case notAnObject
    case duplicate(name: String)
    case tooMany
  }

  /// A member has another type than the requested type.
  struct WrongType: Error {}

  private let text: [UInt8]
  private let values: [[UInt8]: Range<Int>]

  init(_ text: [UInt8], maximum: Int) throws(Invalid) {
    guard UTF8StreamValidator.isValid(text.span), let traits = try? JSONValidator.validate(text.span),
      !traits.hasUnpairedSurrogates
    else { throw .notAnObject }
    try self.init(valid: text, maximum: maximum)
  }

  /// - Parameter text: a valid JSON text.
  private init(valid text: [UInt8], maximum: Int) throws(Invalid) {
    guard let first = text.first(where: { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }), first == UInt8(ascii: "{") else {
      throw .notAnObject
    }
    guard let object = JSONObject(text.span), object.members.count <= maximum else { throw .tooMany }
    var values: [[UInt8]: Range<Int>] = [:]
    for member in object.members {
      guard let name = JSONString.content(of: text.span.extracting(member.name)) else { throw .notAnObject }
      guard values.updateValue(member.value, forKey: name) == nil else {
        throw .duplicate(name: name.span.excerpt())
      }
    }
    self.text = text
    self.values = values
  }

  var count: Int { values.count }

  /// Whether there is a member of this name, of any type.
  func has(_ name: String) -> Bool { values[Array(name.utf8)] != nil }

  /// The value as written, or nil if there is none.
  private func value(_ name: String) -> [UInt8]? {
    guard let range = values[Array(name.utf8)] else { return nil }
    return [UInt8](copying: text.span.extracting(range))
  }

  /// The content of a string; nil if there is no such member.
  func string(_ name: String) throws(WrongType) -> [UInt8]? {
    guard let value = value(name) else { return nil }
    return try Self.string(value.span)
  }

  /// The contents of an array of strings.
  func strings(_ name: String, maximum: Int) throws(WrongType) -> [[UInt8]]? {
    guard let value = value(name) else { return nil }
    guard let elements = JSONArray.elements(of: value.span, maximum: maximum) else { throw WrongType() }
    var strings: [[UInt8]] = []
    for element in elements { strings.append(try Self.string(value.span.extracting(element))) }
    return strings
  }

  /// The elements of an array as written.
  func elements(_ name: String, maximum: Int) throws(WrongType) -> [[UInt8]]? {
    guard let value = value(name) else { return nil }
    guard let elements = JSONArray.elements(of: value.span, maximum: maximum) else { throw WrongType() }
    return elements.map { [UInt8](copying: value.span.extracting($0)) }
  }

  func object(_ name: String, maximum: Int) throws(Invalid) -> JSONMembers? {
    guard let value = value(name) else { return nil }
    return try JSONMembers(valid: value, maximum: maximum)
  }

  /// A `NumericDate` (RFC 7519 §2) in milliseconds. Fractions are allowed. Negative numbers, exponents and years from
  /// 10000 on are not: no issuer needs them, and parsers differ in how they read them.
  func time(_ name: String) throws(WrongType) -> Int64? {
    guard let value = value(name) else { return nil }
    let number = value.span
    let end = number.firstIndex(of: UInt8(ascii: ".")) ?? number.count
    guard let seconds = number.extracting(first: end).decimalValue(),
      Int64(seconds) <= UTCTime.representableSeconds.upperBound
    else { throw WrongType() }
    var milliseconds = Int64(seconds) * 1_000
    var weight: Int64 = 100
    for index in min(end + 1, number.count)..<number.count {
      guard ASCII.isDigit(number[index]) else { throw WrongType() }
      milliseconds += Int64(number[index] - 0x30) * weight
      weight /= 10
    }
    return milliseconds
  }

  private static func string(_ token: Span<UInt8>) throws(WrongType) -> [UInt8] {
    guard let content = JSONString.content(of: token) else { throw WrongType() }
    return content
  }
}
