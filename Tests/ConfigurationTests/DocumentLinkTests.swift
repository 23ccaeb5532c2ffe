import Foundation
import Testing

/// Links between the pages must lead to an existing file and heading.
@Suite struct DocumentLinkTests {
  @Test func everyLinkOfAPageLeadsToAFileAndAHeading() throws {
    let root = Document.root
    let pages =
      try Document.files(in: "docs").filter { $0.pathExtension == "md" }
      + ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map { root.appendingPathComponent($0) }
    #expect(pages.count > 25)
    var links = 0
    for page in pages {
      let text = try String(contentsOf: page, encoding: .utf8)
      for link in Self.links(in: text) where !link.hasPrefix("http") {
        links += 1
        let parts = link.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
        let target =
          parts[0].isEmpty ? page : page.deletingLastPathComponent().appendingPathComponent(parts[0]).standardized
        #expect(FileManager.default.fileExists(atPath: target.path), "\(page.lastPathComponent): \(link)")
        guard parts.count == 2, target.pathExtension == "md" else { continue }
        let headings = Self.headings(in: try String(contentsOf: target, encoding: .utf8))
        #expect(headings.contains(parts[1]), "\(page.lastPathComponent): \(link)")
      }
    }
    #expect(links > 300)
  }

  /// The targets of `[text](target)`.
  private static func links(in text: String) -> [String] {
    text.components(separatedBy: "](").dropFirst().compactMap { rest in
      rest.split(separator: ")", maxSplits: 1, omittingEmptySubsequences: false).first.map(String.init)
    }
  }

  /// The anchors of the headings, as GitHub derives them.
  private static func headings(in text: String) -> Set<String> {
    Set(
      text.split(separator: "\n").filter { $0.hasPrefix("#") }.map { line in
        let title = line.drop { $0 == "#" }.trimmingCharacters(in: .whitespaces).lowercased()
        return title.filter { $0.isLetter || $0.isNumber || $0 == "-" || $0 == "_" || $0 == " " }
          .replacingOccurrences(of: " ", with: "-")
      })
  }
}
