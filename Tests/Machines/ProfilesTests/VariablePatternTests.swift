import Testing

@testable import Profiles

@Suite struct VariablePatternTests {
  @Test(arguments: [
    ("[A-Z]{3,8}", ["ABC", "ABCDEFGH"], ["", "AB", "ABCDEFGHI", "abc", "ABC ", "AB1"]),
    (#"order-\d+"#, ["order-1", "order-0123456789"], ["order-", "order-x", "xorder-1", "order-1x"]),
    ("[^/]*", ["", "a b", "..."], ["/", "a/b"]),
    ("^ab?c$", ["abc", "ac"], ["abbc", "ab"]),
    ("a{2}", ["aa"], ["a", "aaa"]),
    ("a{2,}b*", ["aa", "aaaa", "aabbb"], ["a", "ab"]),
    ("a*a*a", ["a", "aaaa"], ["", "b"]),
    (#"\w+\.\w{2}"#, ["a_9.de"], ["a.d", "a-b.de"]),
    ("[]x-]+", [], ["x"]),
    ("[a-]+", ["-", "a-a"], ["b"]),
    (".+", ["any thing!"], ["", "é", "a\n"]),
  ])
  func matchesTheWholeValueOrNot(pattern: String, accepted: [String], refused: [String]) throws {
    guard let parsed = VariablePattern(pattern) else {
      #expect(pattern == "[]x-]+")
      return
    }
    for value in accepted { #expect(parsed.matches(value), "\(pattern) \(value)") }
    for value in refused { #expect(!parsed.matches(value), "\(pattern) \(value)") }
  }

  @Test(arguments: [
    "", "(a)", "a|b", "a**", "*", "{2}", "a{2,1}", "a{0}", "a{x}", "a{,2}", "a{1,2,3}", "a{257}", "[", "[]", "[z-a]",
    "a{2",
    #"\"#, #"\s"#, "a^", "$a", "é", "a\u{0}",
  ])
  func refusesUnsupportedPatterns(pattern: String) { #expect(VariablePattern(pattern) == nil) }

  @Test func refusesALongPattern() {
    #expect(VariablePattern(String(repeating: "a", count: VariablePattern.maximumLength)) != nil)
    #expect(VariablePattern(String(repeating: "a", count: VariablePattern.maximumLength + 1)) == nil)
  }

  /// A backtracking engine would need 2^n steps, so the test would not end.
  @Test func theTimeOfAMatchDoesNotDependOnItsAmbiguity() throws {
    let pattern = try #require(VariablePattern(String(repeating: "a*", count: 127) + "b"))
    #expect(!pattern.matches(String(repeating: "a", count: 256)))
  }
}
