import ByteStreams
import Testing

@Suite struct ByteQueueTests {
  @Test func keepsOrderAcrossGrowthAndConsumption() {
    var queue = ByteQueue()
    var expected: [UInt8] = []
    var generator = SystemRandomNumberGenerator()
    for round in 0..<2_000 {
      let chunk = (0..<Int.random(in: 0...97, using: &generator)).map { UInt8(truncatingIfNeeded: $0 &+ round) }
      queue.append(chunk)
      expected += chunk
      let taken = Int.random(in: 0...expected.count, using: &generator)
      #expect(queue.copyBytes() == expected)
      queue.consume(taken)
      expected.removeFirst(taken)
    }
  }

  @Test(arguments: [0, 1, 9, 10, 99, 100, 12_345, 99_999_999, 100_000_000, 1_000_000_007, .max] as [UInt64])
  func writesDecimals(value: UInt64) {
    var queue = ByteQueue()
    queue.append(decimal: value)
    let written = queue.bytes.text()
    #expect(written == String(value))
  }

  @Test func writesNumbersWithLeadingZeros() {
    var queue = ByteQueue()
    queue.append(decimal: 7, digits: 3)
    queue.append(decimal: 12_345, digits: 4)
    queue.append(decimal: 0, digits: 2)
    queue.append(hexadecimal: 0xAF, digits: 5)
    let written = queue.bytes.text()
    #expect(written == "007234500000af")
  }

  @Test(arguments: [0, 1, 15, 16, 255, 256, 0xDEAD_BEEF, .max] as [UInt64])
  func writesHexadecimals(value: UInt64) {
    var queue = ByteQueue()
    queue.append(hexadecimal: value)
    let written = queue.bytes.text()
    #expect(written == String(value, radix: 16))
  }

  @Test func removesBytesFromTheMiddle() {
    var queue = ByteQueue()
    queue.append("0123456789abcdef" as StaticString)
    queue.consume(4)
    queue.remove(3, at: 2)
    #expect(queue.copyBytes() == Array("459abcdef".utf8))
    queue.remove(4, at: 5)
    #expect(queue.copyBytes() == Array("459ab".utf8))
    queue.remove(0, at: 5)
    queue.remove(5, at: 0)
    #expect(queue.copyBytes() == [])
  }

  @Test func appendingEmptyTextAllocatesNothing() {
    var queue = ByteQueue()
    queue.append(String())
    queue.append("")
    queue.append([])
    #expect(queue.isEmpty && queue.allocatedBytes == 0)
  }

  @Test func hasNoMemoryBeforeTheFirstByteAndAfterRelease() {
    var queue = ByteQueue()
    #expect(queue.allocatedBytes == 0)
    queue.append("x" as StaticString)
    #expect(queue.allocatedBytes > 0)
    queue.releaseStorage()
    #expect(queue.allocatedBytes == 0 && queue.isEmpty)
  }
}

@Suite struct ASCIITests {
  @Test func readsDecimalsUpToTheLargestInteger() {
    func value(_ text: String) -> Int? { Array(text.utf8).span.decimalValue() }
    #expect(value("0") == 0)
    #expect(value("9223372036854775807") == Int.max)
    #expect(value("9223372036854775808") == nil)
    #expect(value("99999999999999999999") == nil)
    #expect(value("") == nil)
    #expect(value("1a") == nil)
    #expect(value("-1") == nil)
  }

  @Test func onlyEqualsIgnoringCaseIgnoresCase() {
    let field = Array("Content-Type".utf8)
    let anyCase = field.span.equalsIgnoringCase("content-type")
    let letterForLetter = field.span.equals("content-type")
    #expect(anyCase && !letterForLetter)
  }
}

@Suite struct Base64Tests {
  @Test(arguments: [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")])
  func encodesTheVectorsOfRFC4648(plain: String, encoded: String) {
    let output = Base64.encode(Array(plain.utf8).span)
    #expect(output == encoded)
    let isEncoding = Base64.isEncoding(Array(encoded.utf8).span, ofBytes: plain.utf8.count)
    #expect(isEncoding)
  }

  @Test(arguments: [
    ("Zg==", 2), ("Zh==", 1), ("Zm9=", 2), ("Zg=", 1), ("Z-==", 1), ("Zm9v====", 4), ("=m9v", 3), ("Z===", 1),
  ])
  func recognisesTextThatNoEncoderWrites(text: String, count: Int) {
    let isEncoding = Base64.isEncoding(Array(text.utf8).span, ofBytes: count)
    #expect(!isEncoding)
  }

  @Test(arguments: [
    ("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("\u{fb}\u{ff}", "w7vDvw"), ("~~?", "fn4_"), ("~~>", "fn4-"),
  ])
  func decodesBothAlphabets(plain: String, digits: String) {
    let url = Base64.decodeURL(Array(digits.utf8).span)
    #expect(url == Array(plain.utf8))
    let standard = Base64.encode(Array(plain.utf8).span)
    var output = ByteQueue()
    Base64.decode(Array(standard.utf8).span, into: &output)
    #expect(output.copyBytes() == Array(plain.utf8))
    let strict = Base64.decode(Array(standard.utf8).span)
    #expect(strict == Array(plain.utf8))
    let count = Base64.decodedCount(Array(standard.utf8).span)
    #expect(count == plain.utf8.count)
  }

  @Test(arguments: [
    "Z", "Zg", "Zh==", "Zm9=", "Zg=", "Z-==", "Zm9v====", "=m9v", "Z===", "====", "Zg==Zg==", "Zm 9", "Zm9v\n",
  ])
  func decodesOnlyTheCanonicalEncoding(text: String) {
    let decoded = Base64.decode(Array(text.utf8).span)
    #expect(decoded == nil)
  }

  @Test(arguments: ["Z", "Zh", "Zg=", "Zg==", "Zm9", "Zm9v+A", "Zm9v/A", "Zm 9", "Zm9vZ"])
  func acceptsOnlyTheCanonicalEncodingForURLs(text: String) {
    let decoded = Base64.decodeURL(Array(text.utf8).span)
    #expect(decoded == nil)
  }

  @Test func releasesMemoryThatItsBytesDoNotNeed() {
    var queue = ByteQueue()
    let content = (0..<100_000).map { UInt8(truncatingIfNeeded: $0) }
    queue.append(content)
    queue.consume(90_000)
    queue.releaseSpareCapacity()
    #expect(queue.allocatedBytes == 10_000)
    #expect(queue.copyBytes() == Array(content[90_000...]))
    queue.append([1, 2])
    #expect(queue.count == 10_002)
    // A small buffer keeps its memory, because the saving is not worth a copy.
    var small = ByteQueue()
    small.append([UInt8](repeating: 0, count: 4000))
    small.consume(3999)
    small.releaseSpareCapacity()
    #expect(small.allocatedBytes == 4096)
  }
}
