import ByteStreams
import Deflate

/// Compressed data decompresses to the original, with our inflater and with zlib.
///
/// Input: two bytes for format and parameters, then the messages: a byte for the length of each, and its bytes.
enum DeflateTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let options = reader.byte()
    let effort = reader.byte()
    let formats: [Deflater.Format] = [.raw, .zlib, .gzip]
    let format = formats[Int(options & 3) % 3]
    let windowBits = 9 + Int(options >> 2 & 7) % 7
    let isRaw = format == .raw
    var deflater = Deflater(
      format, windowBits: windowBits, level: 1 + Int(effort & 15) % 9, memoryLevel: 1 + Int(effort >> 4) % 9)
    let resets = isRaw && options & 0x20 != 0
    var compressed = ByteQueue()
    var plain: [UInt8] = []
    var rest = [UInt8](copying: reader.rest)[...]
    while let length = rest.popFirst() {
      let part = Array(rest.prefix(Int(length)))
      rest = rest.dropFirst(part.count)
      let message = options & 0x40 == 0 ? part : Array(repeatElement(part, count: 20).joined())
      plain += message
      deflater.compress(message.span, into: &compressed)
      if resets { deflater.reset() }
    }
    if !isRaw { deflater.finish(into: &compressed) }

    var inflater = Inflater(isRaw ? .raw(windowBits: windowBits) : .gzipOrZlib)
    var output = ByteQueue()
    do throws(InflateError) {
      try inflater.inflate(compressed.bytes, into: &output, limit: plain.count)
    } catch {
      throw Finding("the compressed data is \(error)")
    }
    try require(output.copyBytes() == plain, "the decompressed data differs")
    try require(inflater.hasEnded == !isRaw, "the stream has ended: \(inflater.hasEnded)")
    let reference = ReferenceInflater(isRaw: isRaw)
    let outcome = reference.inflate(compressed.copyBytes(), limit: plain.count)
    try require(outcome == .good && reference.output == plain, "zlib decompresses it differently")
  }
}
