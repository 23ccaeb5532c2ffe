import ByteStreams
import HTTPCodec
import Testing

@Suite struct ServerResponseTests {
  private static let date = Array("Sun, 06 Nov 1994 08:49:37 GMT".utf8)

  /// The bytes of the response to `request`, and whether the connection is closed after it.
  private func respond(
    to request: String, status: HTTPStatus = .ok, _ content: HTTPResponseContent, _ pieces: [String] = []
  ) throws -> (String, Bool) {
    var connection = HTTPServerConnection()
    var output = ByteQueue()
    connection.receive(Array(request.utf8).span)
    while try connection.nextEvent() != nil {}
    connection.beginResponse(status, content, date: Span(), into: &output)
    output.endFields()
    for piece in pieces { connection.writeContent(Array(piece.utf8).span, into: &output) }
    connection.finishResponse(into: &output)
    return (output.bytes.text(), connection.isClosed)
  }

  @Test func framesAResponseByItsLength() throws {
    let (text, closed) = try respond(to: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", .length(5), ["he", "llo"])
    #expect(text == "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    #expect(!closed)
  }

  @Test func framesStreamsByChunks() throws {
    let long = String(repeating: "a", count: 0x1A3)
    let (text, closed) = try respond(to: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", .stream, ["hello", "", long])
    #expect(text == "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1a3\r\n\(long)\r\n0\r\n\r\n")
    #expect(!closed)
  }

  @Test func streamsToHTTP10UpToTheEndOfTheConnection() throws {
    let (text, closed) = try respond(
      to: "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", .stream, ["hello"])
    #expect(text == "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello")
    #expect(closed)
  }

  @Test func endsContentWithTheConnectionIfRequested() throws {
    let (text, closed) = try respond(to: "GET / HTTP/1.1\r\nHost: a\r\n\r\n", .untilClose, ["hello", "world"])
    #expect(text == "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhelloworld")
    #expect(closed)
  }

  @Test func sendsKeepAliveToHTTP10() throws {
    let (text, closed) = try respond(to: "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", .none)
    #expect(text == "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n")
    #expect(!closed)
  }

  @Test func sendsNoContentToHEAD() throws {
    let request = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"
    #expect(try respond(to: request, .length(5), ["hello"]).0 == "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    #expect(try respond(to: request, .stream, ["hello"]).0 == "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
  }

  /// Whether the response to `request` may be bytes that were prepared for another request.
  private func canSendPreparedResponse(_ request: String) throws -> Bool {
    var connection = HTTPServerConnection()
    connection.receive(Array(request.utf8).span)
    while try connection.nextEvent() != nil {}
    return connection.canSendPreparedResponse
  }

  @Test func usesAPreparedResponseOnlyIfItDoesNotDependOnTheRequest() throws {
    #expect(try canSendPreparedResponse("GET / HTTP/1.1\r\nHost: a\r\nAccept: b\r\n\r\n"))
    #expect(try !canSendPreparedResponse("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"))
    #expect(try !canSendPreparedResponse("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
    #expect(try !canSendPreparedResponse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"))
    #expect(try !canSendPreparedResponse("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe"))
    #expect(try !canSendPreparedResponse(""))
  }

  @Test func readsTheNextRequestAfterAPreparedResponse() throws {
    var connection = HTTPServerConnection()
    let request = Array("GET / HTTP/1.1\r\nHost: a\r\n\r\n".utf8)
    for _ in 0..<2 {
      connection.receive(request.span)
      var events: [HTTPRequestEvent] = []
      while let event = try connection.nextEvent() { events.append(event) }
      connection.completePreparedResponse()
      let isIdle = connection.isIdle
      #expect(events == [.head, .end])
      #expect(isIdle)
    }
  }

  @Test func writesNoLengthForAStatusWithoutContent() throws {
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    #expect(try respond(to: request, status: .noContent, .none).0 == "HTTP/1.1 204 No Content\r\n\r\n")
    #expect(try respond(to: request, status: .notModified, .none).0 == "HTTP/1.1 304 Not Modified\r\n\r\n")
  }

  @Test func writesDateFieldsAndAnUnnamedStatus() throws {
    var connection = HTTPServerConnection()
    var output = ByteQueue()
    connection.receive(Array("GET / HTTP/1.1\r\nHost: a\r\n\r\n".utf8).span)
    while try connection.nextEvent() != nil {}
    connection.closeAfterThisResponse()
    connection.beginResponse(HTTPStatus(rawValue: 299), .none, date: Self.date.span, into: &output)
    output.appendField("Content-Type", "text/plain")
    output.appendField("Retry-After", decimal: 30)
    output.endFields()
    connection.finishResponse(into: &output)
    let text = output.bytes.text()
    #expect(
      text == "HTTP/1.1 299 \r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 0\r\nConnection: close\r\n"
        + "Content-Type: text/plain\r\nRetry-After: 30\r\n\r\n")
    let closed = connection.isClosed
    #expect(closed)
  }

  @Test func sendsContinueOnlyIfTheClientWaitsForIt() throws {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    var connection = HTTPServerConnection()
    var output = ByteQueue()
    connection.receive(Array(head.utf8).span)
    #expect(try [connection.nextEvent(), connection.nextEvent()] == [.head, nil])
    #expect(connection.shouldSendContinue == true)
    connection.writeContinue(into: &output)
    #expect(connection.shouldSendContinue == false)
    connection.receive(Array("ok".utf8).span)
    #expect(try [connection.nextEvent(), connection.nextEvent()] == [.content(2), .end])
    let text = output.bytes.text()
    #expect(text == "HTTP/1.1 100 Continue\r\n\r\n")

    for request in [
      head + "ok", "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
      "POST / HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
    ] {
      var other = HTTPServerConnection()
      other.receive(Array(request.utf8).span)
      let event = try other.nextEvent()
      #expect(event == .head)
      #expect(other.shouldSendContinue == false)
    }
  }

  /// The client may or may not send the announced content. The server could not distinguish this content from the next
  /// request (RFC 9110 §10.1.1).
  @Test func closesAfterItRefusesAnnouncedContent() throws {
    let (text, closed) = try respond(
      to: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n", status: .contentTooLarge,
      .none)
    #expect(text == "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    #expect(closed)
  }

  @Test func readsTheRestOfARequestAfterAnEarlyResponse() throws {
    var connection = HTTPServerConnection()
    var output = ByteQueue()
    connection.receive(Array("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab".utf8).span)
    #expect(try [connection.nextEvent(), connection.nextEvent()] == [.head, .content(2)])
    connection.beginResponse(.notFound, .none, date: Span(), into: &output)
    output.endFields()
    connection.finishResponse(into: &output)
    connection.receive(Array("cdGET / HTTP/1.1\r\nHost: a\r\n\r\n".utf8).span)
    #expect(
      try [connection.nextEvent(), connection.nextEvent(), connection.nextEvent()] == [.content(2), .end, .head])
  }

  @Test func respondsToAFramingErrorOnceAndCloses() throws {
    var connection = HTTPServerConnection()
    var output = ByteQueue()
    connection.receive(Array("GET / HTTP/1.1\r\nHost : a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".utf8).span)
    #expect(throws: HTTPProtocolError.whitespaceBeforeColon) { _ = try connection.nextEvent() }
    #expect(connection.canRespond == true)
    #expect(connection.willClose == true)
    connection.beginResponse(.badRequest, .none, date: Span(), into: &output)
    output.endFields()
    connection.finishResponse(into: &output)
    #expect(connection.isClosed == true)
    let after = try connection.nextEvent()
    #expect(after == nil)
  }

  @Test(arguments: [
    ("HEAD / HTTP/1.1\r\n\r\n", false), ("GET / HTTP/1.1\r\n\r\n", true), ("\n", true), ("HEAD\r\n", true),
  ])
  func sendsTheContentOfAnErrorUnlessThatRequestWasHEAD(bad: String, takesContent: Bool) throws {
    var connection = HTTPServerConnection()
    var output = ByteQueue()
    connection.receive(Array("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n\(bad)".utf8).span)
    #expect(try [connection.nextEvent(), connection.nextEvent()] == [.head, .end])
    connection.beginResponse(.ok, .none, date: Span(), into: &output)
    output.endFields()
    connection.finishResponse(into: &output)
    #expect(throws: HTTPProtocolError.self) { _ = try connection.nextEvent() }
    connection.beginResponse(.badRequest, .length(2), date: Span(), into: &output)
    #expect(connection.responseHasContent == takesContent)
  }
}
