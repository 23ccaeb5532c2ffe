import ByteStreams

/// Which sessions or topics a client may use: exact names, and prefixes with a final `*`.
package struct NamePatterns: Hashable, Sendable, CustomStringConvertible {
  private struct Pattern: Hashable, Sendable {
    /// The end of the pattern's text in `text`. The text begins at the end of the previous pattern.
    let end: UInt16
    let isPrefix: Bool
  }

  /// Maximum number of patterns. All are compared with the names of a request.
  package static var maximumCount: Int { 64 }
  /// Maximum total length in bytes. Each cached token has two of these lists.
  package static var maximumBytes: Int { 1_024 }

  package enum Invalid: Error, Hashable, Sendable, CustomStringConvertible {
    case emptyName
    case tooMany
    case tooLong

    package var description: String {
      switch self {
      case .emptyName: "a name is empty"
      case .tooMany: "more than \(NamePatterns.maximumCount) names"
      case .tooLong: "the names are longer than \(NamePatterns.maximumBytes) bytes in total"
      }
    }
  }

  /// The patterns one after another, without their final `*`.
  private var text: [UInt8] = []
  private var patterns: [Pattern] = []

  /// Every name.
  package static let all: NamePatterns = {
    var patterns = NamePatterns()
    patterns.patterns = [Pattern(end: 0, isPrefix: true)]
    return patterns
  }()
  /// No name.
  package static let none = NamePatterns()

  private init() {}

  package init(_ names: [[UInt8]]) throws(Invalid) {
    for name in names { try add(name.span) }
  }

  package init(_ names: [String]) throws(Invalid) {
    for name in names { try add(Array(name.utf8).span) }
  }

  /// Adds a name. With a final `*`, adds all names that begin with the text before the `*`.
  package mutating func add(_ name: Span<UInt8>) throws(Invalid) {
    guard !name.isEmpty else { throw .emptyName }
    guard patterns.count < Self.maximumCount else { throw .tooMany }
    let isPrefix = name[name.count - 1] == UInt8(ascii: "*")
    let characters = isPrefix ? name.count - 1 : name.count
    guard text.count + characters <= Self.maximumBytes else { throw .tooLong }
    for index in 0..<characters { text.append(name[index]) }
    patterns.append(Pattern(end: UInt16(text.count), isPrefix: isPrefix))
  }

  package func contains(_ name: Span<UInt8>) -> Bool { covers(name, onlyByPrefixes: false) }

  package func contains(_ name: String) -> Bool { contains(name.utf8Span.span) }

  /// Whether every name that matches `pattern` is contained. A prefix must be within a single prefix of this list.
  package func contains(pattern: Span<UInt8>) -> Bool {
    guard !pattern.isEmpty, pattern[pattern.count - 1] == UInt8(ascii: "*") else { return contains(pattern) }
    return covers(pattern.extracting(first: pattern.count - 1), onlyByPrefixes: true)
  }

  private func covers(_ name: Span<UInt8>, onlyByPrefixes: Bool) -> Bool {
    var start = 0
    for pattern in patterns {
      let end = Int(pattern.end)
      let count = end &- start
      let isCandidate = pattern.isPrefix ? count <= name.count : !onlyByPrefixes && count == name.count
      if isCandidate, name.extracting(first: count).equals(text.span.extracting(start..<end)) { return true }
      start = end
    }
    return false
  }

  /// Whether every name is contained, because one of the patterns is `*`.
  package var isAll: Bool {
    var start = 0
    for pattern in patterns {
      let end = Int(pattern.end)
      if pattern.isPrefix, end == start { return true }
      start = end
    }
    return false
  }

  /// Each pattern, with its final `*` if it is a prefix.
  package var elements: [[UInt8]] {
    var start = 0
    return patterns.map { pattern in
      defer { start = Int(pattern.end) }
      return text[start..<Int(pattern.end)] + (pattern.isPrefix ? [UInt8(ascii: "*")] : [])
    }
  }

  /// The patterns as in the configuration, separated by commas.
  package var description: String {
    elements.map { String(decoding: $0, as: UTF8.self) }.joined(separator: ",")
  }
}
