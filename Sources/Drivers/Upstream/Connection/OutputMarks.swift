/// Where the messages of the outbox are in a connection's output, to tell which of them are with the kernel.
///
/// Positions count the bytes of the output from the connection's beginning.
struct OutputMarks: Sendable {
  /// One message: from where to where its frames reach.
  private struct Mark: Sendable {
    let start: UInt64
    let end: UInt64
    let sequence: UInt64
  }

  /// Messages that go back to the outbox.
  struct Returned: Equatable, Sendable {
    /// The first of them.
    let sequence: UInt64
    let count: Int
  }

  private var marks: [Mark] = []
  /// The first that is not with the kernel as a whole.
  private var first = 0

  /// Memory kept for marks once all are written.
  private static var capacityKept: Int { 4_096 }

  /// Whether messages were appended that the kernel does not have as a whole.
  var hasUnwritten: Bool { first < marks.count }

  mutating func append(_ sequence: UInt64, from start: UInt64, to end: UInt64) {
    marks.append(Mark(start: start, end: end, sequence: sequence))
  }

  /// The kernel has every byte before `position`. Returns the last message that it has as a whole since the last call.
  mutating func write(upTo position: UInt64) -> UInt64? {
    var last: UInt64?
    while first < marks.count, marks[first].end <= position {
      last = marks[first].sequence
      first += 1
    }
    if first == marks.count {
      marks.removeAll(keepingCapacity: marks.capacity <= Self.capacityKept)
      first = 0
    }
    return last
  }

  /// The message of which the kernel has a part, and not the whole.
  func begun(at written: UInt64) -> UInt64? {
    first < marks.count && marks[first].start < written ? marks[first].sequence : nil
  }

  /// Removes the messages of which no byte lies before `committed`. Returns them, and the range of the output that they take.
  ///
  /// They lie together at the output's end, since nothing else is written between appending messages and flushing.
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
