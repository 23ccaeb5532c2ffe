import ByteStreams
import Deflate

/// DEFLATE data in pieces: compared with one piece, and with zlib.
///
/// Input: a byte for the pieces, a byte for format and limit, then the data.
enum InflateTarget {
  private struct Outcome: Equatable {
    var output: [UInt8] = []
    var hasEnded = false
    var failure: InflateError?
  }

  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let options = reader.byte()
    let bytes = reader.rest
    let limit = options & 4 == 0 ? 64 * 1024 : 64
    switch options & 3 {
    case 0:
      try compare(.raw(windowBits: 15), bytes, cuts, limit)
    case 1:
      // Whether zlib detects a distance beyond the agreed window depends on its buffers, so a comparison is not
      // possible.
      _ = try inflate(.raw(windowBits: 9), bytes, cuts, limit)
    default:
      try compare(.gzipOrZlib, bytes, cuts, limit)
    }
  }

  private static func compare(
    _ format: Inflater.Format, _ bytes: Span<UInt8>, _ cuts: Cuts, _ limit: Int
  ) throws(Finding) {
    let whole = try inflate(format, bytes, .none, limit)
    let cut = try inflate(format, bytes, cuts, limit)
    try require(whole == cut, "in one piece: \(whole); in pieces: \(cut)")

    let isRaw = if case .raw = format { true } else { false }
    let reference = ReferenceInflater(isRaw: isRaw)
    let outcome = reference.inflate([UInt8](copying: bytes), limit: limit)
    switch whole.failure {
    case .tooLarge?: try require(reference.output.count > limit, "too large, but it is \(reference.output.count) bytes")
    case .malformed?: try require(outcome == .malformed, "malformed, but zlib reads it")
    case nil:
      try require(outcome == .good, "zlib refuses it as malformed")
      try require(whole.output == reference.output, "zlib reads \(reference.output), not \(whole.output)")
      try require(whole.hasEnded == reference.hasEnded, "ended: \(whole.hasEnded), but zlib: \(reference.hasEnded)")
    }
  }

  private static func inflate(
    _ format: Inflater.Format, _ bytes: Span<UInt8>, _ cuts: Cuts, _ limit: Int
  ) throws(Finding) -> Outcome {
    var inflater = Inflater(format)
    var output = ByteQueue()
    var outcome = Outcome()
    do throws(InflateError) {
      for piece in cuts.pieces(of: bytes.count) {
        try inflater.inflate(bytes.extracting(piece), into: &output, limit: limit)
      }
      outcome.hasEnded = inflater.hasEnded
      outcome.output = output.copyBytes()
    } catch {
      outcome.failure = error
    }
    try require(output.count <= limit + 1, "\(output.count) bytes of output with a limit of \(limit)")
    try require(
      output.allocatedBytes <= 4 * (limit + 512), "\(output.allocatedBytes) bytes are allocated for a limit of \(limit)"
    )
    return outcome
  }
}
