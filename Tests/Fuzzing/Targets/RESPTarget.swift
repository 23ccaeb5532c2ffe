import ByteStreams
import RESPCodec

/// Replies of a Redis server, read in pieces, in one piece, and by a simple recursive reader. Strings are also written
/// as a command.
///
/// Input: a byte for the pieces, a byte for the limits, then the bytes that the server sends.
enum RESPTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let limits = reader.byte() & 1 == 0 ? RESPLimits() : .tight
    let bytes = reader.rest
    let (whole, replies) = try read(bytes, .none, limits)
    try whole.requireAgreement(with: try read(bytes, cuts, limits).transcript, "in pieces it reads")
    let expected = ReferenceRESP.read([UInt8](copying: bytes), limits)
    var reference = Transcript<RESPProtocolError>()
    for reply in expected.replies { reference.note(reply) }
    if expected.isMalformed { reference.failure = .malformedLine }
    try whole.requireAgreement(with: reference, "the simple reader reads")
    for reply in replies { try requireRoundTrip(reply) }
  }

  private static func read(
    _ bytes: Span<UInt8>, _ cuts: Cuts, _ limits: RESPLimits
  ) throws(Finding) -> (transcript: Transcript<RESPProtocolError>, replies: [RESPReply]) {
    var reader = RESPReader(limits: limits)
    var transcript = Transcript<RESPProtocolError>()
    var replies: [RESPReply] = []
    var queue = ByteQueue()
    do throws(RESPProtocolError) {
      for piece in cuts.pieces(of: bytes.count) {
        queue.append(bytes.extracting(piece))
        while let reply = try reader.next(from: &queue) {
          transcript.note(reply)
          replies.append(reply)
        }
      }
    } catch {
      transcript.failure = error
      return (transcript, replies)
    }
    // The buffer can contain only one line or one string.
    try require(
      queue.count <= max(limits.replyBytes, limits.lineBytes) + 2, "\(queue.count) bytes are kept beyond the limits")
    return (transcript, replies)
  }

  /// A command is an array of strings. The reader must read exactly what the writer has written.
  private static func requireRoundTrip(_ reply: RESPReply) throws(Finding) {
    guard case .array(let elements) = reply, !elements.isEmpty, elements.allSatisfy({ $0.bytes != nil }) else { return }
    var queue = ByteQueue()
    queue.append(command: elements.map { .bytes($0.bytes ?? []) })
    var reader = RESPReader()
    let read = try? reader.next(from: &queue)
    try require(read == reply, "a command is read differently from what was written")
    try require(queue.isEmpty, "bytes follow the command")
  }
}

extension RESPLimits {
  /// Limits that short inputs reach.
  fileprivate static var tight: RESPLimits {
    var limits = RESPLimits()
    limits.lineBytes = 12
    limits.replyBytes = 40
    limits.elements = 5
    limits.depth = 2
    return limits
  }
}

extension Transcript {
  fileprivate mutating func note(_ reply: RESPReply) {
    switch reply {
    case .simple(let text): note("+", Array(text.utf8))
    case .error(let text): note("-", Array(text.utf8))
    case .integer(let value): note(":", number: Int(value))
    case .bulk(let bytes): note("$", bytes)
    case .null: note("_")
    case .array(let elements):
      note("*", number: elements.count)
      for element in elements { note(element) }
    }
  }
}
