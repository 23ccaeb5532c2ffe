import Digests
import Testing

@testable import Access

@Suite struct TokenTableTests {
  /// The SHA-256 of a token, in the form of the file.
  private static func hexadecimal(_ token: String) -> String {
    Digest.sha256(Array(token.utf8).span).map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
  }

  private func line(_ name: String, _ token: String, _ rest: String = "scopes=send") -> String {
    "\(name) sha256:\(Self.hexadecimal(token)) \(rest)"
  }

  private func table(_ text: String, after previous: TokenTable? = nil) throws -> TokenTable {
    try TokenTable(Array(text.utf8), sharingGrantsOf: previous)
  }

  private func error(_ text: String) -> String? {
    do throws(TokenTable.Invalid) {
      _ = try TokenTable(Array(text.utf8))
      return nil
    } catch {
      return error.description
    }
  }

  private func grant(_ token: String, in table: TokenTable) -> Grant? {
    table.grant(for: SecretDigest(of: Array(token.utf8).span))
  }

  @Test func aTokenHasTheRightsOfItsLine() throws {
    let table = try table(
      "# Tokens\n\n" + line("billing", "secret-1", "scopes=send,receive sessions=a,b* topics=orders.*,x%2Cy") + "\r\n"
        + "\t " + line("ops@example", "secret-2", "\ttopics= scopes=") + "\n  # " + line("gone", "secret-3"))
    #expect(table.count == 2)
    let billing = try #require(grant("secret-1", in: table))
    #expect(billing.principal == "billing" && billing.scopes == [.send, .receive] && billing.expires == nil)
    #expect(billing.sessions.description == "a,b*" && billing.topics.contains("x,y"))
    let operations = try #require(grant("secret-2", in: table))
    #expect(operations.scopes == [] && operations.sessions == .all && operations.topics == .none)
    for other in ["secret-3", "secret", "", Self.hexadecimal("secret-1")] { #expect(grant(other, in: table) == nil) }
  }

  @Test func anEmptyFileHasNoTokens() throws {
    for text in ["", "\n\n", "# none"] {
      let table = try table(text)
      #expect(table.count == 0 && grant("", in: table) == nil)
    }
  }

  @Test func wordsAfterTheNameHaveAnyOrder() throws {
    let digest = "sha256:" + Self.hexadecimal("t")
    for words in [[digest, "scopes=send", "topics=a"], ["topics=a", "scopes=send", digest]] {
      let table = try table("name " + words.joined(separator: " "))
      #expect(grant("t", in: table)?.topics.description == "a")
    }
  }

  @Test func errorsNameTheLine() {
    let digest = "sha256:" + Self.hexadecimal("t")
    let cases = [
      (digest + " scopes=send", "a line begins with the token's name"),
      ("a=b " + digest, "a line begins with the token's name"),
      (String(repeating: "n", count: 65) + " \(digest) scopes=send", "a line begins with the token's name"),
      ("name scopes=send", "'sha256:' with the token's SHA-256 is missing"),
      ("name", "'sha256:' with the token's SHA-256 is missing"),
      ("name \(digest)", "'scopes=' is missing: use send, receive, call, admin"),
      ("name \(digest)0 scopes=send", "'sha256:' must be followed by 64 hexadecimal digits"),
      ("name sha256:xyz scopes=send", "'sha256:' must be followed by 64 hexadecimal digits"),
      ("name \(digest) \(digest) scopes=send", "'sha256:' is repeated"),
      ("name \(digest) scopes=send scopes=send", "'scopes=' is repeated"),
      ("name \(digest) scopes=send,send", #"the scope "send" is repeated"#),
      ("name \(digest) scopes=write", #"unknown scope "write": use send, receive, call, admin"#),
      ("name \(digest) scopes=send,", #"unknown scope "": use send, receive, call, admin"#),
      (
        "name \(digest) scopes=send session=a",
        "unknown word: after the name use sha256:HEX, scopes=, sessions= and topics="
      ),
      ("name \(digest) scopes=send topics=a,,b", "'topics=': a name is empty"),
      (
        "name \(digest) scopes=send topics=a%2",
        #""a%2" in 'topics=': '%' must be followed by two hexadecimal digits of UTF-8"#
      ),
      (
        "name \(digest) scopes=send topics=%FF",
        #""%FF" in 'topics=': '%' must be followed by two hexadecimal digits of UTF-8"#
      ),
      (
        "name \(digest) scopes=send sessions=a,b\r\r",
        #""b\r" in 'sessions=': a control character must be percent-encoded"#
      ),
    ]
    for (text, reason) in cases {
      let message = self.error("# comment\n" + line("first", "t1") + "\n" + text + "\n")
      #expect(message?.hasPrefix("line 3: " + reason) == true, "\(text): \(message ?? "accepted")")
    }
    #expect(error("name \u{FEFF}") != nil && error("\u{FEFF}" + line("a", "t")) != nil)
  }

  /// The log must not repeat a token that was put into the file by mistake.
  @Test func anErrorShowsNoWordThatCouldBeAToken() throws {
    for text in ["name s3cret-t0ken scopes=send", "name sha256:s3cret-t0ken", "s3cret-t0ken=", "name s3cret-t0ken=a"] {
      #expect(error(text)?.contains("s3cret") == false)
    }
  }

  @Test func twoLinesMayHaveOneNameButNotOneToken() throws {
    let table = try table(line("name", "old") + "\n" + line("name", "new"))
    #expect(grant("old", in: table)?.number == grant("new", in: table)?.number)
    #expect(error(line("a", "t") + "\n" + line("b", "t")) == "line 2: its token is also the token of 'a'")
  }

  @Test func theFileHasLimits() throws {
    let lines = (0..<TokenTable.maximumTokens).map { line("n\($0)", "token \($0)") }
    let table = try table(lines.joined(separator: "\n"))
    #expect(table.count == TokenTable.maximumTokens)
    for number in stride(from: 0, to: TokenTable.maximumTokens, by: 97) {
      #expect(grant("token \(number)", in: table)?.principal == "n\(number)")
      #expect(grant("other \(number)", in: table) == nil)
    }
    let more = lines + [line("last", "last")]
    #expect(error(more.joined(separator: "\n")) == "line 10001: there are more than 10000 tokens")
    #expect(
      error(String(repeating: "\n", count: TokenTable.maximumBytes + 1)) == "the file has more than 4194304 bytes")
  }

  @Test func anUnchangedTokenKeepsItsGrant() throws {
    let before = try table(line("a", "1") + "\n" + line("b", "2") + "\n" + line("c", "3") + "\n" + line("d", "4"))
    let after = try table(
      line("new", "5") + "\n" + line("a", "1") + "\n" + line("b", "2", "scopes=receive") + "\n" + line("x", "4"),
      after: before)
    #expect(grant("1", in: after) === grant("1", in: before))
    #expect(grant("2", in: after) !== grant("2", in: before))
    before.revokeGrants(notIn: after)
    let revoked = try ["1", "2", "3", "4"].map { try #require(grant($0, in: before)).isRevoked }
    #expect(revoked == [false, true, true, true])
    let valid = try ["1", "2", "4", "5"].map { try #require(grant($0, in: after)).isRevoked }
    #expect(valid == [false, false, false, false])
  }
}
