import ByteStreams
import Foundation
import FuzzTargets
import Testing

/// The committed inputs of the fuzzing targets: seeds, inputs that reached new code, and past findings.
@Suite struct CorpusTests {
  private static let fuzzing = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .appendingPathComponent("Fuzzing")

  private static func corpus(of target: String) throws -> [URL] {
    let folder = fuzzing.appendingPathComponent("Corpora/\(target)")
    return try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
  }

  @Test(arguments: FuzzTarget.all.map(\.name))
  func noInputOfTheCorpusBreaksARule(name: String) throws {
    let target = try #require(FuzzTarget.all.first { $0.name == name })
    let files = try Self.corpus(of: name)
    #expect(files.count >= 5)
    for file in files {
      let input = Array(try Data(contentsOf: file))
      do throws(Finding) {
        try target.run(input.span)
      } catch {
        Issue.record("\(name)/\(file.lastPathComponent): \(error)")
      }
    }
  }

  /// A folder without a target would not be tested.
  @Test func everyCorpusAndDictionaryHasItsTarget() throws {
    let names = Set(FuzzTarget.all.map(\.name))
    let contents = FileManager.default
    let corpora = try contents.contentsOfDirectory(atPath: Self.fuzzing.appendingPathComponent("Corpora").path)
    #expect(Set(corpora) == names)
    let dictionaries = try contents.contentsOfDirectory(
      atPath: Self.fuzzing.appendingPathComponent("Dictionaries").path)
    #expect(Set(dictionaries.map { $0.replacing(".dict", with: "") }).isSubset(of: names))
  }
}
