import ByteStreams
import Foundation
import HTTPCodec
import Logging
import Testing

@testable import HTTPServer

/// An access log that writes to a pipe.
final class AccessOutput: Sendable {
  private let pipe = Pipe()
  let log: AccessLog
  let logger: Logger

  init(_ mode: AccessLog.Mode = .all) {
    logger = Logger(level: .error, format: .json, output: pipe.fileHandleForWriting.fileDescriptor)
    log = AccessLog(mode, logger)
  }

  /// The lines written so far. Call it once, for at most as many lines as fit into a pipe.
  func lines() throws -> [[String: Any]] {
    logger.flush()
    pipe.fileHandleForWriting.closeFile()
    let text = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    return try text.split(separator: "\n").map {
      try #require(try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any])
    }
  }
}

/// When the line of a request is written, and the id, bytes and time in it.
@Suite struct AccessRecordTests {
  private static let start = MonotonicTime.zero + .seconds(1)

  private func respond(_ record: AccessRecord, id: String = "", bytes: Int, status: HTTPStatus = .ok) {
    var response = ByteQueue()
    response.append(id)
    record.respond(with: status, id: response)
    record.addBytes(bytes)
    record.finish()
  }

  private func request(_ record: AccessRecord, id: String? = nil) throws {
    var connection = HTTPServerConnection()
    let field = id.map { "X-Request-Id: \($0)\r\n" } ?? ""
    connection.receive(Array("POST / HTTP/1.1\r\nHost: localhost\r\n\(field)Content-Length: 0\r\n\r\n".utf8).span)
    #expect(try connection.nextEvent() == .head)
    record.begin(at: Self.start)
    record.describe(connection.request, route: "/v1/messages")
  }

  @Test func aLineIsWrittenOnceTheResponseIsSent() throws {
    let output = AccessOutput()
    let record = AccessRecord(client: "x")
    record.beginInput(at: Self.start - .milliseconds(3))
    try request(record)
    respond(record, bytes: 100)
    record.reportSent(to: output.log, at: Self.start + .milliseconds(2))
    record.reportSent(to: output.log, at: Self.start + .seconds(9))
    let lines = try output.lines()
    #expect(lines.count == 1)
    #expect(lines[0]["seconds"] as? Double == 0.005)
    #expect(lines[0]["bytes"] as? Int == 100 && lines[0]["aborted"] == nil)
    #expect(lines[0]["message"] as? String == "request" && lines[0]["level"] as? String == "info")
  }

  @Test func theTimeOfARequestDoesNotIncludeAnEmptyLineBeforeIt() throws {
    let output = AccessOutput()
    let record = AccessRecord(client: "x")
    record.beginInput(at: Self.start - .milliseconds(500))
    record.beginInput(at: Self.start - .milliseconds(3))
    try request(record)
    respond(record, bytes: 1)
    record.reportSent(to: output.log, at: Self.start + .milliseconds(2))
    #expect(try output.lines().map { $0["seconds"] as? Double } == [0.005])
  }

  @Test func eachPipelinedRequestHasItsOwnId() throws {
    let output = AccessOutput()
    let record = AccessRecord(client: "x")
    try request(record, id: "first")
    respond(record, bytes: 1)
    try request(record)
    respond(record, id: "generated", bytes: 1, status: .badRequest)
    try request(record, id: "third")
    record.reportSent(to: output.log, at: Self.start)
    respond(record, id: "third", bytes: 1, status: .badRequest)
    try request(record, id: "not valid")
    respond(record, bytes: 1)
    record.reportSent(to: output.log, at: Self.start)
    #expect(try output.lines().map { $0["request_id"] as? String } == ["first", "generated", "third", "-"])
  }

  @Test func onlyUnsentResponsesAreAborted() throws {
    let output = AccessOutput()
    let record = AccessRecord(client: "x")
    for bytes in [100, 200, 300] {
      try request(record)
      respond(record, bytes: bytes)
    }
    record.reportAborted(.receiving, unsentBytes: 350, to: output.log, at: Self.start)
    let lines = try output.lines()
    #expect(lines.map { $0["bytes"] as? Int } == [100, 150, 0])
    #expect(lines.map { $0["aborted"] as? String } == [nil, "sending", "sending"])
  }

  @Test func theLineOfACutStreamHasTheBytesThatWereSent() throws {
    let output = AccessOutput()
    let record = AccessRecord(client: "x")
    try request(record)
    record.respond(with: .ok, id: ByteQueue())
    record.addBytes(1000)
    record.reportAborted(.sending, unsentBytes: nil, to: output.log, at: Self.start)
    let lines = try output.lines()
    #expect(lines.count == 1 && lines[0]["bytes"] as? Int == 1000 && lines[0]["aborted"] as? String == "sending")
  }

  @Test func theTimesOfSeveralWaitsAddUp() throws {
    let output = AccessOutput()
    let record = AccessRecord(client: "x")
    try request(record)
    for _ in 0..<2 {
      record.hold(at: Self.start)
      record.resume(at: Self.start + .milliseconds(300))
    }
    record.hold(at: Self.start)
    record.reportAborted(.held, unsentBytes: nil, to: output.log, at: Self.start + .seconds(1))
    let lines = try output.lines()
    #expect(lines[0]["held_seconds"] as? Double == 1.6)
    #expect(lines[0]["status"] as? Int == 0 && lines[0]["aborted"] as? String == "held")
  }

  @Test func theModeErrorsLogsNoSuccessAndTheModeMayChangeAtAnyTime() throws {
    let output = AccessOutput(.errors)
    let record = AccessRecord(client: "x")
    for (status, id) in [(HTTPStatus.ok, "a"), (.notFound, "b")] {
      try request(record, id: id)
      respond(record, bytes: 1, status: status)
    }
    record.reportSent(to: output.log, at: Self.start)
    for (mode, id) in [(AccessLog.Mode.all, "c"), (.off, "d"), (.errors, "e")] {
      output.log.mode = mode
      #expect(output.log.isOn == (mode != .off))
      try request(record, id: id)
      respond(record, bytes: 1)
      record.reportSent(to: output.log, at: Self.start)
    }
    #expect(try output.lines().map { $0["request_id"] as? String } == ["b", "c"])
  }
}
