import Foundation
import Testing

/// A page of the documentation that names settings, tests and files of this project.
struct Document {
  static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()

  let text: String

  /// - Parameter name: the name of a file in `docs`.
  init(_ name: String) throws {
    text = try String(contentsOf: Self.root.appendingPathComponent("docs/\(name)"), encoding: .utf8)
  }

  /// The words between backticks.
  var words: [String] { Self.words(in: text) }

  static func words(in text: String) -> [String] {
    text.split(separator: "`", omittingEmptySubsequences: false).enumerated()
      .filter { !$0.offset.isMultiple(of: 2) }.map { String($0.element) }
  }

  /// The text below a heading, up to the next heading of its level or above.
  ///
  /// - Parameter heading: the heading with its `#`.
  func section(_ heading: String) throws -> String {
    let parts = "\n\(text)".components(separatedBy: "\n\(heading)\n")
    try #require(parts.count == 2, "\(heading)")
    return parts[1].components(separatedBy: "\n## ")[0]
  }

  /// The cells of each row of a table, without its head.
  static func rows(in section: String) -> [[String]] {
    section.split(separator: "\n").filter { $0.hasPrefix("|") }.dropFirst(2)
      .map { $0.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }.filter { !$0.isEmpty } }
  }

  /// The names for which this project has no test.
  static func missingTests(among names: [String]) throws -> [String] {
    let functions = try functions.get()
    #expect(functions.count > 3_000)
    return names.filter { !functions.contains($0) }
  }

  /// The functions of all tests, read once.
  private static let functions = Result {
    var names: Set<String> = []
    for file in try files(in: "Tests") where ["swift", "py"].contains(file.pathExtension) {
      for line in try Data(contentsOf: file).split(separator: UInt8(ascii: "\n")) {
        for keyword in [Data("func ".utf8), Data("def ".utf8)] {
          guard let start = line.range(of: keyword)?.upperBound else { continue }
          names.insert(String(decoding: line[start...].prefix { $0 != UInt8(ascii: "(") }, as: UTF8.self))
        }
      }
    }
    return names
  }

  static func files(in folder: String) throws -> [URL] {
    let files = FileManager.default.enumerator(
      at: root.appendingPathComponent(folder), includingPropertiesForKeys: nil)
    return try #require(files).compactMap { $0 as? URL }
  }
}
