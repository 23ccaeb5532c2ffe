import Foundation
import Testing

/// The texts that operators and clients read: each log message and problem detail is searchable and in plain words.
@Suite struct WordsTests {
  private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()

  private struct Rule {
    let pattern: Regex<AnyRegexOutput>
    let advice: String
  }

  private static func rules() throws -> [Rule] {
    let text = try String(contentsOf: root.appendingPathComponent("scripts/words-to-avoid"), encoding: .utf8)
    return try text.split(separator: "\n").filter { !$0.hasPrefix("#") }.map { line in
      let parts = line.split(separator: "\t", maxSplits: 1)
      try #require(parts.count == 2, "no advice: \(line)")
      return Rule(pattern: try Regex(String(parts[0])).ignoresCase(), advice: String(parts[1]))
    }
  }

  private static func sources(below folder: String) throws -> [(name: String, text: String)] {
    let files = FileManager.default.enumerator(
      at: root.appendingPathComponent(folder), includingPropertiesForKeys: nil)
    return try (files?.allObjects as? [URL] ?? []).filter { $0.pathExtension == "swift" }.map {
      ($0.lastPathComponent, try String(contentsOf: $0, encoding: .utf8))
    }
  }

  /// The literals in `text` that are sentences, without their interpolations.
  private static func sentences(in text: String) -> [String] {
    let code = text.split(separator: "\n").filter { !$0.drop { $0 == " " }.hasPrefix("//") }.joined(separator: "\n")
    let lines = code.matches(of: /"""\n([\s\S]*?)"""/).flatMap { $0.1.split(separator: "\n") }
    let literals = code.matches(of: /"((?:[^"\\\n]|\\.)*)"/).map(\.1) + lines
    return literals.map { String($0).replacing(/\\\([^"]*?\)/, with: "…") }
      .filter { $0.split(separator: " ").count > 2 && !$0.contains("\\r\\n") && !$0.hasPrefix("{") }
  }

  private static func logMessages(in text: String) -> [String] {
    text.matches(of: /logger\.(?:trace|debug|info|warning|error|log)\(\s*(?:[^"\n]*,\s*)?"((?:[^"\\]|\\.)*)"/).map {
      String($0.1)
    }
  }

  private func findings(in sentences: [(name: String, text: String)]) throws -> [String] {
    let rules = try Self.rules()
    return sentences.flatMap { sentence in
      rules.compactMap { rule in
        sentence.text.firstMatch(of: rule.pattern).map {
          "\(sentence.name): '\(sentence.text[$0.range])' in \"\(sentence.text)\": write \(rule.advice)"
        }
      }
    }
  }

  @Test func everyLogMessageUsesPlainWords() throws {
    let messages = try Self.sources(below: "Sources").flatMap { source in
      Self.logMessages(in: source.text).map { (source.name, $0) }
    }
    #expect(messages.count > 15)
    for finding in try findings(in: messages) { Issue.record("\(finding)") }
  }

  /// Problem details, the errors that they quote, the messages of `check-config`, and `--help`.
  @Test(arguments: [
    ("Sources/Drivers/API", 40), ("Sources/Codecs", 90), ("Sources/Configuration", 120), ("Sources/Gateway", 10),
    ("Sources/drawbridge", 15),
  ])
  func everyTextUsesPlainWords(folder: String, least: Int) throws {
    let texts = try Self.sources(below: folder).flatMap { source in
      Self.sentences(in: source.text).map { (source.name, $0) }
    }
    #expect(texts.count > least)
    for finding in try findings(in: texts) { Issue.record("\(finding)") }
  }

  @Test(arguments: [
    "the upstream tells nothing", "it stands there", "redialled in 5 s", "'x' is not right for 'loops'",
  ])
  func aSentenceWithAWordToAvoidIsFound(sentence: String) throws {
    #expect(try !findings(in: [("x", sentence)]).isEmpty)
  }

  @Test func theSourceParserFindsMessagesAndSentences() {
    let source = """
      logger.warning(
        "the \\(name) session failed", [])
      // "a comment that is no sentence"
      Problem(.notFound, detail: "no such path; use \\(x) instead")
      """
    #expect(Self.logMessages(in: source) == [#"the \(name) session failed"#])
    #expect(Self.sentences(in: source).contains("no such path; use … instead"))
  }
}
