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
      guard let name = words.first, name.first != UInt8(ascii: "#") else { continue }
      count += 1
      try check(String(decoding: name, as: UTF8.self), words.dropFirst(), table)
    }
    try require(count == table.count, "\(count) lines, \(table.count) tokens")
    // A reload of the same file ends no grant.
    let again = try? TokenTable(bytes, sharingGrantsOf: table)
    try require(again?.count == table.count, "the same file is refused at a reload")
  }

  /// Compares bytes. A `String` would treat a separator with a following combining mark as a different character.
  private static func check(
    _ name: String, _ words: ArraySlice<ArraySlice<UInt8>>, _ table: TokenTable
  ) throws(Finding) {
    let digests = words.filter { $0.starts(with: "sha256:".utf8) }
    guard digests.count == 1, let digest = SecretDigest(hexadecimal: Array(digests[0].dropFirst(7)).span),
      let grant = table.grant(for: digest)
    else { throw Finding("the token of '\(name)' is not found") }
    try require(grant.principal == name, "the token of '\(name)' has the principal '\(grant.principal)'")
    try require(!grant.isRevoked && grant.expires == nil, "the grant has an end")
    let scopes = words.filter { $0.starts(with: "scopes=".utf8) }
    try require(scopes.count == 1, "accepted without one 'scopes='")
    let listed = Set(items(scopes[0].dropFirst(7)))
    for (word, scope) in [("send", Scopes.send), ("receive", .receive), ("call", .call), ("admin", .admin)] {
      try require(grant.scopes.contains(scope) == listed.contains(ArraySlice(word.utf8)), "the scope '\(word)' differs")
    }
    for (key, patterns) in [("sessions=", grant.sessions), ("topics=", grant.topics)] {
      guard let word = words.first(where: { $0.starts(with: key.utf8) }) else {
        try require(patterns == .all, "'\(key)' is absent and restricts")
        continue
      }
      let items = items(word.dropFirst(key.utf8.count))
      for item in items where !item.contains(UInt8(ascii: "%")) {
        let isContained = patterns.contains(pattern: Array(item).span)
        try require(isContained, "'\(key)' does not allow '\(String(decoding: item, as: UTF8.self))'")
      }
      try require(!items.isEmpty || patterns == .none, "an empty '\(key)' allows something")
    }
  }

  private static func items(_ list: ArraySlice<UInt8>) -> [ArraySlice<UInt8>] {
    list.split(separator: UInt8(ascii: ","))
  }
}
