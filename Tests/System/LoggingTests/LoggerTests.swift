import ByteStreams
import Foundation
import Testing

@testable import Logging

/// Reads a pipe to its end on its own thread, since writing the log may block a thread of the tests.
private final class Collector: @unchecked Sendable {
  private let isAtEnd = DispatchSemaphore(value: 0)
  private var data = Data()

  init(_ handle: FileHandle) {
    Thread.detachNewThread {
      self.data = handle.readDataToEndOfFile()
      self.isAtEnd.signal()
    }
  }

  func text() -> String {
    isAtEnd.wait()
    return String(decoding: data, as: UTF8.self)
  }
}

@Suite struct LoggerTests {
  /// The output of `body`, read from a pipe.
  private func capture(_ format: Logger.Format, level: LogLevel = .info, _ body: (Logger) -> Void) -> String {
    let pipe = Pipe()
    let logger = Logger(level: level, format: format, output: pipe.fileHandleForWriting.fileDescriptor)
    body(logger)
    logger.flush()
    pipe.fileHandleForWriting.closeFile()
    return String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
  }

  @Test func theFieldsOfTheContextAreInEveryLine() throws {
    let output = capture(.json) { logger in
      let session = logger.with([.text("session", "market")])
      session.info("one", [.number("n", 1)])
      session.with([.flag("f", true)]).info("two")
      logger.info("three")
    }
    let objects = try output.split(separator: "\n").map {
      try #require(try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any])
    }
    #expect(objects.map { $0["session"] as? String } == ["market", "market", nil])
    #expect(objects[0]["n"] as? Int == 1 && objects[1]["f"] as? Bool == true)
  }

  @Test(arguments: ["plain", "quote \" and \\", "line\nbreak\r\t", "\u{0}\u{1}\u{1B}[31m", "é 😀", ""])
  func everyLineIsOneJSONObjectForAnyText(text: String) throws {
    let output = capture(.json) {
      $0.info("said", [.text("what", text), .number("n", -3), .flag("f", true), .seconds("s", .nanoseconds(213_456))])
    }
    let lines = output.split(separator: "\n", omittingEmptySubsequences: false)
    #expect(lines.count == 2 && lines[1].isEmpty)
    let object = try JSONSerialization.jsonObject(with: Data(lines[0].utf8)) as? [String: Any]
    #expect(object?["what"] as? String == text)
    #expect(object?["message"] as? String == "said" && object?["level"] as? String == "info")
    #expect(object?["n"] as? Int == -3 && object?["f"] as? Bool == true)
    #expect(output.contains("\"s\":0.000213"))
  }

  @Test func controlCharactersFromOutsideAreEscapedForATerminal() {
    let output = capture(.text) { $0.warning("odd", [.text("what", "\u{1B}]0;owned\u{7}\n")]) }
    #expect(output.utf8.filter { $0 < 0x20 } == [0x0A])
  }

  /// DEL, C1 controls, and characters that reorder or break lines.
  @Test(arguments: [0x7F, 0x85, 0x9B, 0x061C, 0x200E, 0x200F, 0x2028, 0x2029, 0x202A, 0x202E, 0x2066, 0x2069, 0xFEFF])
  func displayControlsAreEscapedInBothFormats(value: UInt32) throws {
    let scalar = try #require(Unicode.Scalar(value))
    let text = "é\"\n\(scalar)😀"
    for format in [Logger.Format.json, .text] {
      let output = capture(format) { $0.info("said", [.text("what", text)]) }
      #expect(!output.unicodeScalars.contains(scalar))
      #expect(output.contains("é\\\"\\n\\u" + String(0x10000 + value, radix: 16).dropFirst() + "😀"))
    }
    let output = capture(.json) { $0.info("said", [.text("what", text)]) }
    let object = try JSONSerialization.jsonObject(with: Data(output.utf8)) as? [String: Any]
    #expect(object?["what"] as? String == text)
  }

  @Test func linesThatTheOutputRefusesAreCountedAndReportedLater() throws {
    var ends: [Int32] = [0, 0]
    try #require(pipe(&ends) == 0)
    signal(SIGPIPE, SIG_IGN)
    let logger = Logger(level: .info, format: .json, output: ends[1])
    close(ends[0])
    logger.info("lost")
    logger.info("lost too")
    logger.flush()
    logger.info("also lost, like the report of the lost lines")
    logger.flush()
    // Makes the pipe readable again.
    var fresh: [Int32] = [0, 0]
    try #require(pipe(&fresh) == 0)
    try #require(dup2(fresh[1], ends[1]) == ends[1])
    close(fresh[1])
    logger.flush()
    close(ends[1])
    let output = String(decoding: FileHandle(fileDescriptor: fresh[0]).readDataToEndOfFile(), as: UTF8.self)
    #expect(output.contains("\"count\":3") && !output.contains("lost"))
    close(fresh[0])
  }

  @Test func aNonBlockingOutputLosesNothing() throws {
    var ends: [Int32] = [0, 0]
    try #require(pipe(&ends) == 0)
    try #require(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0)
    let logger = Logger(level: .info, format: .json, output: ends[1])
    // More bytes than fit into a pipe.
    for _ in 0..<500 { logger.info("much", [.text("text", String(repeating: "x", count: 1000))]) }
    let collector = Collector(FileHandle(fileDescriptor: ends[0]))
    logger.flush()
    close(ends[1])
    let lines = collector.text().split(separator: "\n")
    #expect(lines.count == 500)
    close(ends[0])
  }

  @Test func theLevelMayChangeAtAnyTime() {
    let output = capture(.json, level: .warning) { logger in
      logger.debug("before")
      logger.level = .debug
      logger.debug("after")
    }
    #expect(!output.contains("before") && output.contains("after"))
  }

  @Test func linesBelowTheConfiguredLevelAreNotRendered() {
    var rendered = 0
    func fields() -> [LogField] {
      rendered += 1
      return []
    }
    let output = capture(.json, level: .warning) { logger in
      logger.info("quiet", fields())
      logger.error("loud", fields())
    }
    #expect(rendered == 1 && output.contains("loud") && !output.contains("quiet"))
  }

  @Test func linesThatDoNotFitAreCountedAndReportedWithoutBlocking() {
    let pipe = Pipe()
    let logger = Logger(level: .info, format: .json, output: pipe.fileHandleForWriting.fileDescriptor)
    let text = String(repeating: "x", count: 1000)
    // No process reads the pipe, so the buffer stays full. Each call still returns.
    for _ in 0..<2_000 { logger.info("much", [.text("text", text)]) }
    let collector = Collector(pipe.fileHandleForReading)
    logger.flush()
    logger.info("after")
    logger.flush()
    pipe.fileHandleForWriting.closeFile()
    let output = collector.text()
    #expect(output.contains("log lines were dropped") && output.contains("after"))
    #expect(output.utf8.count < LogWriter.bufferLimit + 4096)
  }

  /// A logger whose thread could not be started behaves in the same way.
  @Test func withoutItsThreadTheLastLinesAreWrittenWithoutBlocking() throws {
    var ends: [Int32] = [0, 0]
    try #require(pipe(&ends) == 0)
    let logger = Logger(level: .info, format: .json, output: ends[1])
    let text = String(repeating: "x", count: 1000)
    for number in 0..<200 { logger.info("much", [.number("n", number), .text("text", text)]) }
    let hasReturned = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      #expect(!logger.isWritten)
      hasReturned.signal()
    }
    let returned = hasReturned.wait(timeout: .now() + 60)
    #expect(returned == .success, "it does not wait for a reader")
    let collector = Collector(FileHandle(fileDescriptor: ends[0]))
    if returned == .timedOut { hasReturned.wait() }
    let end = Date(timeIntervalSinceNow: 60)
    while !logger.isWritten, Date() < end { usleep(1000) }
    close(ends[1])
    // Each line was written once, in order.
    let lines = collector.text().split(separator: "\n")
    #expect(lines.count == 200)
    for (number, line) in lines.enumerated() { #expect(line.contains("\"n\":\(number),")) }
    close(ends[0])
  }
}

/// Log lines about requests.
@Suite struct RequestLineTests {
  @Test func requestLinesLeaveHalfOfTheBufferToOtherLines() throws {
    let pipe = Pipe()
    let logger = Logger(level: .error, format: .text, output: pipe.fileHandleForWriting.fileDescriptor)
    var fields = ByteQueue()
    fields.append(String(repeating: "x", count: 1000))
    for _ in 0..<2000 { logger.logRequest("request", fields) }
    logger.error("important")
    let collector = Collector(pipe.fileHandleForReading)
    logger.flush()
    pipe.fileHandleForWriting.closeFile()
    let lines = collector.text().split(separator: "\n")
    let kept = lines.filter { $0.hasSuffix("xxx") }.count
    #expect(kept > 400 && kept < 600)
    #expect(lines.contains { $0.hasSuffix(" error   important") })
    #expect(lines.last?.hasSuffix("log lines were dropped  count=\(2000 - kept)") == true)
  }

  @Test func textThatNeedsQuotesIsEscaped() {
    for format in [LogFieldFormat.json, .text] {
      var line = ByteQueue()
      format.append("f", Array("a\"b\n\u{1B}\u{202E}".utf8).span, to: &line)
      let text = String(decoding: line.copyBytes(), as: UTF8.self)
      #expect(text.hasSuffix(#""a\"b\n\u001b\u202e""#), "\(text)")
    }
  }
}
