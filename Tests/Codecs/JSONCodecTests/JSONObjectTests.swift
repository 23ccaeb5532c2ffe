import ByteStreams
import Testing

@testable import JSONCodec

@Suite struct JSONObjectTests {
  private func members(_ text: String) -> [[String]]? {
    let bytes = Array(text.utf8)
    return JSONObject(bytes.span)?.members.map { member in
      [member.name.lowerBound + 1..<member.name.upperBound - 1, member.value].map {
        String(decoding: bytes[$0], as: UTF8.self)
      }
    }
  }

  @Test(
    arguments: [
      ("{}", []), (" { } ", []), (#"{"a":1}"#, [["a", "1"]]),
      (
        #" { "a" : "x" , "b":[1,{"c":"]}"}] ,"d":null}"#, [["a", #""x""#], ["b", #"[1,{"c":"]}"}]"#], ["d", "null"]]
      ),
      (#"{"q\"}":"\\","r":{}}"#, [[#"q\"}"#, #""\\""#], ["r", "{}"]]),
      (#"{"a":-1.5e3}"#, [["a", "-1.5e3"]]), ("{\"a\"\n:\n[ ]\n}", [["a", "[ ]"]]),
    ] as [(String, [[String]])])
  func findsMembersAtTheirPositions(text: String, expected: [[String]]) {
    #expect(members(text) == expected)
  }

  @Test(arguments: ["[]", "1", "\"{}\"", "null", ""])
  func readsOnlyObjects(text: String) { #expect(members(text) == nil) }

  @Test func limitsTheNumberOfMembers() {
    let text = "{" + (0...JSONObject.memberLimit).map { "\"\($0)\":0" }.joined(separator: ",") + "}"
    #expect(members(text) == nil)
  }

  /// For text that is not valid JSON, the result is unspecified, but the call must end and stay within the text.
  @Test func invalidJSONDoesNotCrashTheParser() {
    for text in ["{", "{\"", "{\"a", "{\"a\"", "{\"a\":", "{\"a\\", "{]}", "{\"a\":}", "{\"a\":[", "{\"a\" 1}", "{,}"] {
      _ = members(text)
    }
  }
}
