import ByteStreams
import HTTPCodec
import Testing

/// `traceparent` of W3C Trace Context. The cases are from the standard's test suite.
@Suite struct TraceIDTests {
  private static let id = "0af7651916cd43dd8448eb211c80319c"
  private static let valid = "00-\(id)-b7ad6b7169203331-01"

  private func read(_ value: String) -> String? { TraceID(traceparent: Array(value.utf8).span)?.text }

  @Test(arguments: [
    valid, "00-\(id)-b7ad6b7169203331-00", "00-\(id)-b7ad6b7169203331-ff", "01-\(id)-b7ad6b7169203331-01",
    "cc-\(id)-b7ad6b7169203331-01-what-the-future-brings", "cc-\(id)-b7ad6b7169203331-01-",
  ])
  func theTraceIsRead(value: String) { #expect(read(value) == Self.id) }

  @Test func leadingZerosAreKept() {
    #expect(
      read("00-00000000000000010000000000000002-0000000000000001-00") == "00000000000000010000000000000002")
  }

  @Test(arguments: [
    "", "-", "00", String(valid.dropLast()), valid + "0", valid + "-", valid + "-01", valid.uppercased(),
    "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-\(id)-0000000000000000-01",
    "ff-\(id)-b7ad6b7169203331-01", "cc-\(id)-b7ad6b7169203331-01.more", "0x-\(id)-b7ad6b7169203331-01",
    "00-\(id)-b7ad6b7169203331-0x", "00-\(id)-b7ad6b716920333x-01", "00-g\(id.dropFirst())-b7ad6b7169203331-01",
    "00_\(id)-b7ad6b7169203331-01", "00-\(id)_b7ad6b7169203331-01", "00-\(id)-b7ad6b7169203331_01",
    "00-\(id.dropLast())-b7ad6b7169203331-01", "000-\(id)-b7ad6b7169203331-01", "00-\(id)é-b7ad6b7169203331-01",
  ])
  func anInvalidValueIsIgnored(value: String) { #expect(read(value) == nil) }

  @Test func aRequestHasATraceIfItHasOneValidField() throws {
    func trace(_ fields: String) throws -> String? {
      var connection = HTTPServerConnection()
      connection.receive(Array("GET / HTTP/1.1\r\nHost: a\r\n\(fields)\r\n".utf8).span)
      let event = try connection.nextEvent()
      #expect(event == .head)
      return connection.request.traceID?.text
    }
    #expect(try trace("TraceParent:  \(Self.valid) \r\n") == Self.id)
    #expect(try trace("") == nil)
    #expect(try trace("traceparent: 1\r\n") == nil)
    #expect(try trace("traceparent: \(Self.valid)\r\ntraceparent: \(Self.valid)\r\n") == nil)
  }
}
