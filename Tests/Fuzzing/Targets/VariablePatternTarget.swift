import ByteStreams
import Profiles

/// The pattern of a profile's variable and a client's value, compared with a slow reference.
///
/// Input: a pattern, a line feed, and a value.
enum VariablePatternTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let bytes = [UInt8](copying: input)
    let end = bytes.firstIndex(of: 0x0A) ?? bytes.count
    let text = String(decoding: bytes[..<end], as: UTF8.self)
    let pattern = VariablePattern(text)
    let reference = ReferencePattern(text)
    try require((pattern == nil) == (reference == nil), "'\(text)' is \(pattern == nil ? "refused" : "accepted")")
    guard let pattern, let reference else { return }
    try require(pattern.description == text, "'\(text)' is shown as '\(pattern)'")

    let value = String(decoding: bytes[min(end + 1, bytes.count)...], as: UTF8.self)
    let (matches, expected) = (pattern.matches(value), reference.matches(value))
    try require(matches == expected, "'\(value)' \(matches ? "matches" : "does not match") '\(text)'")
    var variable = ProfileVariable(name: "v")
    variable.pattern = pattern
    let isAccepted = variable.problem(with: value) == nil
    let isPrintable = value.utf8.allSatisfy { (0x20...0x7E).contains($0) }
    try require(!isAccepted || (expected && isPrintable), "'\(value)' is accepted for '\(text)'")
    try require(isAccepted || !expected || !isPrintable, "'\(value)' is refused for '\(text)'")
  }
}

/// Reads a pattern as sets of bytes, and tries every length for each item.
private struct ReferencePattern {
  private struct Item {
    var characters: Set<UInt8>
    var counts: ClosedRange<Int>
  }

  private var items: [Item] = []
  private static let printable = Set<UInt8>(0x20...0x7E)
  private static let syntax = Set("()|]{}*+?^$".utf8)

  init?(_ text: String) {
    var rest = Array(text.utf8)[...]
    guard (1...256).contains(rest.count), rest.allSatisfy(Self.printable.contains) else { return nil }
    if rest.first == UInt8(ascii: "^") { rest.removeFirst() }
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "$"), rest.isEmpty { return }
      guard let characters = Self.characters(byte, &rest), let counts = Self.counts(&rest) else { return nil }
      items.append(Item(characters: characters, counts: counts))
    }
  }

  private static func characters(_ byte: UInt8, _ rest: inout ArraySlice<UInt8>) -> Set<UInt8>? {
    switch byte {
    case UInt8(ascii: "."): printable
    case UInt8(ascii: "\\"): escape(&rest)
    case UInt8(ascii: "["): brackets(&rest)
    case let byte where syntax.contains(byte): nil
    default: [byte]
    }
  }

  private static func escape(_ rest: inout ArraySlice<UInt8>) -> Set<UInt8>? {
    guard let byte = rest.popFirst() else { return nil }
    let digits = Set("0123456789".utf8)
    let letters = Set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ".utf8)
    switch byte {
    case UInt8(ascii: "d"): return digits
    case UInt8(ascii: "w"): return digits.union(letters).union([UInt8(ascii: "_")])
    default: return digits.union(letters).contains(byte) ? nil : [byte]
    }
  }

  private static func brackets(_ rest: inout ArraySlice<UInt8>) -> Set<UInt8>? {
    var isNegated = false
    if rest.first == UInt8(ascii: "^") {
      isNegated = true
      rest.removeFirst()
    }
    var result: Set<UInt8> = []
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "]") {
        guard !result.isEmpty else { return nil }
        return isNegated ? printable.subtracting(result) : result
      }
      if byte == UInt8(ascii: "\\") {
        guard let escaped = escape(&rest) else { return nil }
        result.formUnion(escaped)
        continue
      }
      let following = Array(rest.prefix(2))
      if following.count == 2, following[0] == UInt8(ascii: "-"), following[1] != UInt8(ascii: "]") {
        guard following[1] != UInt8(ascii: "\\"), following[1] >= byte else { return nil }
        result.formUnion(byte...following[1])
        rest = rest.dropFirst(2)
      } else {
        result.insert(byte)
      }
    }
    return nil
  }

  private static func counts(_ rest: inout ArraySlice<UInt8>) -> ClosedRange<Int>? {
    switch rest.first {
    case UInt8(ascii: "?"):
      rest.removeFirst()
      return 0...1
    case UInt8(ascii: "*"):
      rest.removeFirst()
      return 0...256
    case UInt8(ascii: "+"):
      rest.removeFirst()
      return 1...256
    case UInt8(ascii: "{"):
      guard let end = rest.firstIndex(of: UInt8(ascii: "}")) else { return nil }
      let text = String(decoding: rest[rest.index(after: rest.startIndex)..<end], as: UTF8.self)
      rest = rest[(end + 1)...]
      let parts = text.split(separator: ",", omittingEmptySubsequences: false)
      guard let minimum = number(parts[0]) else { return nil }
      switch parts.count {
      case 1: return minimum > 0 ? minimum...minimum : nil
      case 2:
        guard let maximum = parts[1].isEmpty ? 256 : number(parts[1]) else { return nil }
        return maximum > 0 && minimum <= maximum ? minimum...maximum : nil
      default: return nil
      }
    default: return 1...1
    }
  }

  private static func number(_ text: Substring) -> Int? {
    guard text.count <= 3, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let value = Int(text), value <= 256
    else { return nil }
    return value
  }

  /// Remembers failed positions, because the search would otherwise take exponential time.
  func matches(_ text: String) -> Bool {
    let bytes = Array(text.utf8)
    guard bytes.count <= 256 else { return false }
    var failed: Set<Int> = []
    func matches(_ item: Int, _ position: Int) -> Bool {
      if item == items.count { return position == bytes.count }
      let key = item * 512 + position
      if failed.contains(key) { return false }
      var length = 0
      while true {
        if items[item].counts.contains(length), matches(item + 1, position + length) { return true }
        guard length < items[item].counts.upperBound, position + length < bytes.count,
          items[item].characters.contains(bytes[position + length])
        else { break }
        length += 1
      }
      failed.insert(key)
      return false
    }
    return matches(0, 0)
  }
}
