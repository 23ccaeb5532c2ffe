import ByteStreams
import Inbox

/// Restores a session from its stored rows. First all rows of changes are examined, then all rows of pushes are added,
/// and then the changes, which refer to pushes, are read again and applied. Keeping the changes of the first reading
/// would need several times the memory of the final state.
///
/// The rows may be damaged. For a damaged row, a method returns false. Damaged rows cannot stop the program.
package struct SessionRestoration {
  package private(set) var state: RestoredSession
  /// The last `retained` entry. Without this entry, the first push would not be accepted, because the pushes before it
  /// were dropped.
  private var retained: JournalEntry?

  package init(epoch: UInt64) { state = RestoredSession(epoch: epoch) }

  package mutating func examine(changes bytes: Span<UInt8>) -> Bool {
    JournalEntry.read(bytes) { entry in
      if case .log(.retained) = entry { retained = entry }
      return true
    }
  }

  /// Adds the entries of a row of pushes, except the entries that retention had dropped.
  ///
  /// - Parameter first: the number of the first push in the row; if the row has no push, of the first push after it.
  package mutating func add(pushes bytes: Span<UInt8>, from first: UInt64) -> Bool {
    beginPushes()
    var next = first
    return JournalEntry.read(bytes) { entry in
      switch entry {
      case .log(.push(let push)):
        guard push.number == next else { return false }
        next += 1
        return push.number < state.log.nextPush || state.apply(entry)
      case .log(.gap):
        // A gap before a dropped push was dropped with it.
        return next < state.log.nextPush || state.apply(entry)
      case .log(.retained(let retention)):
        next = max(next, retention.first)
        return state.apply(entry)
      default: return false
      }
    }
  }

  /// Adds the entries of a row of pushes whose first number is not known.
  ///
  /// - Parameter last: the number of the last push in the row; if the row has no push, of the last push before it.
  package mutating func add(pushes bytes: Span<UInt8>, through last: UInt64) -> Bool {
    var first: UInt64?
    _ = JournalEntry.read(bytes) { entry in
      if case .log(.push(let push)) = entry { first = push.number }
      return first == nil
    }
    return add(pushes: bytes, from: first ?? last + 1)
  }

  package mutating func apply(changes bytes: Span<UInt8>) -> Bool {
    beginPushes()
    return JournalEntry.read(bytes) { state.apply($0) }
  }

  private mutating func beginPushes() {
    if let entry = retained.take() { _ = state.apply(entry) }
  }
}
