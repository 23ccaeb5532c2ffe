import Testing

@testable import JSONCodec

@Suite struct JSONPointerTests {
  private func find(_ pointer: String, _ text: String) -> String? {
    let bytes = Array(text.utf8)
    return JSONPointer(pointer)?.find(in: bytes.span).map { String(decoding: bytes[$0], as: UTF8.self) }
  }

  /// The document of RFC 6901 §5, and the values of its pointers.
  @Test(arguments: [
    ("/foo", #"["bar", "baz"]"#), ("/foo/0", #""bar""#), ("/", "0"), ("/a~1b", "1"), ("/c%d", "2"), ("/e^f", "3"),
    ("/g|h", "4"), ("/i\\j", "5"), ("/k\"l", "6"), ("/ ", "7"), ("/m~0n", "8"),
  ])
  func findsTheValuesOfTheExamplesInTheStandard(pointer: String, value: String) {
    let text = #"{"foo":["bar", "baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}"#
    #expect(find(pointer, text) == value)
    #expect(find("", text) == text)
  }

  @Test(arguments: [
    ("/ping", #" { "ping" : 1492420473027 } "#, "1492420473027"),
    ("/d/x", #"{"a":{"x":1},"d":{"y":[{"x":2}],"x":{"z":[]}}}"#, #"{"z":[]}"#),
    ("/2/1", #"[[1,2],{"a":[]},[3,"]",4]]"#, #""]""#),
    ("/a", #"{"b":"}\"{","a":null}"#, "null"),
    ("/a", #"{"\u0061":true}"#, "true"),
    ("/a", #"{"a":1,"a":2}"#, "1"),
    ("/a", #"{"a":-1.5e3}"#, "-1.5e3"),
  ])
  func findsValuesByteForByte(pointer: String, text: String, value: String) {
    #expect(find(pointer, text) == value)
  }

  @Test(arguments: [
    ("/a", "{}"), ("/a", ""), ("/a", "[1]"), ("/0", "[]"), ("/1", "[1]"), ("/01", "[1,2]"), ("/-", "[1]"),
    ("/a/b", #"{"a":"b"}"#), ("/a", #"{"a""#), ("/a", #"{"a":"#), ("/a", #"{"a":"unclosed"#), ("/a", #"{"a":{"b":1"#),
    ("/b", #"{"a":1 "b":2}"#), ("/a", "{a:1}"), ("/a", #"{"b":]}"#), ("/99999999999999999999", "[1]"),
  ])
  func findsNothingAtAMissingPlace(pointer: String, text: String) { #expect(find(pointer, text) == nil) }

  @Test(arguments: ["a", "/~", "/~2", "a/b", String(repeating: "/a", count: 300)])
  func refusesAnInvalidPointer(text: String) { #expect(JSONPointer(text) == nil) }

  /// For any input, split anywhere, the result is within the text, and nothing is read beyond it.
  @Test func anIncompleteTextDoesNotCrashTheSearch() {
    let text = Array(#"{"a":[{"b":"\u00e4\\"},2],"c":{"d":"é"}}"#.utf8)
    for pointer in ["/a/0/b", "/a/1", "/c/d", "/c", ""].compactMap(JSONPointer.init) {
      for end in 0...text.count {
        let cut = Array(text[..<end])
        if let range = pointer.find(in: cut.span) { #expect(range.upperBound <= end && !range.isEmpty) }
        _ = pointer.content(in: cut.span)
      }
    }
  }

  @Test(arguments: [
    ("/a", #"{"a":1}"#, false), ("/a", #"{"a":1,"b":{"a":2},"c":["a"]}"#, false), ("/a", #"{"a":1,"a":2}"#, true),
    ("/a", #"{"b":0, "a" : [1,{}] , "c":"" , "\u0061":2}"#, true), ("/a/b", #"{"a":{"b":1},"b":2}"#, false),
    ("/a/b", #"{"a":{"b":1,"b":2}}"#, true), ("/a/b", #"{"a":{"b":1},"a":{}}"#, true), ("/0", #"["0","0"]"#, false),
    ("/1/a", #"[{"a":1,"a":1},{"a":1}]"#, false), ("", #"{"a":1,"a":2}"#, false), ("/a", #"{"b":1,"b":2}"#, false),
  ])
  func aRepeatedNameMakesAPointerAmbiguous(pointer: String, text: String, expected: Bool) throws {
    let bytes = Array(text.utf8)
    let isAmbiguous = try #require(JSONPointer(pointer)).isAmbiguous(in: bytes.span)
    #expect(isAmbiguous == expected)
    for end in 0..<bytes.count {
      let cut = Array(bytes[..<end])
      _ = JSONPointer(pointer)?.isAmbiguous(in: cut.span)
    }
  }

  @Test func deepNestingNeedsNoStack() {
    let deep = Array(String(repeating: "[", count: 1_000_000).utf8)
    let found = JSONPointer("/0")?.find(in: deep.span)
    #expect(found == nil)
  }

  @Test(arguments: [
    (#""plain""#, "plain"), (#""""#, ""), (#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"), (#""\u00e4\u20AC""#, "ä€"),
    (#""\ud83d\ude00!""#, "😀!"), (#""\ud83d""#, "\u{FFFD}"), (#""\ude00x""#, "\u{FFFD}x"),
    (#""\ud83d\ud83d""#, "\u{FFFD}\u{FFFD}"),
  ])
  func unescapesStrings(token: String, content: String) {
    let bytes = Array(token.utf8)
    let found = JSONString.content(of: bytes.span)
    let isEqual = JSONString.equals(bytes.span, Array(content.utf8))
    #expect(found == Array(content.utf8) && isEqual)
  }

  @Test(arguments: ["", "\"", "x", #""\x""#, #""\u00""#, "\"\n\""])
  func refusesAnInvalidString(token: String) {
    let bytes = Array(token.utf8)
    let content = JSONString.content(of: bytes.span)
    #expect(content == nil)
  }
}
