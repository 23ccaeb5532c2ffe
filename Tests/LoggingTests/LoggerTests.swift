import Foundation
import Testing

@testable import Logging

@Suite struct LoggerTests {
  /// What `body` logs, as it arrives at the other end of a pipe.
  private func capture(_ format: Logger.Format, level: LogLevel = .info, _ body: (Logger) -> Void) -> String {
    let pipe = Pipe()
    let logger = Logger(level: level, format: format, output: pipe.fileHandleForWriting.fileDescriptor)
    body(logger)
    logger.flush()
    pipe.fileHandleForWriting.closeFile()
    return String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
  }

  @Test(arguments: ["plain", "quote \" and \\", "line\nbreak\r\t", "\u{0}\u{1}\u{1B}[31m", "é 😀", ""])
  func everyLineIsOneJSONObjectWhateverStandsInIt(text: String) throws {
    let output = capture(.json) { $0.info("said", [.text("what", text), .number("n", -3), .flag("f", true)]) }
    let lines = output.split(separator: "\n", omittingEmptySubsequences: false)
    #expect(lines.count == 2 && lines[1].isEmpty)
    let object = try JSONSerialization.jsonObject(with: Data(lines[0].utf8)) as? [String: Any]
    #expect(object?["what"] as? String == text)
    #expect(object?["message"] as? String == "said" && object?["level"] as? String == "info")
    #expect(object?["n"] as? Int == -3 && object?["f"] as? Bool == true)
  }

  @Test func aTerminalNeverSeesAControlCharacterFromOutside() {
    let output = capture(.text) { $0.warning("odd", [.text("what", "\u{1B}]0;owned\u{7}\n")]) }
    #expect(output.utf8.filter { $0 < 0x20 } == [0x0A])
  }

  @Test func levelsBelowTheWantedAreNotEvenRendered() {
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

  @Test func whatDoesNotFitIsCountedAndToldAndNeverWaitedFor() async {
    let pipe = Pipe()
    let logger = Logger(level: .info, format: .json, output: pipe.fileHandleForWriting.fileDescriptor)
    let text = String(repeating: "x", count: 1000)
    // Nobody reads the pipe and nothing empties the buffer: each of these returns all the same.
    for _ in 0..<2_000 { logger.info("much", [.text("text", text)]) }
    let reader = pipe.fileHandleForReading
    let collected = Task.detached { reader.readDataToEndOfFile() }
    logger.flush()
    logger.info("after")
    logger.flush()
    pipe.fileHandleForWriting.closeFile()
    let output = String(decoding: await collected.value, as: UTF8.self)
    #expect(output.contains("log lines were dropped") && output.contains("after"))
    #expect(output.utf8.count < Logger.bufferLimit + 4096)
  }
}
