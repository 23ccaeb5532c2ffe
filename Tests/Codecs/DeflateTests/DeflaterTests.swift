import ByteStreams
import Deflate
import TestSupport
import Testing

@Suite struct DeflaterTests {
  /// Text with repetitions, so that the compression history matters.
  static func sample(_ count: Int, seed: UInt64) -> [UInt8] {
    var generator = SeededGenerator(seed: seed)
    let words = ["{\"price\":", "\"symbol\":", "12.5", "\"BTC\"", ",", "}", "[", "]", "trade", "  "]
    var bytes: [UInt8] = []
    while bytes.count < count { bytes += Array(words[Int.random(in: 0..<words.count, using: &generator)].utf8) }
    return Array(bytes[..<count])
  }

  static func noise(_ count: Int, seed: UInt64) -> [UInt8] {
    var generator = SeededGenerator(seed: seed)
    return (0..<count).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
  }

  @Test(arguments: 9...15, [1, 5, 9])
  func compressedDataInflatesAtEveryWindowAndMemoryLevel(windowBits: Int, memoryLevel: Int) throws {
    var deflater = Deflater(windowBits: windowBits, level: 6, memoryLevel: memoryLevel)
    var inflater = Inflater(.raw(windowBits: windowBits))
    for (index, size) in [0, 1, 127, 128, 4096, 40_000, 70_000].enumerated() {
      for message in [Self.sample(size, seed: UInt64(index)), Self.noise(size, seed: UInt64(index))] {
        var compressed = ByteQueue()
        deflater.compress(message.span, into: &compressed)
        let tail = compressed.count < 4 ? [] : Array(compressed.copyBytes().suffix(4))
        #expect(tail == [0, 0, 0xFF, 0xFF] || message.isEmpty)
        var output = ByteQueue()
        try inflater.inflate(compressed.bytes, into: &output, limit: size)
        let result = output.copyBytes()
        #expect(result == message)
      }
    }
  }

  @Test func historyMakesTheSecondMessageSmallerUntilAReset() {
    let message = Self.sample(300, seed: 1)
    func sizes(resets: Bool) -> [Int] {
      var deflater = Deflater()
      return (0..<2).map { _ in
        var output = ByteQueue()
        deflater.compress(message.span, into: &output)
        if resets { deflater.reset() }
        return output.count
      }
    }
    let kept = sizes(resets: false)
    let forgotten = sizes(resets: true)
    #expect(kept[1] * 4 < kept[0])
    #expect(forgotten[1] == forgotten[0])
  }

  @Test func hasNoMemoryBeforeTheFirstByte() {
    var deflater = Deflater()
    let before = deflater.allocatedBytes
    var output = ByteQueue()
    deflater.compress(Self.sample(10, seed: 1).span, into: &output)
    let after = deflater.allocatedBytes
    #expect(before == 0 && after == 38 * 1024)
  }
}
