import ByteStreams
import TestSupport
import Testing

@testable import API

@Suite struct BatchLinesTests {
  private func split(_ bytes: [UInt8], atMost limit: Int = .max, sharesStorage: Bool) -> [ByteSlice]? {
    BatchLines.split(bytes.span, atMost: limit, sharesStorage: sharesStorage)
  }

  /// Lines with lengths around the size of a piece, with either line end, and with empty lines between them.
  @Test(arguments: 1...100 as ClosedRange<UInt64>)
  func splitsLikeTheStandardLibrary(seed: UInt64) throws {
    var random = SeededGenerator(seed: seed)
    var text = ""
    var expected: [String] = []
    for number in 0..<Int.random(in: 0...60, using: &random) {
      let length = [0, 1, 90, 400, 4_094, 4_095, 4_096, 5_000].randomElement(using: &random) ?? 0
      let line = length == 0 ? "" : String("\(number)" + String(repeating: "é", count: length / 2)).prefix(length)
      text += line
      if !line.isEmpty { expected.append(String(line)) }
      text += Bool.random(using: &random) ? "\n" : "\r\n"
    }
    if Bool.random(using: &random), text.hasSuffix("\n") || text.hasSuffix("\r\n") { text.removeLast() }
    let bytes = Array(text.utf8)
    for sharesStorage in [true, false] {
      let lines = try #require(split(bytes, sharesStorage: sharesStorage))
      #expect(lines.map { $0.bytes.text() } == expected)
      #expect(expected.isEmpty || split(bytes, atMost: expected.count - 1, sharesStorage: true) == nil)
    }
  }

  /// A queued message keeps only a part of its batch in memory, whatever the size of the batch.
  @Test func aMessageKeepsOnlyItsOwnPartOfTheBody() throws {
    let line = String(repeating: "x", count: 99) + "\n"
    let bytes = Array(String(repeating: line, count: 1_000).utf8)
    let shared = try #require(split(bytes, sharesStorage: true))
    #expect(shared.map(\.storage.count).max() == 4_000)
    let alone = try #require(split(bytes, sharesStorage: false))
    #expect(alone.map(\.storage.count).max() == 100)
  }

  @Test func emptyLinesHaveALimit() throws {
    for ending in ["\n", "\r\n"] {
      let most = Array("a\n".utf8) + Array(String(repeating: ending, count: BatchLines.maximumEmptyLines).utf8)
      for sharesStorage in [true, false] {
        #expect(split(most + Array("b".utf8), atMost: 2, sharesStorage: sharesStorage)?.count == 2)
        #expect(split(most + Array("\nb".utf8), atMost: 2, sharesStorage: sharesStorage) == nil)
      }
    }
  }

  @Test func namesTheFirstLineThatIsNotUTF8() {
    let bytes = Array("one\r\n\ntwo\n".utf8) + [0xC3] + Array("\nfour\n".utf8)
    #expect(BatchLines.firstInvalid(in: bytes.span) == 4)
  }
}
