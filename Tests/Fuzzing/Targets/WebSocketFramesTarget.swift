import ByteStreams
import WebSocketCodec

/// The frames of a peer, read in pieces, in one piece, and by a simple parser.
///
/// Input: a byte for the pieces, a byte for role, compression and limits, then the bytes that the peer sends.
enum WebSocketFramesTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let options = reader.byte()
    let role: WebSocketRole = options & 1 == 0 ? .client : .server
    var compression: MessageCompression.Settings?
    if options & 2 != 0 {
      compression = MessageCompression.Settings()
      compression?.inboundResets = options & 4 != 0
    }
    let limits: WebSocketLimits = options & 8 == 0 ? .moderate : .tight
    let bytes = reader.rest
    let whole = try read(bytes, .none, role, limits, compression)
    let cut = try read(bytes, cuts, role, limits, compression)
    try whole.requireAgreement(with: cut, "in pieces it reads")

    var reference = ReferenceFrames([UInt8](copying: bytes), role, limits, compression)
    let expected = reference.read()
    let isSame = whole.bytes.starts(with: expected.bytes) && (whole.failure == nil) == (expected.failure == nil)
    try require(isSame, "it reads\n\(whole)\nbut the reference\n\(expected)")
  }

  private static func read(
    _ bytes: Span<UInt8>, _ cuts: Cuts, _ role: WebSocketRole, _ limits: WebSocketLimits,
    _ compression: MessageCompression.Settings?
  ) throws(Finding) -> Transcript<WebSocketProtocolError> {
    var connection = WebSocketConnection(role: role, limits: limits, compression: compression)
    var transcript = Transcript<WebSocketProtocolError>()
    var received = 0
    for piece in cuts.pieces(of: bytes.count) {
      connection.receive(bytes.extracting(piece))
      received += piece.count
      pull(&connection, into: &transcript)
      let inflated = compression == nil ? 0 : 4 * limits.messageBytes + 64 * 1024
      try require(
        connection.allocatedBytes <= 4096 + 8 * received + inflated,
        "\(connection.allocatedBytes) bytes are allocated for \(received) received")
    }
    let ending = connection.receiveEndOfInput()
    try require(transcript.failure == connection.failure, "the thrown failure differs from the stored one")
    guard transcript.failure == nil else { return transcript }
    transcript.note("$", Array("\(ending)".utf8))
    var output = ByteQueue()
    var generator = ConstantGenerator()
    connection.writeReplies(using: &generator, into: &output)
    transcript.note(">", output.bytes)
    return transcript
  }

  private static func pull(
    _ connection: inout WebSocketConnection, into transcript: inout Transcript<WebSocketProtocolError>
  ) {
    do throws(WebSocketProtocolError) {
      while let event = try connection.nextEvent() { transcript.note(event, connection.payload) }
    } catch {
      transcript.failure = error
    }
  }
}

extension Transcript {
  mutating func note(_ event: WebSocketEvent, _ payload: Span<UInt8>) {
    switch event {
    case .message(let kind): note(kind == .text ? "t" : "b", payload)
    case .ping: note("i", payload)
    case .pong: note("o", payload)
    case .close(let code, let reason): noteClose(code, Array(reason.utf8))
    }
  }

  mutating func noteClose(_ code: UInt16?, _ reason: [UInt8]) {
    note("c", number: code.map(Int.init) ?? -1)
    note("r", reason)
  }
}

extension WebSocketLimits {
  /// Allows all messages of an input, but not a decompression bomb.
  fileprivate static var moderate: WebSocketLimits { with(messageBytes: 16 * 1024, fragments: 1000, pendingPongs: 16) }
  /// Low limits, within reach of an input of a hundred bytes.
  fileprivate static var tight: WebSocketLimits { with(messageBytes: 48, fragments: 3, pendingPongs: 2) }

  private static func with(messageBytes: Int, fragments: Int, pendingPongs: Int) -> WebSocketLimits {
    var limits = WebSocketLimits()
    limits.messageBytes = messageBytes
    limits.inflationFloor = messageBytes
    limits.fragments = fragments
    limits.pendingPongs = pendingPongs
    return limits
  }
}

/// Generates zeros, so that every run uses the same bytes.
struct ConstantGenerator: RandomNumberGenerator {
  mutating func next() -> UInt64 { 0 }
}
