import ByteStreams
import Testing

@testable import Dialing

/// The output of a connection with large contents.
@Suite struct LargeOutputTests {
  private static func content(_ letter: String, _ count: Int) -> LargeSlice {
    LargeSlice(ByteSlice(ByteString(Array(String(repeating: letter, count: count).utf8))))
  }

  private func append(_ text: String, _ content: LargeSlice, to output: inout LargeOutput) {
    var queue = ByteQueue()
    queue.append(text)
    output.append(content, after: &queue)
    #expect(queue.count == 0, "the output takes the text over")
  }

  /// Sends `size` bytes at a time. Returns all bytes.
  private func sendAll(_ output: inout LargeOutput, inPartsOf size: Int = .max) -> String {
    var sent = ByteQueue()
    while !output.isEmpty {
      let before = output.count
      let count = output.withNext { queue in
        #expect(queue.count <= LargeOutput.sliceBytes, "one step copies no more than a slice")
        let count = min(size, queue.count)
        sent.append(queue.bytes.extracting(first: count))
        queue.consume(count)
        return count
      }
      #expect(count > 0)
      #expect(output.count == before - count)
    }
    #expect(output.count == 0)
    return sent.bytes.text()
  }

  @Test(arguments: [1_000, 65_536, .max])
  func textsAndLargeContentsAreSentInOrder(size: Int) {
    let large = 3 * LargeOutput.sliceBytes + 5
    var output = LargeOutput()
    append("first", Self.content("a", large), to: &output)
    append("", Self.content("b", 7), to: &output)
    append("third", Self.content("c", large), to: &output)
    #expect(output.count == 2 * large + 17)
    let all = [("first", "a", large), ("", "b", 7), ("third", "c", large)]
      .map { $0 + String(repeating: $1, count: $2) }.joined()
    let sent = sendAll(&output, inPartsOf: size)
    #expect(sent == all)
  }

  /// Messages that the kernel has not begun to accept are taken back, with their large contents.
  @Test func messagesAreRemovedWithTheirLargeContents() {
    let large = LargeOutput.sliceBytes
    var output = LargeOutput()
    append("keptHEAD", Self.content("a", large), to: &output)
    append("TAILHEAD", Self.content("b", 10), to: &output)
    append("TAILkept", Self.content("c", 3), to: &output)
    // A part of the first content was copied, but not sent.
    output.withNext { _ in }
    let removed = output.remove(4..<8 + large + 8 + 10 + 4)
    #expect(removed == large + 26)
    #expect(output.count == 11)
    let rest = sendAll(&output)
    #expect(rest == "keptkeptccc")
  }

  @Test func aRangeBehindTheLargeContentsRemovesNothing() {
    var output = LargeOutput()
    append("kept", Self.content("a", 3), to: &output)
    let removed = output.remove(7..<100)
    #expect(removed == 0)
    let rest = sendAll(&output)
    #expect(rest == "keptaaa")
  }
}
