import Foundation
import Testing

/// The image is built from a part of the tree (Dockerfile, .dockerignore), and the package must find every target there.
@Suite struct ImageTests {
  private static func text(of name: String) throws -> String {
    let here = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    let root = here.deletingLastPathComponent().deletingLastPathComponent()
    return try String(contentsOf: root.appendingPathComponent(name), encoding: .utf8)
  }

  @Test func theImageIsBuiltFromTheFoldersOfAllTargets() throws {
    let package = try Self.text(of: "Package.swift")
    var folders: Set = ["Sources", "Tests"]
    for match in package.matches(of: /path: "([A-Za-z]+)\//) { folders.insert(String(match.1)) }
    let copied = try Self.text(of: "Dockerfile").split(separator: "\n").filter { $0.hasPrefix("COPY ") }
    let sent = try Self.text(of: ".dockerignore").split(separator: "\n")
    for folder in folders {
      #expect(copied.contains("COPY \(folder) \(folder)"), "the Dockerfile does not copy \(folder)")
      #expect(sent.contains("!\(folder)"), ".dockerignore leaves \(folder) out")
    }
  }
}
