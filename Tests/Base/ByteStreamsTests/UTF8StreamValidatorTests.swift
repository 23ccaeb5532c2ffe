import ByteStreams
import TestSupport
import Testing

@Suite struct UTF8StreamValidatorTests {
  /// The edges of every range of RFC 3629 §4, and their neighbours.
  private static let edges: [UInt8] = [
    0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xAC, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE2, 0xEC, 0xED, 0xEE,
    0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF,
  ]

  private func judge(_ bytes: [UInt8], cutAt cuts: [Int]) -> Bool {
    var validator = UTF8StreamValidator()
    var start = 0
    for end in cuts + [bytes.count] {
      guard validator.append(bytes.span.extracting(start..<end)) else { return false }
      start = end
    }
    return validator.isComplete
  }

  /// All sequences of up to three edges, against the standard library's judgement of the whole.
  @Test func agreesWithTheStandardLibraryOnEveryShortSequence() {
    for first in Self.edges {
      for second in Self.edges {
        for third in Self.edges {
          let bytes = [first, second, third]
          let expected = String(validating: bytes, as: UTF8.self) != nil
          #expect(judge(bytes, cutAt: []) == expected)
          #expect(judge(bytes, cutAt: [1]) == expected)
          #expect(judge(bytes, cutAt: [1, 2]) == expected)
        }
      }
    }
  }

  @Test(arguments: 1...200)
  func agreesWithTheStandardLibraryAtEveryCut(seed: UInt64) {
    var generator = SeededGenerator(seed: seed)
    var bytes = Array(String((0..<6).map { _ in "aé€😀\u{7FF}\u{FFFF}".randomElement(using: &generator) ?? "a" }).utf8)
    if seed % 2 == 0 {
      let index = Int.random(in: 0..<bytes.count, using: &generator)
      bytes[index] = Self.edges.randomElement(using: &generator) ?? 0
    }
    let expected = String(validating: bytes, as: UTF8.self) != nil
    for first in 0...bytes.count {
      for second in first...bytes.count { #expect(judge(bytes, cutAt: [first, second]) == expected) }
    }
  }

  /// A byte that nothing can make right is refused in the piece that brings it, also when the character is not whole.
  @Test func failsAtTheFirstByteThatCannotBe() {
    for (good, bad): ([UInt8], UInt8) in [
      ([], 0x80), ([], 0xC1), ([], 0xF5), ([0xE0], 0x9F), ([0xED], 0xA0), ([0xF0], 0x8F), ([0xF4], 0x90),
      ([0xF0, 0x9F], 0x7F), ([0xF0, 0x9F, 0x98], 0xC0),
    ] {
      var validator = UTF8StreamValidator()
      let before = validator.append(good.span)
      let after = validator.append([bad].span)
      #expect(before && !after)
    }
  }
}
