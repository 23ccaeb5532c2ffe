import Foundation
import Testing

/// Every promise must name its tests.
@Suite struct PromisesTests {
  private let promises: Document
  init() throws { promises = try Document("promises.md") }

  private func decisions() throws -> [[String]] { Document.rows(in: try promises.section("## Decisions")) }

  @Test func everyPromiseHasAReasonAndATest() throws {
    let sections = promises.text.components(separatedBy: "\n## Decisions\n")[0].components(separatedBy: "\n## ")
      .dropFirst()
    let rows = sections.flatMap { Document.rows(in: $0) }
    #expect(sections.count >= 8 && rows.count > 80)
    #expect(rows.filter { $0.count != 3 || Document.words(in: $0.last ?? "").isEmpty } == [])
    #expect(try Document.missingTests(among: rows.flatMap { Document.words(in: $0[2]) }) == [])
  }

  /// The next change may undo a decision that no test and no comment protects.
  @Test func everyDecisionHasATestOrAComment() throws {
    let decided = try Document("architecture.md").section("## Decisions").components(separatedBy: "\n- **").dropFirst()
      .map { $0.components(separatedBy: "**")[0] }
    let rows = try decisions()
    #expect(decided.count > 30)
    #expect(rows.map { $0[0] } == decided)
    let holders = rows.flatMap { Document.words(in: $0[1]) }
    #expect(rows.allSatisfy { $0.count == 2 && !Document.words(in: $0[1]).isEmpty })
    let files = Set(try Document.files(in: "Sources").map(\.lastPathComponent)).union(["Package.swift"])
    let isFile = { (name: String) in name.hasSuffix(".swift") }
    #expect(holders.filter { isFile($0) && !files.contains($0) } == [])
    #expect(try Document.missingTests(among: holders.filter { !isFile($0) }) == [])
  }
}
