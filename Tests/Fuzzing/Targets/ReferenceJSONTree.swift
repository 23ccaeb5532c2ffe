/// A JSON value as a tree, made by recursive descent: slow and simple.
indirect enum ReferenceJSONTree {
  case object([(name: [UInt8], value: ReferenceJSONTree)])
  case array([ReferenceJSONTree])
  case string([UInt8])
  /// A number, `true`, `false` or `null`, as written.
  case word([UInt8])

  /// Returns nil unless `bytes` are one JSON value in UTF-8 without unpaired surrogates.
  init?(_ bytes: [UInt8]) {
    var validator = ReferenceJSON(bytes, maximumDepth: 128)
    guard ReferenceUTF8.isValid(bytes), validator.document(), !validator.hasUnpairedSurrogates else { return nil }
    var rest = bytes[...]
    self.init(valid: &rest)
  }

  private init(valid rest: inout ArraySlice<UInt8>) {
    Self.skipSpace(&rest)
    switch rest.first {
    case UInt8(ascii: "{"):
      var members: [(name: [UInt8], value: ReferenceJSONTree)] = []
      while Self.takesElement(&rest, end: UInt8(ascii: "}")) {
        let name = Self.string(&rest)
        Self.skipSpace(&rest)
        // Skips the colon.
        rest.removeFirst()
        members.append((name, ReferenceJSONTree(valid: &rest)))
      }
      self = .object(members)
    case UInt8(ascii: "["):
      var elements: [ReferenceJSONTree] = []
      while Self.takesElement(&rest, end: UInt8(ascii: "]")) { elements.append(ReferenceJSONTree(valid: &rest)) }
      self = .array(elements)
    case UInt8(ascii: "\""):
      self = .string(Self.string(&rest))
    default:
      let word = rest.prefix { !",]} \t\n\r".utf8.contains($0) }
      rest = rest.dropFirst(word.count)
      self = .word(Array(word))
    }
  }

  /// Skips an opening bracket or a comma and returns true, or skips the closing bracket and returns false.
  private static func takesElement(_ rest: inout ArraySlice<UInt8>, end: UInt8) -> Bool {
    skipSpace(&rest)
    let separator = rest.removeFirst()
    if separator == end { return false }
    skipSpace(&rest)
    guard separator != UInt8(ascii: ","), rest.first == end else { return true }
    rest.removeFirst()
    return false
  }

  private static func skipSpace(_ rest: inout ArraySlice<UInt8>) { rest = rest.drop { " \t\n\r".utf8.contains($0) } }

  private static func string(_ rest: inout ArraySlice<UInt8>) -> [UInt8] {
    var end = rest.startIndex + 1
    while rest[end] != UInt8(ascii: "\"") { end += rest[end] == UInt8(ascii: "\\") ? 2 : 1 }
    var reader = ReferenceJSON(Array(rest[...end]), maximumDepth: 1)
    _ = reader.document()
    rest = rest[(end + 1)...]
    return reader.lastString
  }

  /// The values of the members with this name.
  func values(_ name: String) -> [ReferenceJSONTree] {
    guard case .object(let members) = self else { return [] }
    return members.filter { $0.name == Array(name.utf8) }.map(\.value)
  }

  var string: [UInt8]? {
    guard case .string(let text) = self else { return nil }
    return text
  }

  /// The elements of an array of strings.
  var strings: [[UInt8]]? {
    guard case .array(let elements) = self else { return nil }
    let strings = elements.compactMap(\.string)
    return strings.count == elements.count ? strings : nil
  }

  /// The names of an object; nil if two names are equal.
  var uniqueNames: [[UInt8]]? {
    guard case .object(let members) = self else { return nil }
    return Set(members.map(\.name)).count == members.count ? members.map(\.name) : nil
  }
}
