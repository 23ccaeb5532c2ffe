/// The positions of the outbox's messages in a connection's output. The positions show which messages the kernel has
/// accepted.
///
/// Positions count bytes of the output from the connection's beginning.
struct OutputMarks: Sendable {
  /// One message, and the range of its frames.
  private struct Mark: Sendable {
    let start: UInt64
    let end: UInt64
    let sequence: UInt64
  }

  /// Messages that return to the outbox.
  struct Returned: Equatable, Sendable {
    /// The first of these messages.
    let sequence: UInt64
    let count: Int
  }

  private var marks: [Mark] = []
  /// Index of the first message that the kernel has not accepted completely.
  private var first = 0

  /// Maximum capacity that is kept when all messages have been written.
  private static var retainedCapacity: Int { 4_096 }

  /// Whether there are appended messages that the kernel has not accepted completely.
  var hasUnwritten: Bool { first < marks.count }

  mutating func append(_ sequence: UInt64, from start: UInt64, to end: UInt64) {
    marks.append(Mark(start: start, end: end, sequence: sequence))
  }

  /// Records that the kernel has accepted every byte before `position`. Returns the last message that the kernel has
  /// now accepted completely; nil if it has completed no further message.
  mutating func markWritten(upTo position: UInt64) -> UInt64? {
    var last: UInt64?
    while first < marks.count, marks[first].end <= position {
      last = marks[first].sequence
      first += 1
    }
    if first == marks.count {
      marks.removeAll(keepingCapacity: marks.capacity <= Self.retainedCapacity)
      first = 0
    }
    return last
  }

  /// The first message that the kernel has not accepted completely.
  func firstUnwritten(at written: UInt64) -> UInt64? { marks[first...].first { $0.end > written }?.sequence }

  /// The message that the kernel has accepted in part.
  func partiallyWritten(at written: UInt64) -> UInt64? {
    first < marks.count && marks[first].start < written ? marks[first].sequence : nil
  }

  /// Removes the messages that begin at `committed` or later. Returns them, and their range in the output.
  ///
  /// These messages are contiguous, and at the end of the output, since nothing else is written between the appending
  /// of messages and the flush.
  mutating func takeBack(from committed: UInt64) -> (returned: Returned, range: Range<UInt64>)? {
    guard let end = marks.last?.end else { return nil }
    var index = marks.count
    while index > first, marks[index - 1].start >= committed { index -= 1 }
    guard index < marks.count else { return nil }
    let returned = Returned(sequence: marks[index].sequence, count: marks.count - index)
    let range = marks[index].start..<end
    marks.removeSubrange(index...)
    return (returned, range)
  }
}
