import ByteStreams
import Foundation
import HTTPCodec
import Logging
import Testing

@testable import HTTPServer

/// The fields of an access log line.
@Suite struct AccessLineTests {
  private func fields(_ line: AccessLine, id: String = "", at now: MonotonicTime, _ format: LogFieldFormat) -> String {
    var ids = ByteQueue()
    ids.append(id)
    ids.append("-of-the-next-request" as StaticString)
    var output = ByteQueue()
    line.write(ids: ids, client: Array("192.0.2.1:5000".utf8), at: now, format, to: &output)
    return String(decoding: output.copyBytes(), as: UTF8.self)
  }

  private static let start = MonotonicTime.zero + .seconds(7)

  private var poll: AccessLine {
    var line = AccessLine(began: Self.start)
    line.method = .get
    line.route = "/v1/messages"
    line.idCount = 4
    line.status = 200
    line.bytes = 412
    line.held = .milliseconds(25_000)
    return line
  }

  @Test func aLineHasEveryFieldInBothFormats() {
    let now = Self.start + .microseconds(25_001_204)
    #expect(
      fields(poll, id: "id-1", at: now, .json)
        == #","request_id":"id-1","principal":"-","client":"192.0.2.1:5000","method":"GET","route":"/v1/messages","#
        + #""status":200,"bytes":412,"seconds":25.001204,"held_seconds":25.000000"#)
    #expect(
      fields(poll, id: "id-1", at: now, .text)
        == "  request_id=id-1  principal=-  client=192.0.2.1:5000  method=GET  route=/v1/messages  status=200  bytes=412"
        + "  seconds=25.001204  held_seconds=25.000000")
  }

  @Test(arguments: [(AccessLine.Abort.receiving, "receiving"), (.held, "held"), (.sending, "sending")])
  func theLineOfAnAbortedRequestSaysWhatItWasDoing(abort: AccessLine.Abort, name: String) {
    var line = poll
    line.abort = abort
    #expect(fields(line, id: "id-1", at: Self.start, .json).hasSuffix(#","aborted":"\#(name)""#))
    #expect(fields(line, id: "id-1", at: Self.start, .text).hasSuffix("  aborted=\(name)"))
  }

  @Test func aLineNamesThePrincipalOfItsRequest() {
    var line = poll
    line.principal = "billing"
    #expect(fields(line, id: "id-1", at: Self.start, .text).contains("  principal=billing  client="))
    #expect(fields(line, id: "id-1", at: Self.start, .json).contains(#","principal":"billing","client":"#))
    // The issuer and subject of a JWT.
    line.principal = #"https://login.example a"b"#
    #expect(
      fields(line, id: "id-1", at: Self.start, .text).contains(#"  principal="https://login.example a\"b"  client="#))
    #expect(
      fields(line, id: "id-1", at: Self.start, .json).contains(#","principal":"https://login.example a\"b","client":"#))
  }

  @Test func aLineNamesTheTraceOfItsRequest() {
    var line = poll
    line.traceID = TraceID(traceparent: Array("00-0000000000000abc0000000000000def-00f067aa0ba902b7-01".utf8).span)
    let id = "0000000000000abc0000000000000def"
    #expect(fields(line, id: "id-1", at: Self.start, .json).hasSuffix(#","trace_id":"\#(id)""#))
    #expect(fields(line, id: "id-1", at: Self.start, .text).hasSuffix("  trace_id=\(id)"))
  }

  @Test func anUnknownValueIsADashOrZero() {
    let line = AccessLine(began: Self.start)
    #expect(
      fields(line, at: Self.start, .text)
        == "  request_id=-  principal=-  client=192.0.2.1:5000  method=-  route=-  status=0  bytes=0  seconds=0.000000"
        + "  held_seconds=0.000000")
  }

  @Test func theModeErrorsLogsStatusesFrom400AndAbortedRequests() {
    var line = poll
    #expect(!line.isError)
    line.status = 400
    #expect(line.isError)
    line.status = 399
    #expect(!line.isError)
    line.abort = .held
    #expect(line.isError)
  }
}
