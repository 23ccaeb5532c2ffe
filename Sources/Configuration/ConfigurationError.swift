/// What is wrong with a configuration, where, and what would be right.
package struct ConfigurationError: Error, Hashable, Sendable, CustomStringConvertible {
  /// `file:line:column`, an environment variable's name, or a flag.
  package let place: String
  package let message: String

  /// Without control characters, which a value or a key may have had: it goes to a terminal.
  package var description: String { PrintableText.escaped("\(place): \(message)") }
}

/// All that is wrong, at most `limit` of it.
package struct ConfigurationErrors: Error, Sendable, CustomStringConvertible {
  package static let limit = 20
  package let errors: [ConfigurationError]

  package var description: String { errors.map(\.description).joined(separator: "\n") }
}

/// Finds what somebody may have meant.
package enum Suggestion {
  /// The word nearest to `word`, if it is near enough to have been meant.
  package static func nearest(to word: String, among words: [String]) -> String? {
    let most = max(2, word.count / 3)
    // As many edits are needed as the lengths differ by: most words need not be looked at.
    let candidates = words.filter { abs($0.utf8.count - word.utf8.count) <= most }
    let best = candidates.map { (distance(word, $0), $0) }.min { $0.0 < $1.0 }
    guard let best, best.0 <= most else { return nil }
    return best.1
  }

  /// ` (did you mean 'x'?)`, or nothing.
  package static func text(for word: String, among words: [String]) -> String {
    nearest(to: word, among: words).map { " (did you mean '\($0)'?)" } ?? ""
  }

  /// Edits (insert, delete, replace, swap neighbours) that turn one word into the other.
  static func distance(_ left: String, _ right: String) -> Int {
    let a = Array(left.utf8.prefix(64))
    let b = Array(right.utf8.prefix(64))
    guard !a.isEmpty, !b.isEmpty else { return max(a.count, b.count) }
    var above = [Int](repeating: 0, count: b.count + 1)
    var last = Array(0...b.count)
    var row = last
    for i in 1...a.count {
      row[0] = i
      for j in 1...b.count {
        let cost = a[i - 1] == b[j - 1] ? 0 : 1
        row[j] = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + cost)
        if i > 1, j > 1, a[i - 1] == b[j - 2], a[i - 2] == b[j - 1] { row[j] = min(row[j], above[j - 2] + 1) }
      }
      (above, last, row) = (last, row, above)
    }
    return last[b.count]
  }
}
