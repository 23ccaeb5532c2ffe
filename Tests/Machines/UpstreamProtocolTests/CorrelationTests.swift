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
    return correlation.match(bytes.span) { _ in true }?.isIgnored == false
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

  /// WAMP: a result has the id at another place than an error.
  @Test func repliesMayHaveTheIDAtDifferentPlaces() throws {
    func pointer(_ text: String) throws -> JSONPointer { try #require(JSONPointer(text)) }
    let kind = try pointer("/0")
    let wamp = Correlation(
      request: try pointer("/1"),
      replies: [
        .init(try pointer("/1"), .matching(Matcher(anyOf: [[.value(kind, "50")], [.value(kind, "33")]]))),
        .init(try pointer("/2"), .matching(Matcher([.value(kind, "8")]))),
      ], ignore: Matcher([.present(try pointer("/2/progress"))]))
    /// The id of the call that a message replies to, 7 or 48. Negative if the message is ignored.
    func call(_ text: String) -> Int? {
      let match = wamp.match(Array(text.utf8).span) { token in
        token.decimalValue().flatMap { [7, 48].contains($0) ? $0 : nil }
      }
      return match.map { $0.isIgnored ? -$0.call : $0.call }
    }
    #expect(call("[50,7,{},[1]]") == 7 && call("[33,7,9]") == 7 && call("[50,8,{}]") == nil)
    // The value at /1 is the type of the request, and is also the id of a call.
    #expect(call(#"[8,48,7,{},"wamp.error.x"]"#) == 7 && call(#"[8,7,48,{},"x"]"#) == 48)
    #expect(call(#"[8,48,9,{},"wamp.error.x"]"#) == nil && call("[36,7,1,{}]") == nil)
    #expect(call(#"[50,7,{"progress":true},[1]]"#) == -7 && call(#"[50,8,{"progress":true},[1]]"#) == nil)
  }

  @Test func theIDOfAReplyIsFoundAtEveryCutWithoutReadingBeyond() throws {
    let text = Array(#"{"jsonrpc":"2.0","result":{"id":[1,"\""]},"id":"x"}"#.utf8)
    for end in 0...text.count {
      let cut = Array(text[..<end])
      var token: [UInt8]?
      let match = Correlation.jsonRPC.match(cut.span) { token = [UInt8](copying: $0) }
      if let token { #expect(token.elementsEqual(#""x""#.utf8)) }
      if let match { #expect(cut[match.range].elementsEqual(#""x""#.utf8)) }
      #expect(match != nil || end < text.count)
    }
  }
}
