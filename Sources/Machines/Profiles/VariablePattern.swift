/// The pattern of a variable's value: a subset of regular expressions that always matches the whole value.
///
/// It is a sequence of characters and classes (`[A-Za-z0-9_]`, `[^/]`, `.`, `\d`, `\w`), each with `?`, `*`, `+`,
/// `{m}`, `{m,}` or `{m,n}`. There are no groups and no alternatives, so a match takes time proportional to the length
/// of the value times the length of the pattern, whatever they contain. (A backtracking engine, such as Swift's own,
/// needs exponential time for some patterns.) Values are printable ASCII.
package struct VariablePattern: Hashable, Sendable, CustomStringConvertible {
  /// The pattern as written.
  package let description: String
  private let items: [Item]

  private struct Item: Hashable {
    let characters: CharacterSet
    var minimum = 1
    var maximum = 1
  }

  /// Printable ASCII characters.
  private struct CharacterSet: Hashable {
    private var low: UInt64 = 0
    private var high: UInt64 = 0

    static var all: CharacterSet {
      var set = CharacterSet()
      set.insert(0x20...0x7E)
      return set
    }

    mutating func insert(_ range: ClosedRange<UInt8>) {
      for byte in range where (0x20...0x7E).contains(byte) {
        if byte < 64 { low |= 1 << UInt64(byte) } else { high |= 1 << UInt64(byte - 64) }
      }
    }

    mutating func formUnion(_ other: CharacterSet) {
      low |= other.low
      high |= other.high
    }

    var inverted: CharacterSet {
      var set = Self.all
      set.low &= ~low
      set.high &= ~high
      return set
    }

    var isEmpty: Bool { low == 0 && high == 0 }

    func contains(_ byte: UInt8) -> Bool {
      guard byte < 128 else { return false }
      return (byte < 64 ? low >> UInt64(byte) : high >> UInt64(byte - 64)) & 1 == 1
    }
  }

  /// Maximum length of a pattern, in bytes. The pattern of a UUID, one of the longest useful patterns, has 60 bytes.
  package static let maximumLength = 256
  /// Maximum number of repetitions. No value has more characters.
  static let maximumCount = ProfileVariable.longestValue

  package static let expectation =
    "characters and classes, each with ?, *, + or {m,n}, such as [A-Z]{3,8} or order-\\d+; groups and alternatives are not supported"

  /// Returns nil if `text` is not a pattern.
  package init?(_ text: String) {
    let bytes = Array(text.utf8)
    guard !bytes.isEmpty, bytes.count <= Self.maximumLength, bytes.allSatisfy({ (0x20...0x7E).contains($0) }) else {
      return nil
    }
    var reader = Reader(bytes: bytes)
    guard let items = reader.items() else { return nil }
    self.items = items
    description = text
  }

  /// Whether the whole of `text` matches.
  package func matches(_ text: String) -> Bool {
    let bytes = Array(text.utf8)
    guard bytes.count <= Self.maximumCount else { return false }
    // The positions at which the items so far may end.
    var reachable = [Bool](repeating: false, count: bytes.count + 1)
    reachable[0] = true
    for item in items {
      // Number of reachable positions before each position.
      var before = [0]
      for isReachable in reachable { before.append(before[before.count - 1] + (isReachable ? 1 : 0)) }
      var next = [Bool](repeating: false, count: bytes.count + 1)
      // The beginning of the longest run of characters of the item that ends at `end`.
      var runStart = 0
      for end in next.indices {
        if end > 0, !item.characters.contains(bytes[end - 1]) { runStart = end }
        let first = max(runStart, end - item.maximum)
        let last = end - item.minimum
        next[end] = first <= last && before[last + 1] > before[first]
      }
      reachable = next
    }
    return reachable[bytes.count]
  }

  private struct Reader {
    let bytes: [UInt8]
    var index = 0

    mutating func items() -> [Item]? {
      var items: [Item] = []
      // The pattern matches the whole value, with or without anchors.
      if bytes.first == UInt8(ascii: "^") { index = 1 }
      while index < bytes.count {
        if bytes[index] == UInt8(ascii: "$"), index == bytes.count - 1 { break }
        guard var item = set().map({ Item(characters: $0) }), quantify(&item) else { return nil }
        items.append(item)
      }
      return items
    }

    private mutating func set() -> CharacterSet? {
      let byte = bytes[index]
      index += 1
      switch byte {
      case UInt8(ascii: "."): return .all
      case UInt8(ascii: "["): return brackets()
      case UInt8(ascii: "\\"): return escape()
      case UInt8(ascii: "("), UInt8(ascii: ")"), UInt8(ascii: "|"), UInt8(ascii: "]"), UInt8(ascii: "{"),
        UInt8(ascii: "}"), UInt8(ascii: "*"), UInt8(ascii: "+"), UInt8(ascii: "?"), UInt8(ascii: "^"),
        UInt8(ascii: "$"):
        return nil
      default: return single(byte)
      }
    }

    private func single(_ byte: UInt8) -> CharacterSet {
      var set = CharacterSet()
      set.insert(byte...byte)
      return set
    }

    /// After a backslash: `\d`, `\w`, or a character that is not a letter or digit.
    private mutating func escape() -> CharacterSet? {
      guard index < bytes.count else { return nil }
      let byte = bytes[index]
      index += 1
      var set = CharacterSet()
      switch byte {
      case UInt8(ascii: "d"): set.insert(UInt8(ascii: "0")...UInt8(ascii: "9"))
      case UInt8(ascii: "w"):
        set.insert(UInt8(ascii: "0")...UInt8(ascii: "9"))
        set.insert(UInt8(ascii: "A")...UInt8(ascii: "Z"))
        set.insert(UInt8(ascii: "a")...UInt8(ascii: "z"))
        set.insert(UInt8(ascii: "_")...UInt8(ascii: "_"))
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "a")...UInt8(ascii: "z"):
        return nil
      default: set.insert(byte...byte)
      }
      return set
    }

    private mutating func brackets() -> CharacterSet? {
      var set = CharacterSet()
      var isNegated = false
      if index < bytes.count, bytes[index] == UInt8(ascii: "^") {
        isNegated = true
        index += 1
      }
      while index < bytes.count, bytes[index] != UInt8(ascii: "]") {
        let byte = bytes[index]
        index += 1
        if byte == UInt8(ascii: "\\") {
          guard let escaped = escape() else { return nil }
          set.formUnion(escaped)
        } else if index + 1 < bytes.count, bytes[index] == UInt8(ascii: "-"), bytes[index + 1] != UInt8(ascii: "]") {
          let end = bytes[index + 1]
          guard end >= byte, end != UInt8(ascii: "\\") else { return nil }
          set.insert(byte...end)
          index += 2
        } else {
          set.insert(byte...byte)
        }
      }
      guard index < bytes.count, !set.isEmpty else { return nil }
      index += 1
      return isNegated ? set.inverted : set
    }

    private mutating func quantify(_ item: inout Item) -> Bool {
      guard index < bytes.count else { return true }
      switch bytes[index] {
      case UInt8(ascii: "?"): item.minimum = 0
      case UInt8(ascii: "*"): (item.minimum, item.maximum) = (0, maximumCount)
      case UInt8(ascii: "+"): item.maximum = maximumCount
      case UInt8(ascii: "{"):
        guard let end = bytes[index...].firstIndex(of: UInt8(ascii: "}")) else { return false }
        let numbers = bytes[(index + 1)..<end].split(separator: UInt8(ascii: ","), omittingEmptySubsequences: false)
        guard numbers.count <= 2, let minimum = count(numbers[0]) else { return false }
        item.minimum = minimum
        item.maximum = minimum
        if numbers.count == 2 {
          guard let maximum = numbers[1].isEmpty ? maximumCount : count(numbers[1]) else { return false }
          item.maximum = maximum
        }
        guard item.minimum <= item.maximum, item.maximum > 0 else { return false }
        index = end
      default: return true
      }
      index += 1
      return true
    }

    private func count(_ digits: ArraySlice<UInt8>) -> Int? {
      guard (1...3).contains(digits.count), digits.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
      let value = digits.reduce(0) { $0 * 10 + Int($1 - 0x30) }
      return value <= maximumCount ? value : nil
    }

    private var maximumCount: Int { VariablePattern.maximumCount }
  }
}
