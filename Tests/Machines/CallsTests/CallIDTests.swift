import ByteStreams
import TestSupport
import Testing

@testable import Calls

@Suite struct CallIDTests {
  private func text(_ id: CallID) -> String { String(decoding: id.token, as: UTF8.self) }

  private func parse(_ token: String) -> CallID? {
    let bytes = Array(token.utf8)
    return CallID(token: bytes.span)
  }

  @Test func aNumberHasFourteenDigitsWhateverTheRandomBits() {
    var generator = SeededGenerator(seed: 1)
    let extremes: [UInt128] = [0, .max, 89_999_999_999_999, 90_000_000_000_000]
    for random in extremes + (0..<1_000).map({ _ in UInt128(generator.next()) << 64 | UInt128(generator.next()) }) {
      let id = CallID(.number, random: random)
      let token = text(id)
      #expect(token.count == 14 && token.allSatisfy(\.isNumber) && token.first != "0")
      // A double, and even a number of 14 significant digits, represents the id exactly.
      #expect(Double(token).map { UInt64($0) } == UInt64(token))
      #expect(parse(token) == id)
    }
  }

  @Test func aStringIsAUUIDOfVersion4() throws {
    var generator = SeededGenerator(seed: 2)
    for random in [0, .max] + (0..<1_000).map({ _ in UInt128(generator.next()) << 64 | UInt128(generator.next()) }) {
      let id = CallID(.string, random: random)
      let token = text(id)
      #expect(try /"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"/.wholeMatch(in: token) != nil)
      #expect(parse(token) == id)
      // Some upstreams write the digits of a UUID in capital letters.
      #expect(parse(token.uppercased()) == id)
    }
    #expect(CallID(.string, random: 7) != CallID(.number, random: 7))
  }

  @Test(arguments: [
    "", "1", "1234567890123", "123456789012345", "01234567890123", "-1234567890123", "1234567890123.", "1e12345678901",
    "12345678901234.0", "null", #""""#, #""12345678901234""#, #""00000000-0000-4000-8000-00000000000""#,
    #""00000000-0000-4000-8000-0000000000000""#, #""00000000-0000-4000-8000-00000000000g""#,
    #""00000000x0000-4000-8000-000000000000""#, #"'00000000-0000-4000-8000-000000000000""#,
    #""00000000-0000-4000-8000-000000000000'"#,
  ])
  func anyOtherTokenIsNotAnID(token: String) { #expect(parse(token) == nil) }

  @Test func theTypeOfAnIDIsTheTypeOfTheClientsID() {
    for (token, form) in [("1", CallID.Form.number), ("-1.5e9", .number), (#""1""#, .string), (#""""#, .string)] {
      let bytes = Array(token.utf8)
      let found = CallID.form(of: bytes.span)
      #expect(found == form)
    }
  }

  @Test func replacingAnIDChangesNoOtherByte() {
    let message = Array(#" {"id" : "é\"" , "x":[1]} "#.utf8)
    let start = Array(#" {"id" : "#.utf8).count
    let range = start..<start + Array(#""é\"""#.utf8).count
    let id = CallID(.number, random: 1)
    let replaced = id.replacing(range, in: message.span)
    #expect(String(decoding: replaced, as: UTF8.self) == #" {"id" : 10000000000001 , "x":[1]} "#)
    let whole = id.replacing(0..<message.count, in: message.span)
    #expect(whole == id.token)
  }
}
