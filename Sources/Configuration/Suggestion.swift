/// Finds the word that a misspelt word was probably meant to be.
package enum Suggestion {
  /// Returns the word nearest to `word`, if it is near enough. Case is ignored.
  package static func nearest(to word: String, among words: [String]) -> String? {
    let typed = word.lowercased()
    // Words without letters get no suggestion, since a number is not a misspelling of another number.
    guard typed.contains(where: \.isLetter) else { return nil }
    if typed.count > 2, let whole = words.first(where: { $0.lowercased().hasPrefix(typed) }) { return whole }
    let limit = typed.count < 6 ? 1 : typed.count < 12 ? 2 : 3
    // The distance of two words is at least the difference of their lengths, so most words can be excluded without a
    // comparison.
    let candidates = words.filter { abs($0.utf8.count - word.utf8.count) <= limit }
    let best = candidates.map { (distance(typed, $0.lowercased()), $0) }.min { $0.0 < $1.0 }
    guard let best, best.0 <= limit else { return nil }
    return best.1
  }

  /// Returns the name nearest to `name`, for names of several parts (`upstream.queue.ttl`, `UPSTREAM_QUEUE_TTL`). A
  /// name that contains all parts of `name` in order and has the same last part is preferred. If there is none, the
  /// nearest spelling is returned.
  package static func nearest(toName name: String, among names: [String], separator: Character) -> String? {
    let parts = name.split(separator: separator)
    let longer = names.map { ($0.split(separator: separator), $0) }
      .filter { $0.0.last == parts.last && isSubsequence(parts, of: $0.0) }
      .min { $0.0.count < $1.0.count }
    return longer?.1 ?? nearest(to: name, among: names)
  }

  /// Returns ` (did you mean 'x'?)`, or an empty text.
  package static func text(for word: String, among words: [String]) -> String {
    text(nearest(to: word, among: words))
  }

  static func text(_ suggestion: String?) -> String { suggestion.map { " (did you mean '\($0)'?)" } ?? "" }

  private static func isSubsequence(_ parts: [Substring], of whole: [Substring]) -> Bool {
    var rest = parts[...]
    for part in whole where part == rest.first { rest.removeFirst() }
    return rest.isEmpty && !parts.isEmpty
  }

  /// Returns the number of edits (insert, delete, replace, swap neighbours) that turn one word into the other.
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
