import ByteStreams
import HTTPCodec

/// A response to the HTTP client, followed by the end of the connection: read in pieces and in one piece.
///
/// Input: a byte for the pieces, a byte for the limits, then the bytes that the server sends.
enum ClientResponseTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let limits = reader.byte() & 1 == 0 ? HTTPLimits() : .tightResponse
    let bytes = reader.rest
    let whole = try read(bytes, .none, limits)
    let cut = try read(bytes, cuts, limits)
    // If a line without an end arrives at once, the reader knows that it is wrong. If it arrives in pieces, the reader
    // would know only at its end.
    if whole.failure != nil, cut.failure == .truncatedMessage { return }
    try whole.requireAgreement(with: cut, "in pieces it reads")
  }

  private static func read(
    _ bytes: Span<UInt8>, _ cuts: Cuts, _ limits: HTTPLimits
  ) throws(Finding) -> Transcript<HTTPProtocolError> {
    var reader = HTTPResponseReader(limits: limits)
    var transcript = Transcript<HTTPProtocolError>()
    var queue = ByteQueue()
    do throws(HTTPProtocolError) {
      for piece in cuts.pieces(of: bytes.count) {
        queue.append(bytes.extracting(piece))
        try reader.receive(&queue)
      }
      if !reader.isComplete {
        transcript.note("~")
        try reader.receiveEndOfInput()
      }
    } catch {
      transcript.failure = error
      return transcript
    }
    try require(reader.isComplete, "the connection has ended, and the response is not complete")
    try require(reader.status == 101 || reader.status >= 200, "status \(reader.status) is read as a final one")
    try require(!reader.allowsReuse || queue.isEmpty, "bytes after the response do not prevent reuse")
    transcript.note("S", number: reader.status)
    transcript.note("R", Array((reader.field(.retryAfter) ?? "-").utf8))
    transcript.note(reader.allowsReuse ? "k" : "c")
    return transcript
  }
}
