import ByteStreams
import Deflate
import TestSupport
import Testing

@Suite struct InflaterTests {
  private func compressed(_ format: Deflater.Format, _ plain: [UInt8], windowBits: Int = 12) -> [UInt8] {
    var deflater = Deflater(format, windowBits: windowBits)
    var output = ByteQueue()
    deflater.compress(plain.span, into: &output)
    deflater.finish(into: &output)
    return output.copyBytes()
  }

  /// The text to which `pieces` inflate, or the failure.
  private func outcome(_ format: Inflater.Format, _ pieces: [[UInt8]], limit: Int = 1 << 20) -> [String] {
    var inflater = Inflater(format)
    var output = ByteQueue()
    do throws(InflateError) {
      for piece in pieces { try inflater.inflate(piece.span, into: &output, limit: limit) }
    } catch {
      return ["\(error)"]
    }
    return [output.bytes.text(), inflater.hasEnded ? "ended" : "open"]
  }

  @Test(arguments: [Deflater.Format.gzip, .zlib])
  func readsWrappedStreamsHoweverTheyAreSplit(format: Deflater.Format) {
    let text = String(decoding: DeflaterTests.sample(500, seed: 4), as: UTF8.self)
    let bytes = compressed(format, Array(text.utf8))
    expectEvents([text, "ended"], from: bytes) { outcome(.gzipOrZlib, $0) }
    expectEvents(["malformed"], from: bytes + [0]) { outcome(.gzipOrZlib, $0) }
    for cut in 0..<bytes.count {
      let outcome = outcome(.gzipOrZlib, [Array(bytes[..<cut])])
      #expect(outcome.last == "open")
    }
  }

  /// RFC 1952 §2.2: a gzip file is a series of members.
  @Test func readsGzipMembersOneAfterAnother() {
    let bytes = compressed(.gzip, Array("one".utf8)) + compressed(.gzip, []) + compressed(.gzip, Array("two".utf8))
    expectEvents(["onetwo", "ended"], from: bytes) { outcome(.gzipOrZlib, $0) }
  }

  /// Some bits are only padding. If any other bit has changed, the text is never reported as valid.
  @Test func detectsAChangedByte() {
    let text = DeflaterTests.sample(300, seed: 4)
    let bytes = compressed(.gzip, text)
    let whole = outcome(.gzipOrZlib, [bytes])
    // The time, extra flags and system in the header are not checked (RFC 1952 §2.3.1).
    for index in 10..<bytes.count {
      var changed = bytes
      changed[index] ^= 0x10
      let result = outcome(.gzipOrZlib, [changed])
      #expect(result == ["malformed"] || result.last == "open" || result == whole)
    }
  }

  @Test func refusesInvalidDeflateData() {
    #expect(outcome(.gzipOrZlib, [Array("<html>".utf8)]) == ["malformed"])
    // Block type 3 is reserved (RFC 1951 §3.2.3).
    #expect(outcome(.raw(windowBits: 15), [[0x07]]) == ["malformed"])
    // A match that refers to data before the first byte.
    #expect(outcome(.raw(windowBits: 15), [[0x03 | 0x04, 0x02, 0x00, 0x00]]) == ["malformed"])
  }

  /// RFC 7692 §7.2.3.4 and §7.2.3.5: final blocks, and several blocks with one compression history.
  @Test func continuesAfterAFinalBlockWithItsHistory() {
    let hello: [UInt8] = [0xF3, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00]
    let tail: [UInt8] = [0x00, 0x00, 0xFF, 0xFF]
    expectEvents(["Hello", "open"], from: hello + [0x00] + tail) { outcome(.raw(windowBits: 15), $0) }
    // The second Hello is encoded as a match of the first Hello, across the final block.
    expectEvents(["HelloHello", "open"], from: hello + [0x00] + tail + [0xF2, 0x00, 0x11, 0x00, 0x00] + tail) {
      outcome(.raw(windowBits: 15), $0)
    }
  }

  /// Attack: a decompression bomb. One megabyte could become a gigabyte. Memory stays at the limit.
  @Test func stopsAtItsLimitWithoutMemoryForMore() {
    let bomb = compressed(.zlib, [UInt8](repeating: 0, count: 4 << 20), windowBits: 15)
    var inflater = Inflater(.gzipOrZlib)
    var output = ByteQueue()
    var failure: InflateError?
    do throws(InflateError) {
      try inflater.inflate(bomb.span, into: &output, limit: 100_000)
    } catch {
      failure = error
    }
    #expect(failure == .tooLarge)
    let held = output.count
    let allocated = output.allocatedBytes
    #expect(held == 100_001 && allocated <= 262_144)
    #expect(outcome(.gzipOrZlib, [bomb], limit: (4 << 20) - 1) == ["tooLarge"])
    #expect(outcome(.gzipOrZlib, [bomb], limit: 4 << 20).last == "ended")
  }

  /// Attack: empty final blocks of two bytes each. The compression history must not be copied for each of them.
  @Test func readsAMillionEmptyFinalBlocks() throws {
    let blocks = (0..<2_000_000).map { UInt8($0 & 1 == 0 ? 0x03 : 0x00) }
    var inflater = Inflater(.raw(windowBits: 15))
    var output = ByteQueue()
    try inflater.inflate(blocks.span, into: &output, limit: 10)
    let count = output.count
    #expect(count == 0)
  }

  /// However the bytes are split, the outcome is the same as for the whole. The inputs are random bytes, and valid
  /// streams with damage.
  @Test(arguments: 1...200)
  func splitsDoNotChangeTheOutcome(seed: Int) {
    var generator = SeededGenerator(seed: UInt64(seed))
    var bytes = compressed(.raw, DeflaterTests.sample(200, seed: UInt64(seed)))
    if seed % 2 == 0 {
      bytes[Int.random(in: 0..<bytes.count, using: &generator)] = UInt8.random(in: .min ... .max, using: &generator)
    }
    if seed % 5 == 0 { bytes = DeflaterTests.noise(50, seed: UInt64(seed)) }
    expectEvents(outcome(.raw(windowBits: 15), [bytes]), from: bytes) { outcome(.raw(windowBits: 15), $0) }
  }
}
