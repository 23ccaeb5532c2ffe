import Testing

@testable import Upstream

@Suite struct OutputMarksTests {
  /// Three messages of ten bytes each, the first at position 100.
  private func threeMarks() -> OutputMarks {
    var marks = OutputMarks()
    for index in 0..<3 as Range<UInt64> { marks.append(7 + index, from: 100 + 10 * index, to: 110 + 10 * index) }
    return marks
  }

  @Test func returnsTheLastCompletelyWrittenMessage() {
    var marks = threeMarks()
    #expect(marks.markWritten(upTo: 109) == nil)
    #expect(marks.markWritten(upTo: 125) == 8)
    #expect(marks.markWritten(upTo: 125) == nil)
    #expect(marks.hasUnwritten)
    #expect(marks.markWritten(upTo: 130) == 9)
    #expect(!marks.hasUnwritten)
  }

  @Test func returnsThePartiallyWrittenMessage() {
    var marks = threeMarks()
    #expect(marks.partiallyWritten(at: 100) == nil)
    #expect(marks.partiallyWritten(at: 101) == 7)
    _ = marks.markWritten(upTo: 110)
    #expect(marks.partiallyWritten(at: 110) == nil)
    #expect(marks.partiallyWritten(at: 115) == 8)
  }

  @Test func returnsTheFirstMessageThatWasNotWritten() {
    var marks = threeMarks()
    #expect(marks.firstUnwritten(at: 100) == 7 && marks.firstUnwritten(at: 109) == 7)
    #expect(marks.firstUnwritten(at: 110) == 8 && marks.firstUnwritten(at: 129) == 9)
    #expect(marks.firstUnwritten(at: 130) == nil)
    _ = marks.markWritten(upTo: 115)
    #expect(marks.firstUnwritten(at: 115) == 8)
    #expect(OutputMarks().firstUnwritten(at: 0) == nil)
  }

  @Test func takesBackOnlyMessagesWithoutWrittenBytes() {
    var marks = threeMarks()
    _ = marks.markWritten(upTo: 105)
    let back = marks.takeBack(from: 105)
    #expect(back?.returned == OutputMarks.Returned(sequence: 8, count: 2))
    #expect(back?.range == 110..<130)
    #expect(marks.takeBack(from: 105) == nil)
    #expect(marks.markWritten(upTo: 110) == 7)
  }

  @Test func continuesAfterTakingBack() {
    var marks = threeMarks()
    _ = marks.takeBack(from: 100)
    marks.append(7, from: 100, to: 110)
    #expect(marks.markWritten(upTo: 110) == 7)
  }
}
