import ByteStreams
import HTTPCodec
import TestSupport
import Testing

@Suite struct ServerConnectionTests {
  @Test func readsARequestWithoutContent() {
    expectRequests(
      "GET /v1/messages?wait=5 HTTP/1.1\r\nHost: a:80\r\nAccept:\t*/* \r\nX-Empty:\r\n\r\n",
      ["GET /v1/messages?wait=5 HTTP/1.1", "Host: a:80", "Accept: */*", "X-Empty: ", "end"], showsFields: true)
  }

  @Test func readsContentOfAGivenLength() {
    expectRequests(
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: a\r\n\r\n",
      ["POST / HTTP/1.1", "content hello", "end", "GET / HTTP/1.1", "end"])
  }

  @Test func readsChunksExtensionsAndTrailers() {
    expectRequests(
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        + "5;a=b;c=\"d;\\\"e\"\r\nhello\r\n00B ; x\r\n, the world\r\n0\r\nX-Sum: 7\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
      ["POST / HTTP/1.1", "content hello, the world", "trailer X-Sum: 7", "end", "GET / HTTP/1.1", "end"])
  }

  @Test func skipsAnEmptyLineBetweenRequests() {
    expectRequests(
      "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
      ["GET / HTTP/1.1", "end", "GET /b HTTP/1.1", "end"])
  }

  @Test func anErrorAfterARequestDoesNotBelongToIt() throws {
    var connection = HTTPServerConnection()
    connection.receive(Array("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab\n".utf8).span)
    while try connection.nextEvent() != nil {}
    #expect(connection.hasRequest == true)
    var output = ByteQueue()
    connection.beginResponse(.ok, .none, date: Span(), into: &output)
    output.endFields()
    connection.finishResponse(into: &output)
    do throws(HTTPProtocolError) {
      _ = try connection.nextEvent()
      Issue.record("a line feed between requests is accepted")
    } catch {
      #expect(error == .bareLineFeed)
    }
    #expect(connection.hasRequest == false)
  }

  @Test(arguments: [
    ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", true),
    ("GET / HTTP/1.0\r\n\r\n", false),
    ("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab", true),
    // In these cases, bytes follow the last request, the client may send another request, or the content is incomplete.
    ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET", false),
    ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", false),
    ("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\na", false),
  ])
  func expectsNoInputAfterTheLastRequest(input: String, isLast: Bool) throws {
    var connection = HTTPServerConnection()
    connection.receive(Array(input.utf8).span)
    while try connection.nextEvent() != nil {}
    connection.closeAfterThisResponse()
    #expect(connection.expectsNoInput == isLast)
  }

  @Test func closesAfterARequestThatDoesNotKeepTheConnectionAlive() {
    expectRequests(
      "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
      ["GET / HTTP/1.1", "end", "closed"])
    expectRequests(
      "GET / HTTP/1.0\r\n\r\nGET /b HTTP/1.0\r\n\r\n", ["GET / HTTP/1.0", "end", "closed"])
    expectRequests(
      "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
      ["GET / HTTP/1.0", "end", "GET /b HTTP/1.0", "end", "closed"])
  }

  @Test func reportsTheEndOfInputBetweenRequests() {
    expectRequests("", ["end of input"], endsInput: true)
    expectRequests("GET / HTTP/1.1\r\nHost: a\r\n\r\n", ["GET / HTTP/1.1", "end", "end of input"], endsInput: true)
    expectRequests("GET / HTTP/1.1\r\nHo", [], error: .truncatedMessage, endsInput: true)
    expectRequests(
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na",
      ["POST / HTTP/1.1", "content a"], error: .truncatedMessage, endsInput: true)
  }
}
