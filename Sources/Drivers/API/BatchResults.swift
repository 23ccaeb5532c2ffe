/// The results of a batch, in the order of its messages.
///
/// Consecutive equal results are one run, since a receipt is kept for as long as its response waits. A batch that is accepted as a whole, as most
/// are, is one run. The limit is a run per message, of which there are `http.batch_messages`.
struct BatchResults {
  enum Run {
    /// Messages with consecutive sequence numbers.
    case accepted(SendReceipt.Accepted, count: Int)
    /// `detail`: of the first message. The others have none.
    case refused(Problem.Kind, detail: String?, count: Int)
  }

  /// A message of the batch, or its end.
  struct Position: Equatable {
    var run = 0
    var offset = 0
  }

  private(set) var runs: [Run] = []

  init(_ items: [SendReceipt.BatchItem]) {
    for item in items { append(item) }
  }

  /// The results of a batch that was accepted as a whole.
  init(_ first: SendReceipt.Accepted, count: Int) { runs = [.accepted(first, count: count)] }

  var hasRefusals: Bool { runs.contains { if case .refused = $0 { true } else { false } } }

  func forEach(_ body: (SendReceipt.BatchItem) -> Void) {
    for run in runs {
      switch run {
      case .accepted(let first, let count):
        for offset in 0..<UInt64(count) {
          body(.accepted(SendReceipt.Accepted(sequence: first.sequence + offset, nextAttempt: first.nextAttempt)))
        }
      case .refused(let kind, let detail, let count):
        for index in 0..<count { body(.refused(kind, detail: index == 0 ? detail : nil)) }
      }
    }
  }

  /// Moves `position` to the first accepted message for which `isDone` is false. Returns whether there is none.
  func advance(_ position: inout Position, while isDone: (UInt64) -> Bool) -> Bool {
    while position.run < runs.count {
      if case .accepted(let first, let count) = runs[position.run] {
        while position.offset < count {
          guard isDone(first.sequence + UInt64(position.offset)) else { return false }
          position.offset += 1
        }
      }
      position.run += 1
      position.offset = 0
    }
    return true
  }

  private mutating func append(_ item: SendReceipt.BatchItem) {
    switch (runs.last, item) {
    case (.accepted(let first, let count), .accepted(let next))
    where next.sequence == first.sequence + UInt64(count) && next.nextAttempt == first.nextAttempt:
      runs[runs.count - 1] = .accepted(first, count: count + 1)
    case (.refused(let kind, let detail, let count), .refused(let next, detail: nil)) where next == kind:
      runs[runs.count - 1] = .refused(kind, detail: detail, count: count + 1)
    case (_, .accepted(let accepted)): runs.append(.accepted(accepted, count: 1))
    case (_, .refused(let kind, let detail)): runs.append(.refused(kind, detail: detail, count: 1))
    }
  }
}
