import Testing

@testable import UpstreamProtocol

/// Variables of a profile in messages.
@Suite struct TemplateVariableTests {
  private func rendered(_ text: String, _ values: [String: String]) throws -> String {
    var given = TemplateValues()
    given.credential = Array("{symbol}".utf8)
    let template = try Template(text, in: .opening, environment: [:]).replacing(values)
    return String(decoding: try template.rendered(with: given), as: UTF8.self)
  }

  @Test(arguments: [
    (#"{"subscribe":"{symbol}"}"#, "BTC", #"{"subscribe":"BTC"}"#),
    (#"{"subscribe":"{symbol}"}"#, #"a","admin":"\"#, #"{"subscribe":"a\",\"admin\":\"\\"}"#),
    (#"{"id":{symbol},"x":"{symbol}"}"#, "17", #"{"id":17,"x":"17"}"#),
    (#"{"a":"\"{symbol}"}"#, #"""#, #"{"a":"\"\""}"#),
    (#"["{symbol}", {symbol}]"#, "true", #"["true", true]"#),
    ("SUBSCRIBE {symbol} {other}", #"a"b"#, #"SUBSCRIBE a"b {other}"#),
    ("{symbol}", "a", "a"),
  ])
  func insertsAValue(text: String, value: String, expected: String) throws {
    #expect(try rendered(text, ["symbol": value]) == expected)
  }

  @Test(arguments: ["1,\"x\":2", "\"a\"", "{}", "[]", "x", "", " 1", "1 "])
  func aValueOutsideOfAStringIsALiteral(value: String) {
    for text in [#"{"id":{symbol}}"#, #"42["sub",{symbol}]"#] {
      let error = #expect(throws: TemplateVariableError.self) { try rendered(text, ["symbol": value]) }
      #expect(error?.variable == "symbol")
    }
  }

  /// Messages that are JSON in part.
  @Test(arguments: [
    (#"42["sub","{symbol}"]"#, #"a","b"#, #"42["sub","a\",\"b"]"#), (#" [1,"{symbol}"]"#, #"\"#, #" [1,"\\"]"#),
    (#"42{symbol}"#, #"["a"]"#, #"42["a"]"#), (#"SUB "{symbol}" {symbol}"#, "a b", #"SUB "a b" a b"#),
    (#"${credential}["sub","{symbol}"]"#, #"a",""#, #"{symbol}["sub","a\",\""]"#),
  ])
  func aValueEndsNoString(text: String, value: String, expected: String) throws {
    #expect(try rendered(text, ["symbol": value]) == expected)
  }

  @Test(arguments: [#"a"b"#, #"a\"#])
  func aValueBeginsNoString(value: String) {
    #expect(throws: TemplateVariableError.self) { try rendered(#"SUB {symbol} "x""#, ["symbol": value]) }
  }

  @Test func anInsertedValueIsNotReadAsATemplate() throws {
    #expect(try rendered(#"{"a":"${credential}"}"#, ["symbol": "BTC"]) == #"{"a":"{symbol}"}"#)
  }
}
