import ByteStreams
import Inbox

/// A push that no worker has handled, kept until a client removes or retries it.
package struct DeadLetter: Sendable {
  package enum Reason: Sendable {
    /// A worker rejected it.
    case rejected
    /// It was delivered as often as the consumer allows.
    case deliveries
  }

  package let message: RetainedMessage
  package let reason: Reason
  package let deliveries: UInt32
}

/// The dead letters of a consumer, oldest first. Their bytes take no memory of their own while the push log keeps the
/// pushes.
struct DeadLetters: Sendable {
  /// Maximum number of dead letters. This number is enough to diagnose why a broken worker could not handle its
  /// messages.
  static var maximumCount: Int { 1_000 }
  /// Maximum sum of the rendered bytes and `RetainedMessage.overhead` of each message.
  static var maximumBytes: Int { 16 << 20 }

  private(set) var letters: [DeadLetter] = []
  private var numbers: Set<UInt64> = []
  private(set) var bytes = 0
  /// Number of dead letters that were dropped to stay within the limits.
  private(set) var dropped: UInt64 = 0
  /// Number of dead letters that were added by this process.
  private(set) var added: UInt64 = 0

  func contains(_ number: UInt64) -> Bool { numbers.contains(number) }

  /// Adds a dead letter, and drops the oldest if there are too many. The newest dead letter stays, whatever its size,
  /// if it is the only one. Returns the numbers of the dropped dead letters.
  ///
  /// - Parameter retried: number and size of the dead letters that are being delivered again. They count towards the
  ///   limits.
  mutating func append(_ letter: DeadLetter, besides retried: (count: Int, bytes: Int)) -> [UInt64] {
    letters.append(letter)
    added += 1
    numbers.insert(letter.message.sequence)
    bytes += letter.message.cost
    var excess = 0
    while letters.count - excess + retried.count > Self.maximumCount || bytes + retried.bytes > Self.maximumBytes {
      guard letters.count - excess > (retried.count == 0 ? 1 : 0) else { break }
      let oldest = letters[excess].message
      bytes -= oldest.cost
      numbers.remove(oldest.sequence)
      excess += 1
    }
    let numbers = letters.prefix(excess).map(\.message.sequence)
    letters.removeFirst(excess)
    dropped += UInt64(excess)
    return numbers
  }

  /// Restores stored dead letters.
  init(restoring letters: [DeadLetter], dropped: UInt64) {
    self.letters = letters
    numbers = Set(letters.map(\.message.sequence))
    bytes = letters.reduce(0) { $0 + $1.message.cost }
    self.dropped = dropped
  }

  init() {}

  /// Returns the number of the dropped dead letter; nil if there is none.
  mutating func dropOldest() -> UInt64? {
    guard let oldest = letters.first?.message else { return nil }
    letters.removeFirst()
    numbers.remove(oldest.sequence)
    bytes -= oldest.cost
    dropped += 1
    return oldest.sequence
  }

  /// Removes and returns the dead letters that a client may receive.
  mutating func take(_ isAllowed: (RetainedMessage) -> Bool) -> [DeadLetter] {
    let taken = letters.filter { isAllowed($0.message) }
    self = DeadLetters(keeping: letters.filter { !isAllowed($0.message) }, of: self)
    return taken
  }

  private init(keeping letters: [DeadLetter], of all: DeadLetters) {
    self.init(restoring: letters, dropped: all.dropped)
    added = all.added
  }
}
