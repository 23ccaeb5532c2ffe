import Access
import ByteStreams
import Digests

/// Files of static tokens: each line of an accepted file has its grant, and an error names a line of the file.
enum TokenFileTarget {
  static func run(_ input: Span<UInt8>) throws(Finding) {
    let bytes = [UInt8](copying: input)
    let lines = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
    let table: TokenTable
    do throws(TokenTable.Invalid) {
      table = try TokenTable(bytes)
    } catch {
      try requirePrintable(error.description)
      let number = error.description.split(whereSeparator: { " :".contains($0) }).dropFirst().first.flatMap { Int($0) }
      let isOfLine = error.description.hasPrefix("line ")
      try require(!isOfLine || (1...lines.count).contains(number ?? 0), "the error names no line: \(error)")
      return
    }
    var count = 0
    for line in lines {
      let words = line.split { [0x20, 0x09, 0x0D].contains($0) }
        .map { String(decoding: $0, as: UTF8.self) }
      guard let name = words.first, !name.hasPrefix("#") else { continue }
      count += 1
      try check(name, Array(words.dropFirst()), table)
    }
    try require(count == table.count, "\(count) lines, \(table.count) tokens")
    // A reload of the same file ends nothing.
    let again = try? TokenTable(bytes, sharingGrantsOf: table)
    try require(again?.count == table.count, "the same file is refused at a reload")
  }

  private static func check(_ name: String, _ words: [String], _ table: TokenTable) throws(Finding) {
    let digests = words.filter { $0.hasPrefix("sha256:") }
    guard digests.count == 1, let digest = SecretDigest(hexadecimal: Array(digests[0].utf8.dropFirst(7)).span),
      let grant = table.grant(for: digest)
    else { throw Finding("the token of '\(name)' is not found") }
    try require(grant.principal == name, "the token of '\(name)' has the principal '\(grant.principal)'")
    try require(!grant.isRevoked && grant.expires == nil, "the grant has an end")
    let scopes = words.filter { $0.hasPrefix("scopes=") }
    try require(scopes.count == 1, "accepted without one 'scopes='")
    let listed = Set(scopes[0].dropFirst(7).split(separator: ","))
    for (word, scope) in [("send", Scopes.send), ("receive", .receive), ("call", .call), ("admin", .admin)] {
      try require(grant.scopes.contains(scope) == listed.contains(Substring(word)), "the scope '\(word)' differs")
    }
    for (key, patterns) in [("sessions=", grant.sessions), ("topics=", grant.topics)] {
      guard let word = words.first(where: { $0.hasPrefix(key) }) else {
        try require(patterns == .all, "'\(key)' is absent and restricts")
        continue
      }
      let items = word.dropFirst(key.count).split(separator: ",")
      for item in items where !item.contains("%") {
        let isContained = patterns.contains(pattern: Array(item.utf8).span)
        try require(isContained, "'\(key)' does not allow '\(item)'")
      }
      try require(!items.isEmpty || patterns == .none, "an empty '\(key)' allows something")
    }
  }
}
