import Access
import Testing

@Suite struct NamePatternsTests {
  @Test(
    arguments: [
      ("a", true), ("b", false), ("", false), ("a*", false), ("ab", false), ("orders.", true), ("orders.eu", true),
      ("orders", false), ("x", false), ("straße", true),
    ])
  func exactNamesAndPrefixesMatch(name: String, isContained: Bool) throws {
    let patterns = try NamePatterns(["a", "orders.*", "straße"])
    #expect(patterns.contains(name) == isContained)
  }

  @Test(
    arguments: [
      ("a", true), ("a*", false), ("orders.*", true), ("orders.eu.*", true), ("orders.eu", true), ("orders*", false),
      ("*", false), ("", false),
    ])
  func aPatternIsContainedIfAllItsNamesAre(pattern: String, isContained: Bool) throws {
    let patterns = try NamePatterns(["a", "orders.*"])
    let result = patterns.contains(pattern: pattern.utf8Span.span)
    #expect(result == isContained)
  }

  @Test func allContainsEveryNameAndNoneContainsNone() throws {
    for name in ["", "a", "a*", "*"] {
      #expect(NamePatterns.all.contains(name))
      #expect(!NamePatterns.none.contains(name))
      let isInAll = NamePatterns.all.contains(pattern: name.utf8Span.span)
      let isInNone = NamePatterns.none.contains(pattern: name.utf8Span.span)
      #expect(isInAll && !isInNone)
    }
    #expect(try NamePatterns(["*"]) == .all)
    #expect(try NamePatterns([] as [String]) == .none)
  }

  @Test(arguments: [
    (["*"], true), (["*", "a"], true), (["a", "b*", "*"], true), ([], false), (["a"], false), (["a*"], false),
    (["a", "a*"], false),
  ])
  func aListWithAStarContainsAllNames(names: [String], isAll: Bool) throws {
    #expect(try NamePatterns(names).isAll == isAll)
  }

  @Test func listsHaveLimits() throws {
    let longest = String(repeating: "x", count: NamePatterns.maximumBytes)
    #expect(try NamePatterns([longest + "*"]).contains(longest + "y"))
    #expect(throws: NamePatterns.Invalid.tooLong) { try NamePatterns([longest, "y"]) }
    let names = (0..<NamePatterns.maximumCount).map { "n\($0)" }
    #expect(try NamePatterns(names).contains("n63"))
    #expect(throws: NamePatterns.Invalid.tooMany) { try NamePatterns(names + ["n"]) }
    #expect(throws: NamePatterns.Invalid.emptyName) { try NamePatterns(["a", ""]) }
  }

  @Test func aListIsWrittenAsInTheConfiguration() throws {
    #expect(try NamePatterns(["a", "orders.*", "*"]).description == "a,orders.*,*")
    #expect(NamePatterns.none.description == "")
  }
}
