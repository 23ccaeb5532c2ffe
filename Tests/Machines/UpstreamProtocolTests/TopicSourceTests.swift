import ByteStreams
import JSONCodec
import Testing

@testable import UpstreamProtocol

@Suite struct TopicSourceTests {
  private func topic(_ payload: String, pointer: String? = nil, rules: [(Matcher.Condition, String)] = []) -> String {
    var source = TopicSource()
    source.source = pointer.flatMap { JSONPointer($0) }.map { ValueSource($0) }
    source.rules = rules.map { TopicSource.Rule(match: Matcher([$0.0]), topic: $0.1) }
    #expect(source.isEmpty == (pointer == nil && rules.isEmpty))
    return String(decoding: source.topic(of: Array(payload.utf8).span), as: UTF8.self)
  }

  @Test(arguments: [
    (#"{"channel":"btc.trades"}"#, "btc.trades"), (#"{"channel":"a\"\u00e9"}"#, "a\"é"), (#"{"channel":7}"#, "7"),
    (#"{"channel":true}"#, "true"), (#"{"channel":null}"#, ""), (#"{"channel":{"a":1}}"#, ""),
    (#"{"channel":[1]}"#, ""),
    (#"{"channel":""}"#, ""), (#"{"other":1}"#, ""), ("channel", ""), ("", ""),
  ])
  func readsTheValueAtThePointer(payload: String, expected: String) {
    #expect(topic(payload, pointer: "/channel") == expected)
    #expect(topic(payload) == "")
  }

  @Test(arguments: [
    (#"{"channel":"btc","price":NaN}"#, "btc"), (#"{"price":NaN,"channel":"btc"}"#, "btc"),
    (#"{"channel":"btc""#, "btc"), (#"{"channel":"a"}{"channel":"b"}"#, "a"),
    (#"{"channel":btc}"#, ""), (#"{"channel":01}"#, ""), (#"{"channel":tru"#, ""), (#"{"channel":NaN}"#, ""),
    (#"{"channel":"bt"#, ""), (#"{"channel":"a\\x"}"#, "a\\x"), (#"{"channel":"a\x"}"#, ""), (#"{"channel":}"#, ""),
    (#"{"channel":1.5e3}"#, "1.5e3"), (#"{'channel':"a"}"#, ""), (#"data: {"channel":"a"}"#, ""),
  ])
  func onlyTheValueItselfMustBeValidJSON(payload: String, expected: String) {
    #expect(topic(payload, pointer: "/channel") == expected)
  }

  @Test func theFirstRuleThatMatchesComesBeforeThePointer() {
    let rules: [(Matcher.Condition, String)] = [(.prefix("tick"), "ticks"), (.prefix("ti"), "others")]
    #expect(topic("tick 1", rules: rules) == "ticks" && topic("time", rules: rules) == "others")
    #expect(topic(#"{"c":"x"}"#, pointer: "/c", rules: rules) == "x" && topic("a", rules: rules) == "")
    #expect(topic(#"{"c":"x"}"#, pointer: "/c", rules: [(.prefix("{"), "objects")]) == "objects")
  }
}
