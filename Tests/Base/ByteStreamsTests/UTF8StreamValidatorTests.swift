import ByteStreams
import TestSupport
import Testing

@Suite struct UTF8StreamValidatorTests {
  /// The edges of every range in RFC 3629 §4, and their neighbours.
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

  /// All sequences of up to three edges, compared with the standard library's result for the whole sequence.
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
  func agreesWithTheStandardLibraryAtEverySplit(seed: UInt64) {
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

  /// The vectorised validator reads sixteen bytes at a time, or 64 if they are ASCII, and the last sixteen twice. Every
  /// pair of bytes, and every start of a longer sequence, is tried across each of these edges, after ASCII and after
  /// other text.
  @Test(arguments: [0, 15, 16, 31, 32, 79, 80, 81])
  func agreesWithTheStandardLibraryAcrossBlockBoundaries(edge: Int) {
    let tails: [[UInt8]] = [[], [0x41, 0x41], [0x80, 0x41], [0x80, 0x80], [0xBF, 0xBF]]
    var disagreements = 0
    let fillers: [[UInt8]] = [[0x61, 0x61], [0xC3, 0xA9]]
    for (filler, tail) in fillers.flatMap({ filler in tails.map { (filler, $0) } }) {
      var before: [UInt8] = (0..<edge).map { filler[($0 + edge) % 2] }
      if edge % 2 == 1 { before[0] = 0x61 }
      for end: [UInt8] in [[], Array(repeating: 0x7A, count: 16)] {
        var text = before + [0, 0] + tail + end
        for first in UInt8.min...UInt8.max {
          for second in Self.edges {
            (text[edge], text[edge + 1]) = (first, second)
            let expected = UTF8StreamValidator.isValidByStandardLibrary(text.span)
            if UTF8StreamValidator.isValid(text.span) != expected { disagreements += 1 }
          }
        }
      }
    }
    #expect(disagreements == 0)
  }

  /// Texts of every length, with one wrong byte or none.
  @Test func agreesWithTheStandardLibraryAtEveryLength() {
    var generator = SeededGenerator(seed: 1)
    var disagreements = 0
    for length in 0...260 {
      for _ in 0..<20 {
        var bytes: [UInt8] = []
        while bytes.count < length {
          bytes += Array(String("aaaaaé€😀\u{7FF}\u{FFFF}".randomElement(using: &generator) ?? "a").utf8)
        }
        bytes.removeLast(bytes.count - length)
        if length > 0, Bool.random(using: &generator) {
          bytes[Int.random(in: 0..<length, using: &generator)] = UInt8.random(in: 0...255, using: &generator)
        }
        if UTF8StreamValidator.isValid(bytes.span) != UTF8StreamValidator.isValidByStandardLibrary(bytes.span) {
          disagreements += 1
        }
      }
    }
    #expect(disagreements == 0)
  }

  /// A byte that cannot be part of UTF-8 is refused in the piece that contains it, even if its character is incomplete.
  @Test func failsAtTheFirstInvalidByte() {
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
