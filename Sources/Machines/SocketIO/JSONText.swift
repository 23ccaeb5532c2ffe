import ByteStreams

/// Walks over valid JSON without allocating. For invalid JSON, too, every index stays inside the text.
struct JSONText {
  private(set) var index: Int
  private let end: Int

  init(_ range: Range<Int>) {
    index = range.lowerBound
    end = range.upperBound
  }

  var isAtEnd: Bool { index >= end }

  mutating func skipWhitespace(_ text: Span<UInt8>) {
    while index < end {
      let byte = text[index]
      guard byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 else { return }
      index &+= 1
    }
  }

  /// Skips whitespace and `byte`. Returns false if another byte follows the whitespace.
  mutating func skip(_ byte: UInt8, _ text: Span<UInt8>) -> Bool {
    skipWhitespace(text)
    guard index < end, text[index] == byte else { return false }
    index &+= 1
    return true
  }

  /// Skips one string, number or word, or one bracket, comma or colon. Returns its range.
  mutating func token(_ text: Span<UInt8>) -> Range<Int>? {
    skipWhitespace(text)
    guard index < end else { return nil }
    let start = index
    switch text[index] {
    case UInt8(ascii: "\""): skipString(text)
    case UInt8(ascii: "["), UInt8(ascii: "]"), UInt8(ascii: "{"), UInt8(ascii: "}"), UInt8(ascii: ","),
      UInt8(ascii: ":"):
      index &+= 1
    default: skipWord(text)
    }
    return start..<index
  }

  /// Skips one value and returns its range.
  mutating func value(_ text: Span<UInt8>) -> Range<Int>? {
    guard let first = token(text) else { return nil }
    var depth = Self.nesting(text[first.lowerBound])
    while depth > 0 {
      guard let next = token(text) else { return nil }
      depth &+= Self.nesting(text[next.lowerBound])
    }
    return first.lowerBound..<index
  }

  private static func nesting(_ byte: UInt8) -> Int {
    switch byte {
    case UInt8(ascii: "["), UInt8(ascii: "{"): 1
    case UInt8(ascii: "]"), UInt8(ascii: "}"): -1
    default: 0
    }
  }

  private mutating func skipString(_ text: Span<UInt8>) {
    index &+= 1
    while let quote = text.firstIndex(of: UInt8(ascii: "\""), from: index), quote < end {
      var backslashes = 0
      while quote &- backslashes > index, text[quote &- backslashes &- 1] == UInt8(ascii: "\\") { backslashes &+= 1 }
      index = quote &+ 1
      if backslashes & 1 == 0 { return }
    }
    index = end
  }

  private mutating func skipWord(_ text: Span<UInt8>) {
    while index < end {
      switch text[index] {
      case UInt8(ascii: ","), UInt8(ascii: ":"), UInt8(ascii: "]"), UInt8(ascii: "}"), UInt8(ascii: "["),
        UInt8(ascii: "{"), UInt8(ascii: "\""), 0x20, 0x09, 0x0A, 0x0D:
        return
      default: index &+= 1
      }
    }
  }
}

/// The elements of an array.
package struct ArrayElements: Equatable, Sendable {
  /// nil if the array is empty.
  package let first: Range<Int>?
  package let last: Range<Int>?
  package let count: Int
  /// From the first element to the end of the last element.
  package let all: Range<Int>
  /// From the second element to the end of the last element.
  package let rest: Range<Int>

  /// The elements of the array at `range`, which must be valid JSON; nil if it is not an array.
  init?(_ text: Span<UInt8>, _ range: Range<Int>) {
    var walk = JSONText(range)
    guard walk.skip(UInt8(ascii: "["), text) else { return nil }
    var first: Range<Int>?
    var second: Range<Int>?
    var last: Range<Int>?
    var count = 0
    while !walk.skip(UInt8(ascii: "]"), text), let element = walk.value(text) {
      if count == 0 { first = element }
      if count == 1 { second = element }
      last = element
      count &+= 1
      _ = walk.skip(UInt8(ascii: ","), text)
    }
    self.first = first
    self.last = last
    self.count = count
    let end = last?.upperBound ?? walk.index
    all = (first?.lowerBound ?? end)..<end
    rest = (second?.lowerBound ?? end)..<end
  }
}
