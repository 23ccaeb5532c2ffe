import ByteStreams
import Testing

@testable import RESPCodec

@Suite struct RESPCommandTests {
  @Test func writesPartsOfEveryKindInOrder() {
    var output = ByteQueue()
    output.append("before")
    output.append(command: ["SET", .bytes([0x0D, 0x0A, 0x00]), .text("é"), .decimal(.max), .bytes([])])
    output.append(command: ["PING"])
    let expected =
      "before*5\r\n$3\r\nSET\r\n$3\r\n\r\n\0\r\n$2\r\né\r\n$20\r\n18446744073709551615\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n"
    #expect(output.copyBytes() == Array(expected.utf8))
  }

  @Test(arguments: [(0, 1), (9, 1), (10, 2), (99, 2), (100, 3)] as [(UInt64, Int)])
  func aNumberHasTheLengthOfItsDigits(number: UInt64, digits: Int) {
    var output = ByteQueue()
    output.append(command: [.decimal(number)])
    #expect(output.bytes.text() == "*1\r\n$\(digits)\r\n\(number)\r\n")
  }
}
