import ByteStreams
import HTTPCodec
import WebSocketCodec

/// A server's response to the opening request, and the bytes after it: frames, or the body of a refusal.
///
/// Input: a byte for the pieces, a byte for the offered extensions, then the bytes that the server sends. The key of
/// the request is always sixteen zero bytes, so the accepted response is always the same.
enum HandshakeResponseTarget {
  private struct Failure: Error, Equatable { let error: HandshakeError }

  static func run(_ input: Span<UInt8>) throws(Finding) {
    var reader = InputReader(input)
    let cuts = reader.cuts()
    let options = reader.byte()
    let bytes = reader.rest
    let request = request(options)
    let limits = options & 16 == 0 ? HTTPLimits() : .tightResponse
    let whole = try read(bytes, .none, request, limits)
    let cut = try read(bytes, cuts, request, limits)
    try whole.requireAgreement(with: cut, "in pieces it reads")
  }

  private static func request(_ options: UInt8) -> ClientHandshake.Request {
    var request = ClientHandshake.Request(target: "/", host: "example.org")
    if options & 1 != 0 { request.subprotocols = ["chat", "v2.chat"] }
    if options & 2 != 0 {
      var offer = CompressionOffer()
      if options & 4 != 0 { offer.serverWindowBits = 12 }
      if options & 8 != 0 { offer.serverResets = true }
      request.compression = offer
    }
    return request
  }

  private static func read(
    _ bytes: Span<UInt8>, _ cuts: Cuts, _ request: ClientHandshake.Request, _ limits: HTTPLimits
  ) throws(Finding) -> Transcript<Failure> {
    var generator = ConstantGenerator()
    var handshake = ClientHandshake(request, limits: limits, using: &generator)
    var transcript = Transcript<Failure>()
    var queue = ByteQueue()
    var result: ClientHandshake.Result?
    var body: RefusalBody?
    for piece in cuts.pieces(of: bytes.count) {
      queue.append(bytes.extracting(piece))
      if result == nil {
        do throws(HandshakeError) {
          result = try handshake.receive(&queue)
        } catch {
          transcript.failure = Failure(error: error)
          return transcript
        }
        guard let result else { continue }
        try note(result, request, &transcript)
        if case .refused(let refusal) = result { body = RefusalBody(of: refusal, limit: 32) }
      }
      if body != nil {
        body?.receive(&queue)
      } else {
        // Frames in the same segment or later belong to the connection, unchanged.
        transcript.noteContent(queue.bytes)
        queue.removeAll()
      }
    }
    // The parser may find an error only at the end of its line. Without that end, there is no response either.
    if result == nil { transcript.failure = Failure(error: .endOfInput) }
    if let body = body.take() {
      try require(body.bytes.count <= 32, "\(body.bytes.count) bytes of a refusal are kept")
      transcript.note("B", body.bytes)
      transcript.note(body.isComplete ? "." : "~")
    }
    return transcript
  }

  private static func note(
    _ result: ClientHandshake.Result, _ request: ClientHandshake.Request, _ transcript: inout Transcript<Failure>
  ) throws(Finding) {
    switch result {
    case .accepted(let agreement):
      if let subprotocol = agreement.subprotocol {
        try require(request.subprotocols.contains(subprotocol), "agreed on '\(subprotocol)', which was not offered")
      }
      transcript.note("s", Array((agreement.subprotocol ?? "-").utf8))
      guard let compression = agreement.compression else { return }
      try check(compression, request.compression)
      transcript.note("z", Array("\(compression)".utf8))
    case .refused(let refusal):
      try require(refusal.status != 101 && refusal.status >= 200, "status \(refusal.status) is read as a refusal")
      transcript.note("S", number: refusal.status)
      transcript.note("R", Array(refusal.reason.utf8))
      for (name, value) in refusal.fields { transcript.note("h", Array("\(name): \(value)".utf8)) }
    }
  }

  private static func check(
    _ agreed: MessageCompression.Settings, _ offer: CompressionOffer?
  ) throws(Finding) {
    guard let offer else { throw Finding("agreed on compression, which was not offered") }
    let windows = [agreed.inboundWindowBits, agreed.outboundWindowBits]
    try require(windows.allSatisfy { (8...15).contains($0) }, "agreed on windows \(windows)")
    try require(
      agreed.inboundWindowBits <= offer.serverWindowBits ?? 15, "agreed on a larger window than requested")
    try require(agreed.inboundResets || !offer.serverResets, "agreed on keeping the history, against the offer")
    // Stops the program if zlib does not support the settings.
    _ = WebSocketConnection(role: .client, compression: agreed)
  }
}

extension HTTPLimits {
  /// Low limits, within reach of an input of a hundred bytes.
  static var tightResponse: HTTPLimits {
    var limits = HTTPLimits()
    limits.headBytes = 192
    limits.fieldCount = 5
    return limits
  }
}
