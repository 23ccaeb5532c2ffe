import ByteStreams
import HTTPCodec

/// Reads a server connection to its end, and responds to every request when it is complete.
struct ServerReading {
  /// Checks each head against its bytes, which include the empty lines before it.
  typealias HeadCheck = (borrowing HTTPRequestHead, Span<UInt8>) throws(Finding) -> Void

  private var transcript = Transcript<HTTPProtocolError>()
  /// Bytes passed to the connection.
  private var received = 0
  /// Bytes of complete requests.
  private var ended = 0

  /// The events of a connection that receives `prefix` in one piece, then `bytes` in these pieces.
  static func transcript(
    of bytes: Span<UInt8>, after prefix: StaticString = "", cutBy cuts: Cuts, _ limits: HTTPLimits,
    checkHead: HeadCheck? = nil
  ) throws(Finding) -> Transcript<HTTPProtocolError> {
    var connection = HTTPServerConnection(limits: limits)
    var reading = ServerReading()
    var head = ByteQueue()
    head.append(prefix)
    connection.receive(head.bytes)
    for piece in cuts.pieces(of: bytes.count) {
      connection.receive(bytes.extracting(piece))
      reading.received = piece.upperBound
      try reading.readEvents(&connection, bytes, checkHead)
      // The memory of a connection depends on the received bytes and the limits, and not on announced lengths.
      let most = 4096 + 4 * (head.count + piece.upperBound + limits.headBytes) + 64 * limits.fieldCount
      try require(
        connection.allocatedBytes <= most,
        "\(connection.allocatedBytes) bytes are allocated for \(piece.upperBound) received"
      )
    }
    connection.receiveEndOfInput()
    try reading.readEvents(&connection, bytes, checkHead)
    return reading.transcript
  }

  private mutating func readEvents(
    _ connection: inout HTTPServerConnection, _ bytes: Span<UInt8>, _ checkHead: HeadCheck?
  ) throws(Finding) {
    while let event = nextEvent(&connection) {
      switch event {
      case .head:
        transcript.note(connection.request)
        guard let checkHead else { continue }
        try checkHead(connection.request, bytes.extracting(ended..<(received - connection.unparsedBytes)))
      case .content(let count):
        try require(
          count > 0 && count == connection.content.count,
          "the event reports \(count) bytes of content, the connection has \(connection.content.count)")
        transcript.noteContent(connection.content)
      case .trailers:
        transcript.note(connection.request.trailers, "t")
      case .end:
        transcript.note(".")
        ended = received - connection.unparsedBytes
        Self.respond(with: .ok, on: &connection)
      case .endOfInput:
        transcript.note("$")
      }
    }
    if connection.canRespond, let failure = transcript.failure { Self.respond(with: failure.status, on: &connection) }
  }

  private mutating func nextEvent(_ connection: inout HTTPServerConnection) -> HTTPRequestEvent? {
    do throws(HTTPProtocolError) {
      return try connection.nextEvent()
    } catch {
      transcript.failure = error
      return nil
    }
  }

  private static func respond(with status: HTTPStatus, on connection: inout HTTPServerConnection) {
    var output = ByteQueue()
    if connection.shouldSendContinue { connection.writeContinue(into: &output) }
    connection.beginResponse(status, .none, date: Span(), into: &output)
    output.endFields()
    connection.finishResponse(into: &output)
  }
}

extension Transcript {
  fileprivate mutating func note(_ head: borrowing HTTPRequestHead) {
    note("m", head.methodBytes)
    note("T", head.target)
    note("p", head.path)
    note("q", head.query)
    note("a", head.authority)
    let length: Int =
      switch head.framing {
      case .none: -1
      case .length(let count): count
      case .chunked: -2
      }
    note("l", number: length)
    let flags: [UInt8] = [
      head.isHTTP10 ? 1 : 0, head.expectsContinue ? 1 : 0, head.keepsAlive ? 1 : 0, head.targetForm.rawValue,
    ]
    note("f", flags)
    note(head.fields, "h")
  }

  fileprivate mutating func note(_ fields: borrowing HTTPFields, _ kind: Unicode.Scalar) {
    for index in 0..<fields.count {
      note(kind, fields.name(at: index))
      note(":", fields.value(at: index))
      note("#", number: Int(fields.field(at: index).rawValue))
    }
  }
}

extension HTTPLimits {
  /// Low limits, each within reach of an input of a hundred bytes.
  static var tight: HTTPLimits {
    var limits = HTTPLimits()
    limits.requestLineBytes = 48
    limits.headBytes = 160
    limits.fieldCount = 6
    limits.bodyBytes = 64
    limits.chunkOverheadBytes = 48
    limits.chunkExtensionBytes = 24
    limits.trailerBytes = 48
    limits.trailerCount = 2
    limits.leadingEmptyLines = 1
    limits.requestsPerConnection = 3
    limits.pipelinedBytes = 64
    return limits
  }
}
