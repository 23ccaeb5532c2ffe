import ByteStreams
import HTTPCodec
import Testing

@Suite struct RefusalBodyTests {
  private func body(fields: String, _ content: String, endsAfterwards: Bool = false, size: Int) throws -> String? {
    var decoder = HTTPResponseHeadDecoder()
    let bytes = Array("HTTP/1.1 403 Forbidden\r\n\(fields)\r\n\(content)".utf8)
    var offset = 0
    var input = ByteQueue()
    while !decoder.isComplete {
      let end = min(bytes.count, offset + size)
      input.append(bytes.span.extracting(offset..<end))
      offset = end
      input.consume(try decoder.append(input.bytes))
    }
    var body = RefusalBody(of: HTTPRefusal(decoder))
    body.receive(&input)
    while offset < bytes.count, !body.isComplete {
      let end = min(bytes.count, offset + size)
      input.append(bytes.span.extracting(offset..<end))
      offset = end
      body.receive(&input)
    }
    let isDrained = input.isEmpty
    #expect(isDrained)
    if endsAfterwards { body.receiveEndOfInput() }
    return body.isComplete ? body.bytes.text() : nil
  }

  @Test(arguments: [1, 2, 3, 7, 100_000])
  func readsTheBodyHoweverItIsFramed(size: Int) throws {
    #expect(try body(fields: "Content-Length: 3\r\n", "no!HTTP", size: size) == "no!")
    #expect(try body(fields: "Content-Length: 0\r\n", "", size: size) == "")
    #expect(try body(fields: "Content-Length: 9\r\n", "no!", size: size) == nil)
    #expect(
      try body(fields: "Transfer-Encoding: chunked\r\n", "3\r\nno!\r\n1;x=y\r\n!\r\n0\r\n\r\n", size: size) == "no!!")
    #expect(try body(fields: "Transfer-Encoding: chunked\r\n", "2\r\nno\r\nnonsense", size: size) == "no")
    #expect(try body(fields: "", "no!", endsAfterwards: true, size: size) == "no!")
    #expect(try body(fields: "", "no!", size: size) == nil)
  }

  /// Attack: an endless error page.
  @Test func keepsNoMoreBytesThanItsLimit() throws {
    let page = String(repeating: "x", count: 10_000)
    #expect(try body(fields: "", page, size: 1000)?.utf8.count == 4096)
    #expect(try body(fields: "Content-Length: 10000\r\n", page, size: 100_000)?.utf8.count == 4096)
  }
}
