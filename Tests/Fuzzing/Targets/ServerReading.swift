import ByteStreams
import HTTPCodec

/// Reads a server connection to its end; every request is answered as soon as it has ended.
struct ServerReading {
  /// Is shown each head and its bytes, empty lines before it included.
  typealias Judge = (borrowing HTTPRequestHead, Span<UInt8>) throws(Finding) -> Void

  private var transcript = Transcript<HTTPProtocolError>()
  /// Bytes given to the connection; those that belong to requests which have ended.
  private var received = 0
  private var ended = 0

  /// What the connection tells of `bytes` in these pieces. `prefix` comes before them, whole.
  static func transcript(
    of bytes: Span<UInt8>, after prefix: StaticString = "", cutBy cuts: Cuts, _ limits: HTTPLimits, judge: Judge? = nil
  ) throws(Finding) -> Transcript<HTTPProtocolError> {
    var connection = HTTPServerConnection(limits: limits)
    var reading = ServerReading()
    var head = ByteQueue()
    head.append(prefix)
    connection.receive(head.bytes)
    for piece in cuts.pieces(of: bytes.count) {
      connection.receive(bytes.extracting(piece))
      reading.received = piece.upperBound
      try reading.pull(&connection, bytes, judge)
      // What a connection holds is bounded by what came and by its limits, whatever the bytes announce.
      let most = 4096 + 4 * (head.count + piece.upperBound + limits.headBytes) + 64 * limits.fieldCount
      try require(
        connection.allocatedBytes <= most, "\(connection.allocatedBytes) bytes are held of \(piece.upperBound) received"
      )
    }
    connection.receiveEndOfInput()
    try reading.pull(&connection, bytes, judge)
    return reading.transcript
  }

  private mutating func pull(
    _ connection: inout HTTPServerConnection, _ bytes: Span<UInt8>, _ judge: Judge?
  ) throws(Finding) {
    while let event = nextEvent(&connection) {
      switch event {
      case .head:
        transcript.note(connection.request)
        guard let judge else { continue }
        try judge(connection.request, bytes.extracting(ended..<(received - connection.unparsedBytes)))
      case .content(let count):
        try require(count > 0 && count == connection.content.count, "content of \(count) bytes is shown otherwise")
        transcript.noteContent(connection.content)
      case .trailers:
        transcript.note(connection.request.trailers, "t")
      case .end:
        transcript.note(".")
        ended = received - connection.unparsedBytes
        Self.answer(.ok, &connection)
      case .endOfInput:
        transcript.note("$")
      }
    }
    if connection.canRespond, let failure = transcript.failure { Self.answer(failure.status, &connection) }
  }

  private mutating func nextEvent(_ connection: inout HTTPServerConnection) -> HTTPRequestEvent? {
    do throws(HTTPProtocolError) {
      return try connection.nextEvent()
    } catch {
      transcript.failure = error
      return nil
    }
  }

  private static func answer(_ status: HTTPStatus, _ connection: inout HTTPServerConnection) {
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
  /// So tight that an input of a hundred bytes can reach each of them.
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
