import ByteStreams
import Digests

/// Reads the file of static tokens: a line for each, with the token's SHA-256 instead of the token.
///
///     NAME sha256:HEX scopes=send,receive sessions=a,b* topics=orders.*
enum TokenFile {
  struct Entry {
    let digest: SecretDigest
    let name: String
    let scopes: Scopes
    let sessions: NamePatterns
    let topics: NamePatterns
  }

  private static let maximumNameBytes = 64

  static func read(_ contents: [UInt8]) throws(TokenTable.Invalid) -> [(line: Int, entry: Entry)] {
    guard contents.count <= TokenTable.maximumBytes else {
      throw TokenTable.Invalid("the file has more than \(TokenTable.maximumBytes) bytes")
    }
    guard UTF8StreamValidator.isValid(contents.span) else { throw TokenTable.Invalid("the file is not UTF-8") }
    var entries: [(Int, Entry)] = []
    var number = 0
    for line in contents.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false) {
      number += 1
      let line = line.last == UInt8(ascii: "\r") ? line.dropLast() : line
      let words = line.split { $0 == 0x20 || $0 == 0x09 }
      guard let first = words.first, first.first != UInt8(ascii: "#") else { continue }
      guard entries.count < TokenTable.maximumTokens else {
        throw TokenTable.Invalid("line \(number): there are more than \(TokenTable.maximumTokens) tokens")
      }
      do throws(LineError) {
        var reader = LineReader()
        for word in words { try reader.take(Array(word)) }
        entries.append((number, try reader.entry()))
      } catch {
        throw TokenTable.Invalid("line \(number): \(error.reason)")
      }
    }
    return entries
  }

  private struct LineError: Error {
    let reason: String
  }

  /// Collects the words of a line. Errors do not repeat words that could be a token itself.
  private struct LineReader {
    private var name: String?
    private var digest: SecretDigest?
    private var scopes: Scopes?
    private var sessions: NamePatterns?
    private var topics: NamePatterns?

    mutating func take(_ word: [UInt8]) throws(LineError) {
      guard name != nil else {
        guard Self.isName(word) else {
          throw LineError(
            reason: "a line begins with the token's name: 1 to \(maximumNameBytes) letters, digits and . _ - @ / +")
        }
        name = word.span.text()
        return
      }
      if word.span.starts(with: "sha256:") {
        guard let value = SecretDigest(hexadecimal: word.span.extracting(7..<word.count)) else {
          throw LineError(reason: "'sha256:' must be followed by 64 hexadecimal digits")
        }
        try set(&digest, value, "sha256:")
        return
      }
      guard let end = word.firstIndex(of: UInt8(ascii: "=")) else { throw unknownWord }
      let items = word[(end + 1)...].split(separator: UInt8(ascii: ","), omittingEmptySubsequences: false)
      let list = word.count == end + 1 ? [] : items.map(Array.init)
      let key = word.span.extracting(first: end)
      if key.equals("scopes") {
        try set(&scopes, try Self.scopes(list), "scopes=")
      } else if key.equals("sessions") {
        try set(&sessions, try Self.patterns(list, "sessions="), "sessions=")
      } else if key.equals("topics") {
        try set(&topics, try Self.patterns(list, "topics="), "topics=")
      } else {
        throw unknownWord
      }
    }

    func entry() throws(LineError) -> Entry {
      guard let name, let digest else { throw LineError(reason: "'sha256:' with the token's SHA-256 is missing") }
      guard let scopes else { throw LineError(reason: "'scopes=' is missing: use \(Scopes.expectation)") }
      return Entry(
        digest: digest, name: name, scopes: scopes, sessions: sessions ?? .all, topics: topics ?? .all)
    }

    private var unknownWord: LineError {
      LineError(reason: "unknown word: after the name use sha256:HEX, scopes=, sessions= and topics=")
    }

    private func set<Value>(_ place: inout Value?, _ value: Value, _ word: String) throws(LineError) {
      guard place == nil else { throw LineError(reason: "'\(word)' is repeated") }
      place = value
    }

    /// A name must not contain `=` or `:`, so that a line without a name is an error.
    private static func isName(_ word: [UInt8]) -> Bool {
      (1...maximumNameBytes).contains(word.count)
        && word.allSatisfy { ASCII.isUnreserved($0) && $0 != UInt8(ascii: "~") || "@/+".utf8.contains($0) }
    }

    private static func scopes(_ words: [[UInt8]]) throws(LineError) -> Scopes {
      var scopes: Scopes = []
      for word in words {
        guard let scope = Scopes(word: word.span) else {
          throw LineError(reason: "unknown scope \(quoted(word)): use \(Scopes.expectation)")
        }
        guard scopes.insert(scope).inserted else { throw LineError(reason: "the scope \(quoted(word)) is repeated") }
      }
      return scopes
    }

    private static func patterns(_ words: [[UInt8]], _ key: String) throws(LineError) -> NamePatterns {
      var patterns = NamePatterns.none
      for word in words {
        // A carriage return left over by an editor would be part of a name, which would then match nothing.
        guard !word.contains(where: { $0 < 0x20 || $0 == 0x7F }) else {
          throw LineError(reason: "\(quoted(word)) in '\(key)': a control character must be percent-encoded")
        }
        var name = ByteQueue()
        guard PercentDecoder.decode(word.span, plusIsSpace: false, into: &name),
          UTF8StreamValidator.isValid(name.bytes)
        else {
          throw LineError(
            reason: "\(quoted(word)) in '\(key)': '%' must be followed by two hexadecimal digits of UTF-8")
        }
        do throws(NamePatterns.Invalid) {
          try patterns.add(name.bytes)
        } catch {
          throw LineError(reason: "'\(key)': \(error)")
        }
      }
      return patterns
    }
  }
}
