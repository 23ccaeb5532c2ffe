import Foundation
import Testing

@testable import Configuration

/// A threat model that names what is not there comforts and protects nobody.
@Suite struct ThreatModelTests {
  private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()
    .deletingLastPathComponent()

  /// What stands between backticks in the document.
  private func words() throws -> [String] {
    let text = try String(contentsOf: Self.root.appendingPathComponent("docs/threat-model.md"), encoding: .utf8)
    return text.split(separator: "`", omittingEmptySubsequences: false).enumerated()
      .filter { !$0.offset.isMultiple(of: 2) }.map { String($0.element) }
  }

  @Test func everySettingItNamesExists() throws {
    let settings = Set(Setting.all.map(\.path))
    let sections = Set(settings.map { $0.prefix { $0 != "." } })
    let named = try words().filter { word in
      sections.contains(word.prefix { $0 != "." }) && word.contains(".") && !word.contains(" ")
    }
    #expect(named.count > 40)
    #expect(named.filter { !settings.contains($0) } == [])
  }

  @Test func everyTestItNamesExists() throws {
    let folder = Self.root.appendingPathComponent("Tests")
    let files = try #require(FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil))
    var code = ""
    for case let file as URL in files where ["swift", "py"].contains(file.pathExtension) {
      code += try String(contentsOf: file, encoding: .utf8)
    }
    let isName = { (word: String) in word.allSatisfy { $0.isLetter || $0.isNumber || $0 == "_" } }
    let named = try words().filter { isName($0) && $0.count > 4 && $0 != "verify" }
    #expect(named.count > 60)
    #expect(named.filter { !code.contains("func \($0)(") && !code.contains("def \($0)(") } == [])
  }
}
