import ByteStreams
import Deflate
import Testing

@testable import API

/// The work of a slice, as the bytes that it reads and writes.
@Suite struct GzipBodyTests {
  private func compressed(_ bytes: [UInt8]) -> [UInt8] {
    var deflater = Deflater(.gzip, windowBits: 15, level: 6, memoryLevel: 8)
    var output = ByteQueue()
    deflater.append(bytes.span, into: &output)
    deflater.finish(into: &output)
    return output.copyBytes()
  }

  @Test(arguments: [UInt8(0x0A), 0x20, 0x61])
  func aSliceOfABodyHasLimits(byte: UInt8) throws {
    let plain = Array(repeating: byte, count: 8 << 20)
    let bytes = compressed(plain)
    #expect(bytes.count < 16 << 10)
    let body = GzipBody(limit: 16 << 20, ratio: 2_000)
    var slices = 1
    var before = 0
    while body.advance(bytes.span) {
      #expect(body.count - before <= 1 << 20)
      before = body.count
      slices += 1
    }
    #expect(body.count - before <= 1 << 20)
    #expect(slices >= 8)
    #expect(try body.content(of: bytes) == plain)
  }

  @Test func aSliceReadsALimitedNumberOfMembersWithoutContent() throws {
    let member = compressed([])
    let bytes = Array(repeatElement(member, count: 20_000).joined())
    let body = GzipBody(limit: 16 << 20, ratio: 100)
    var slices = 1
    while body.advance(bytes.span) { slices += 1 }
    #expect(slices >= bytes.count >> 16)
    #expect(try body.content(of: bytes) == [])
  }

  @Test func refusesARatioAboveTheLimit() throws {
    let bytes = compressed(Array(repeating: 0x20, count: 4 << 20))
    let body = GzipBody(limit: 16 << 20, ratio: 100)
    do throws(ProblemError) {
      _ = try body.content(of: bytes)
      Issue.record("the ratio is 1,000")
    } catch {
      #expect(error.problem.detail.contains("http.inflation_ratio"))
    }
    #expect(body.count == 0)
    // Small bodies may have any.
    let small = compressed(Array(repeating: 0x20, count: 1 << 20))
    #expect(try GzipBody(limit: 16 << 20, ratio: 100).content(of: small).count == 1 << 20)
  }

  @Test func theSizeIsLimitedWhateverTheRatio() throws {
    let bytes = compressed(Array(repeating: 0x20, count: 65))
    #expect(throws: ProblemError.self) { try GzipBody(limit: 64, ratio: 100).content(of: bytes) }
    #expect(try GzipBody(limit: 65, ratio: 100).content(of: bytes).count == 65)
  }
}
