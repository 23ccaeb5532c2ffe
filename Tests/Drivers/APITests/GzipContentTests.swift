import ByteStreams
import Deflate
import Testing

@testable import API

@Suite struct GzipContentTests {
  private func compressed(_ bytes: [UInt8]) -> [UInt8] {
    var deflater = Deflater(.gzip, windowBits: 15, level: 6, memoryLevel: 8)
    var output = ByteQueue()
    deflater.append(bytes.span, into: &output)
    deflater.finish(into: &output)
    return output.copyBytes()
  }

  private func decode(_ bytes: [UInt8], limit: Int = 16 << 20, ratio: Int = 100) throws(Problem) -> [UInt8] {
    try GzipContent.decode(bytes.span, limit: limit, ratio: ratio)
  }

  @Test func refusesARatioAboveTheLimit() throws {
    let bytes = compressed(Array(repeating: 0x20, count: 4 << 20))
    do throws(Problem) {
      _ = try decode(bytes)
      Issue.record("the ratio is 1,000")
    } catch {
      #expect(error.detail.contains("http.inflation_ratio"))
    }
    #expect(try decode(bytes, ratio: 2_000).count == 4 << 20)
    // Small bodies may have any ratio.
    #expect(try decode(compressed(Array(repeating: 0x20, count: 1 << 20))).count == 1 << 20)
  }

  @Test func theSizeIsLimitedWhateverTheRatio() throws {
    let bytes = compressed(Array(repeating: 0x20, count: 65))
    #expect(throws: Problem.self) { try decode(bytes, limit: 64) }
    #expect(try decode(bytes, limit: 65).count == 65)
  }
}
