import Foundation
import Testing

/// The image is built from only a part of the tree (Dockerfile, .dockerignore). Every target of the package must be in
/// that part.
@Suite struct ImageTests {
  private static var root: URL {
    URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
  }

  private static func text(of name: String) throws -> String {
    try String(contentsOf: root.appendingPathComponent(name), encoding: .utf8)
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
    let sources = try #require(FileManager.default.enumerator(atPath: Self.root.appendingPathComponent("Sources").path))
    var links = 0
    for case let name as String in sources {
      let file = Self.root.appendingPathComponent("Sources").appendingPathComponent(name)
      guard let target = try? FileManager.default.destinationOfSymbolicLink(atPath: file.path) else { continue }
      links += 1
      let path = file.deletingLastPathComponent().appendingPathComponent(target).standardizedFileURL.path
      let relative = String(path.dropFirst(Self.root.path.count + 1))
      // The file, or a folder that contains it.
      let parts = relative.split(separator: "/")
      let folders = parts.indices.map { parts[...$0].joined(separator: "/") }
      #expect(
        folders.contains { copied.contains("COPY \($0) \($0)") },
        "the Dockerfile does not copy \(relative), the target of \(name)")
      #expect(folders.contains { sent.contains("!\($0)") }, ".dockerignore leaves \(relative) out")
    }
    #expect(links > 0)
  }
}
