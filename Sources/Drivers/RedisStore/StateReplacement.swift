import Replication

/// Writes a whole state: first the pushes that Redis lacks, then the parts of the state. The last command replaces the
/// stored state with the new state.
final class StateReplacement {
  /// About how many bytes the pushes of one command have. A single row may be larger.
  private static var groupBytes: Int { 4 << 20 }

  private let write: SessionWrite
  private let record: SharedRecord
  private let token: HolderToken
  private var sentPushes = 0
  private var sentParts = 0
  private var hasReplaced = false
  /// Whether the outcome of the last commands is not known yet.
  var isWaiting = false

  init(_ write: SessionWrite, _ record: SharedRecord, _ token: HolderToken) {
    self.write = write
    self.record = record
    self.token = token
  }

  var isComplete: Bool { hasReplaced }

  func send(_ name: String, _ flight: LogFlight, then: @escaping LogFlight.Completion) {
    let condition = LogCondition(token, history: record.history, after: record.sequence)
    if sentPushes < write.pushes.count {
      let first = sentPushes
      var bytes = 0
      while sentPushes < write.pushes.count, bytes < Self.groupBytes {
        bytes += write.pushes[sentPushes].bytes.count
        sentPushes += 1
      }
      // The sequence does not change, since this is not the whole write.
      flight.send(
        .append(
          name, condition, number: record.sequence, firstKept: nil, changes: [],
          pushes: write.pushes[first..<sentPushes]),
        then: then)
    } else if sentParts < write.changes.count {
      // A missing part is detected when the parts replace the stored state.
      var bytes = 0
      while sentParts < write.changes.count, bytes < Self.groupBytes {
        let part = write.changes[sentParts]
        bytes += part.count
        sentParts += 1
        let isLast = sentParts == write.changes.count || bytes >= Self.groupBytes
        flight.send(
          .stage(name, condition, number: write.number, part: sentParts, part), then: isLast ? then : { _, _ in })
      }
    } else {
      hasReplaced = true
      flight.send(.replace(name, condition, number: write.number, parts: write.changes.count), then: then)
    }
  }
}
