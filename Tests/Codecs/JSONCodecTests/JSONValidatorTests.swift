import ByteStreams
import Testing

@testable import JSONCodec

@Suite struct JSONValidatorTests {
  @Test(arguments: [
    "0", "-0", "1.5e+10", "\"\"", "\"\\u00e9\\n\"", "[]", "{}", " [1, 2 ,3 ] ", "{\"a\":{\"b\":[null,true,false]}}",
    "\"\\ud83d\\ude00\"", "\"\u{7f}\"", "\"é\"", "1E400", "[[[[]]]]",
  ])
  func acceptsValidJSON(text: String) {
    let valid = JSONValidator.isValid(Array(text.utf8).span)
    #expect(valid)
  }

  @Test(arguments: [
    "", " ", "01", "-", "1.", ".5", "1e", "+1", "tru", "nul", "True", "[1,]", "[,1]", "{\"a\":1,}", "{a:1}",
    "{\"a\" 1}",
    "{\"a\":}", "[1 2]", "\"", "\"\\x\"", "\"\\u12g4\"", "\"\n\"", "\"\t\"", "[", "]", "{", "}", "[}", "{]", "1 2",
    "//", "'a'",
    "NaN", "Infinity", "\u{FEFF}1", "\"\\u123\"", "[1]]", "\u{00}", "0x10",
  ])
  func rejectsInvalidJSON(text: String) {
    let valid = JSONValidator.isValid(Array(text.utf8).span)
    #expect(!valid)
  }

  @Test func limitsNestingWithoutRecursion() {
    func nested(_ depth: Int) -> [UInt8] {
      [UInt8](repeating: UInt8(ascii: "["), count: depth) + [UInt8](repeating: UInt8(ascii: "]"), count: depth)
    }
    let allowed = JSONValidator.isValid(nested(JSONValidator.maximumDepth).span)
    let beyond = JSONValidator.isValid(nested(JSONValidator.maximumDepth + 1).span)
    let hostile = JSONValidator.isValid(nested(1_000_000).span)
    #expect(allowed && !beyond && !hostile)
  }

  @Test(arguments: [
    ("\"\\ud800\"", true), ("\"\\udc00\"", true), ("\"\\ud800\\u0041\"", true), ("\"\\ud800\\ud83d\\ude00\"", true),
    ("\"\\ud83d\\ude00\"", false), ("\"\\u0041\"", false),
  ])
  func reportsUnpairedSurrogates(text: String, expected: Bool) throws {
    let traits = try JSONValidator.validate(Array(text.utf8).span)
    #expect(traits.hasUnpairedSurrogates == expected)
  }

  @Test func reportsThePlaceAndTheReason() {
    do {
      _ = try JSONValidator.validate(Array("[1 2]".utf8).span)
      Issue.record("accepted")
    } catch {
      #expect(error.offset == 3)
    }
  }
}

@Suite struct JSONStringTests {
  @Test func escapesOnlyCharactersThatMustBeEscaped() {
    var queue = ByteQueue()
    queue.append(jsonString: "a\"b\\c\n\r\t\u{01}\u{1f}é/😀")
    let written = queue.bytes.text()
    #expect(written == "\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u001fé/😀\"")
    let valid = JSONValidator.isValid(queue.bytes)
    #expect(valid)
  }

  @Test func escapesAByteAtEveryPositionOfAWord() {
    // Every byte at every place, in texts whose lengths are near the size of a word or of a piece that is processed at
    // once.
    for count in [1, 7, 8, 9, 16, 23, 255, 256, 257, 300] {
      for byte in UInt8(0)..<0x80 {
        for place in Set([0, 1, count / 2, count - 2, count - 1]) where (0..<count).contains(place) {
          var text = [UInt8](repeating: UInt8(ascii: "a"), count: count)
          text[place] = byte
          expectEscaped(text)
        }
      }
    }
    expectEscaped(Array(repeating: 0x01, count: 1000))
    expectEscaped(Array(String(repeating: "{\"key\":\"ä\\\"},", count: 100).utf8))
  }

  private func expectEscaped(_ text: [UInt8]) {
    var expected: [UInt8] = []
    for byte in text {
      switch byte {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"): expected += [UInt8(ascii: "\\"), byte]
      case 0x0A: expected += Array("\\n".utf8)
      case 0x0D: expected += Array("\\r".utf8)
      case 0x09: expected += Array("\\t".utf8)
      case ..<0x20: expected += Array(("\\u00" + (byte < 16 ? "0" : "") + String(byte, radix: 16)).utf8)
      default: expected.append(byte)
      }
    }
    var queue = ByteQueue()
    let isPlain = queue.append(jsonEscaped: text.span)
    let written = queue.copyBytes()
    #expect(written == expected)
    #expect(isPlain == (expected == text))
  }
}
