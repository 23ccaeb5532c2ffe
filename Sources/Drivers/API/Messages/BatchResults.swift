/// The results of a batch, in the order of its messages.
///
/// Consecutive equal results are stored as one run, to save memory, since a receipt is kept as long as its response is
/// pending. Most batches are accepted as a whole, and so need only one run. There are at most as many runs as messages
/// (`http.batch_messages`).
struct BatchResults {
  enum Run {
    /// Messages with consecutive sequence numbers.
    case accepted(SendReceipt.Accepted, count: Int)
    /// `detail` describes the first message, and is set only for the first refusal of its kind: thousands of messages
    /// of a batch may have the same reason.
    case refused(Problem.Kind, detail: String?, count: Int)
  }

  /// The position of a message in the batch, or the end of the batch.
  struct Position: Equatable {
    var run = 0
    var offset = 0
  }

  let runs: [Run]

  init(_ runs: [Run]) { self.runs = runs }

  /// The results of a batch that was accepted as a whole.
  init(_ first: SendReceipt.Accepted, count: Int) { runs = [.accepted(first, count: count)] }

  var acceptedCount: Int { runs.reduce(0) { if case .accepted(_, let count) = $1 { $0 + count } else { $0 } } }
  var hasRefusals: Bool { runs.contains { if case .refused = $0 { true } else { false } } }

  /// Moves `position` to the first accepted message for which `isDone` is false. Returns true if there is no such
  /// message.
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
}
