import ByteStreams
import Inbox
import Reactor
import Testing

@testable import Gateway

@Suite struct PreparedAnswersTests {
  private static func key(_ sequence: UInt64, limit: Int = 100, revision: UInt64 = 1) -> PreparedAnswers.Key {
    PreparedAnswers.Key(
      start: ReadStart(Cursor(epoch: Epoch(7), sequence: sequence)), limit: limit, maxBytes: 1000, revision: revision,
      second: 0)
  }

  private static func output(_ text: String) -> OutputQueue {
    var output = OutputQueue()
    output.withText { $0.append("head ") }
    output.append(SharedSlice(SharedBytes(Array(text.utf8))))
    output.withText { $0.append(" end") }
    return output
  }

  @Test func keepsAnAnswerOnceItIsAskedForTwice() {
    var answers = PreparedAnswers()
    answers.note(Self.key(1), Self.output("body"), messages: 3)
    #expect(answers.find(Self.key(1)) == nil)
    answers.note(Self.key(1), Self.output("body"), messages: 3)
    let kept = answers.find(Self.key(1))
    #expect(kept?.messages == 3)
    #expect(kept.map { String(decoding: [UInt8](copying: $0.bytes.bytes), as: UTF8.self) } == "head body end")
  }

  @Test func answersNothingElseWithIt() {
    var answers = PreparedAnswers()
    for _ in 0..<2 { answers.note(Self.key(1), Self.output("body"), messages: 3) }
    #expect(answers.find(Self.key(2)) == nil)
    #expect(answers.find(Self.key(1, limit: 1)) == nil)
    #expect(answers.find(Self.key(1, revision: 2)) == nil)
    answers.note(Self.key(2), Self.output("other"), messages: 1)
    #expect(answers.find(Self.key(1)) == nil)
  }

  @Test func keepsNoLargeAnswer() {
    var answers = PreparedAnswers()
    let large = String(repeating: "a", count: 300_000)
    for _ in 0..<3 { answers.note(Self.key(1), Self.output(large), messages: 1) }
    #expect(answers.find(Self.key(1)) == nil)
  }
}
