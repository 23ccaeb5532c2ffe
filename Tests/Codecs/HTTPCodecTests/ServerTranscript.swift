import ByteStreams
import HTTPCodec
import TestSupport
import Testing

/// The events of a server connection for `pieces`, one per line. Each request gets a response when it has ended.
///
/// A head is shown as `GET /path HTTP/1.1`, followed by its fields. Pieces of content are joined.
func serverTranscript(
  _ pieces: [[UInt8]], limits: HTTPLimits = HTTPLimits(), endsInput: Bool = false, showsFields: Bool = false
) -> [String] {
  var connection = HTTPServerConnection(limits: limits)
  var output = ByteQueue()
  var lines: [String] = []
  func respond(_ status: HTTPStatus) {
    connection.beginResponse(status, .none, date: Span(), into: &output)
    output.endFields()
    connection.finishResponse(into: &output)
  }
  func pull() {
    do throws(HTTPProtocolError) {
      while let event = try connection.nextEvent() {
        switch event {
        case .head:
          let method = connection.request.methodBytes.text()
          let target = connection.request.target.text()
          lines.append("\(method) \(target) \(connection.request.isHTTP10 ? "HTTP/1.0" : "HTTP/1.1")")
          guard showsFields else { continue }
          for index in 0..<connection.request.fields.count {
            let name = connection.request.fields.name(at: index).text()
            lines.append("\(name): \(connection.request.fields.value(at: index).text())")
          }
        case .content:
          let text = connection.content.text()
          if let last = lines.last, last.hasPrefix("content ") {
            lines[lines.count - 1] = last + text
          } else {
            lines.append("content " + text)
          }
        case .trailers:
          for index in 0..<connection.request.trailers.count {
            let name = connection.request.trailers.name(at: index).text()
            lines.append("trailer \(name): \(connection.request.trailers.value(at: index).text())")
          }
        case .end:
          lines.append("end")
          respond(.ok)
        case .endOfInput: lines.append("end of input")
        }
      }
    } catch {
      lines.append(line(error))
      if connection.canRespond { respond(error.status) }
    }
  }
  for piece in pieces {
    connection.receive(piece.span)
    pull()
  }
  if endsInput {
    connection.receiveEndOfInput()
    pull()
  }
  if connection.isClosed, lines.last?.first?.isNumber != true, lines.last != "end of input" { lines.append("closed") }
  return lines
}

/// The line for an error.
private func line(_ error: HTTPProtocolError) -> String { "\(error.status.rawValue): \(error)" }

/// Expects these events for `input`, followed by `error`, however the input is split.
func expectRequests(
  _ input: String, _ expected: [String], error: HTTPProtocolError? = nil, limits: HTTPLimits = HTTPLimits(),
  endsInput: Bool = false,
  showsFields: Bool = false, sourceLocation: SourceLocation = #_sourceLocation
) {
  let ending = error.map { [line($0)] } ?? []
  expectEvents(expected + ending, from: input, sourceLocation: sourceLocation) {
    serverTranscript($0, limits: limits, endsInput: endsInput, showsFields: showsFields)
  }
}
