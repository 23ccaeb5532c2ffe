import ByteStreams
import JSONCodec
import Testing

@testable import UpstreamProtocol

@Suite struct CorrelationTests {
  private func correlation(_ request: String, _ shape: Correlation.ReplyShape = .any) throws -> Correlation {
    let pointer = try #require(JSONPointer(request))
    return Correlation(request: pointer, reply: pointer, shape: shape)
  }

  /// The id of a request, or the error.
  private func id(_ text: String, _ correlation: Correlation = .jsonRPC) -> Result<String, Correlation.RequestError> {
    let bytes = Array(text.utf8)
    do throws(Correlation.RequestError) {
      let range = try correlation.identifier(ofRequest: bytes.span)
      return .success(String(decoding: bytes[range], as: UTF8.self))
    } catch {
      return .failure(error)
    }
  }

  private func isReply(_ text: String, _ correlation: Correlation) -> Bool {
    let bytes = Array(text.utf8)
    return correlation.isReply(bytes.span)
  }

  @Test(arguments: [
    (#"{"id":1}"#, "1"), (#" { "x" : [ {"id":2} ] , "id" : -1.5e+30 } "#, "-1.5e+30"), (#"{"\u0069d":1}"#, "1"),
    (#"{"id":123456789012345678901234567890}"#, "123456789012345678901234567890"), (#"{"id":""}"#, #""""#),
    (#"{"id":"é\"\\\ud83d\ude00","m":"\"id\":7"}"#, #""é\"\\\ud83d\ude00""#), (#"{"x":"}","id":0}"#, "0"),
  ])
  func theIDIsAStringOrANumber(text: String, expected: String) { #expect(id(text) == .success(expected)) }

  @Test(
    arguments: [
      (#"{}"#, .absent), (#"{"ID":1}"#, .absent), (#"{"id":null}"#, .absent), (#"{"params":{"id":1}}"#, .absent),
      (#""id""#, .absent), ("7", .absent), (#"[{"id":1}]"#, .batch), (#" [] "#, .batch),
      (#"{"id":true}"#, .neitherStringNorNumber), (#"{"id":[1]}"#, .neitherStringNorNumber),
      (#"{"id":{}}"#, .neitherStringNorNumber), (#"{"id":1,"id":2}"#, .repeated),
      (#"{"id":1,"\u0069d":null}"#, .repeated),
    ] as [(String, Correlation.RequestError)])
  func anythingElseIsNotARequest(text: String, error: Correlation.RequestError) { #expect(id(text) == .failure(error)) }

  @Test func aPointerCanLeadIntoObjectsAndArrays() throws {
    let nested = try correlation("/head/call id/~1")
    #expect(id(#"{"head":{"x":1,"call id":{"/":"a"}}}"#, nested) == .success(#""a""#))
    #expect(id(#"{"head":{"call id":{"/":1}},"head":{}}"#, nested) == .failure(.repeated))
    #expect(id(#"{"head":{"call id":{"/":1},"call id":2}}"#, nested) == .failure(.repeated))
    #expect(id(#"{"head":{"call id":{"/":1}},"call id":{"/":2}}"#, nested) == .success("1"))
    // OCPP, Phoenix and WAMP: a call is an array.
    let array = try correlation("/1")
    #expect(id(#"[2,"19","Boot",{}]"#, array) == .success(#""19""#))
    #expect(id(#"["1","1","1"]"#, array) == .success(#""1""#))
    #expect(id(#"[2]"#, array) == .failure(.batch))
  }

  @Test(arguments: [
    (#"{"id":1,"result":null}"#, true), (#"{"error":{},"id":1}"#, true), (#"{"id":1}"#, false),
    (#"{"id":1,"method":"m"}"#, false), (#"{"id":1,"method":"m","result":1}"#, false),
    (#"{"id":1,"result":1,"id":2}"#, false), (#"{"id":1,"params":{"result":1}}"#, false),
  ])
  func aReplyOfJSONRPCHasAResultOrAnErrorAndNoMethod(text: String, expected: Bool) {
    #expect(isReply(text, .jsonRPC) == expected)
  }

  @Test func aMatcherDecidesWhichMessagesAreReplies() throws {
    let pointer = try #require(JSONPointer("/0"))
    let ocpp = try correlation("/1", .matching(Matcher([.value(pointer, "3")])))
    #expect(isReply(#"[3,"19",{}]"#, ocpp) && !isReply(#"[2,"19","Reset",{}]"#, ocpp))
    #expect(isReply(#"[2,"19","Reset",{}]"#, try correlation("/1")))
  }

  @Test func theIDOfAReplyIsFoundAtEveryCutWithoutReadingBeyond() throws {
    let text = Array(#"{"jsonrpc":"2.0","result":{"id":[1,"\""]},"id":"x"}"#.utf8)
    for end in 0...text.count {
      let cut = Array(text[..<end])
      let range = Correlation.jsonRPC.identifier(ofReply: cut.span)
      if let range { #expect(cut[range].elementsEqual(#""x""#.utf8)) }
      #expect(range != nil || end < text.count)
      _ = Correlation.jsonRPC.isReply(cut.span)
    }
  }
}
