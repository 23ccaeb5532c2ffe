import Testing
import WebSocketCodec

@testable import Profiles

@Suite struct URLTemplateTests {
  @Test(arguments: [
    ("wss://feed.example/{symbol}", ["symbol": "BTC"], "wss://feed.example/BTC"),
    (
      "wss://feed.example/a/{symbol}?d={depth}&x=1", ["symbol": "a/b?c#d", "depth": "1&x=2"],
      "wss://feed.example/a/a%2Fb%3Fc%23d?d=1%26x%3D2&x=1"
    ),
    ("ws://{region}.feed.example:81/", ["region": "eu-1"], "ws://eu-1.feed.example:81/"),
    ("ws://u:p@{host}", ["host": "a.example"], "ws://u%3Ap@a.example/"),
    ("ws://[::1]:80/{a}", ["a": "%"], "ws://[::1]/%25"),
  ])
  func insertsValues(template: String, values: [String: String], url: String) throws {
    #expect(try URLTemplate(template).url(values).text == url)
  }

  @Test(arguments: [
    "127.0.0.1@x", "a:80", "a/b", "a?b", "a#b", "[::1]", "::1", "-a", "a-", "", "a%2e", "a b", "a\\b", "a_b",
  ])
  func aValueCannotEndTheHost(value: String) throws {
    #expect(throws: VariableError.self) { try URLTemplate("ws://{host}/").url(["host": value]) }
  }

  @Test(arguments: [".", ".."])
  func aValueCannotLeaveThePath(value: String) throws {
    #expect(throws: VariableError.self) { try URLTemplate("ws://a/x/{y}/z").url(["y": value]) }
    #expect(try URLTemplate("ws://a/x?{y}").url(["y": value]).target == "/x?\(value)")
  }

  @Test(arguments: [
    "feed.example/{a}", "{a}://feed.example", "ws://{u}@feed.example", "ws://feed.example:{p}/", "http://a/{b}",
    "ws://a/#{b}", "ws:///{b}", "ws://a b/{c}",
  ])
  func refusesVariablesInOtherPlacesAndInvalidURLs(template: String) {
    #expect(throws: VariableError.self) { try URLTemplate(template) }
  }

  @Test func listsItsVariables() throws {
    let template = try URLTemplate("ws://{a}.example/{b}?{c}={not-a-name}")
    #expect(template.variables == ["a", "b", "c"])
    #expect(template.hasVariableHost)
    #expect(try !URLTemplate("ws://a/{b}").hasVariableHost)
    #expect(template.sample.host == "x.example")
  }
}

@Suite struct ProfileVariableTests {
  private var variables: [ProfileVariable] {
    var symbol = ProfileVariable(name: "symbol")
    symbol.pattern = VariablePattern("[A-Z]{3,8}")
    var depth = ProfileVariable(name: "depth")
    depth.defaultValue = "5"
    depth.maximumLength = 2
    return [symbol, depth]
  }

  @Test func aPatternMayAcceptAnEmptyValue() {
    var name = ProfileVariable(name: "name")
    #expect(name.problem(with: "") != nil)
    name.pattern = VariablePattern("a*")
    #expect(name.problem(with: "") == nil)
  }

  @Test func appliesDefaultsAndValues() throws {
    #expect(try variables.values(["symbol": "BTC"]) == ["symbol": "BTC", "depth": "5"])
    #expect(try variables.values(["symbol": "BTC", "depth": "10"]) == ["symbol": "BTC", "depth": "10"])
  }

  @Test(
    arguments: [
      ([:], "variable 'symbol' is missing and has no default"),
      (
        ["symbol": "btc"],
        "variable 'symbol' has a value that is not accepted: it does not match the pattern [A-Z]{3,8}"
      ),
      (
        ["symbol": "BTC", "depth": ""],
        "variable 'depth' has a value that is not accepted: it is empty"
      ),
      (
        ["symbol": "BTC", "depth": "100"],
        "variable 'depth' has a value that is not accepted: it is longer than 2 bytes"
      ),
      (
        ["symbol": "BTC", "depth": "\n"],
        "variable 'depth' has a value that is not accepted: it has a character that is not printable ASCII"
      ),
      (["symbol": "BTC", "x": ""], "variable 'x' is unknown: this profile has symbol, depth"),
    ] as [([String: String], String)])
  func reportsTheFault(given: [String: String], message: String) {
    #expect(throws: VariableError(message)) { try variables.values(given) }
  }

  @Test func namesAreWords() {
    for name in ["a", "symbol", "a_1", "Z9"] { #expect(ProfileVariable.isName(name)) }
    for name in ["", "1a", "_a", "a-b", "a b", "é", String(repeating: "a", count: 33)] {
      #expect(!ProfileVariable.isName(name), "\(name)")
    }
  }
}
