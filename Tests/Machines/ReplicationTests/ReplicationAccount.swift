import ByteStreams

@testable import Replication

/// Checks the promises that apply after a calm time.
extension ReplicationWorld {
  func check() throws {
    let log = primary.content
    let holders = gateways.filter { $0.mayWrite }
    guard holders.count == 1, let holder = holders.first else {
      throw Violation(description: "\(holders.count) gateways are holders of the session")
    }
    guard holder.log == log.pushes else { throw Violation(description: "the log differs from the log of its holder") }
    for gateway in gateways {
      guard gateway.copy == log.pushes else { throw Violation(description: "a follower has another log") }
    }
    for message in accepted {
      switch log.state.outcome(message) {
      case .confirmed, .unknown: break
      case .queued: throw Violation(description: "message \(message) is queued for ever")
      case .none: guard !waits else { throw Violation(description: "message \(message) is lost") }
      }
    }
    if waits {
      let stored = Set(log.pushes.compactMap(\.content))
      for (key, content) in revealed where !stored.contains(content) {
        throw Violation(description: "push \(key.number) was shown and is lost")
      }
    }
    for reader in readers {
      for _ in 0..<400 { reader.read(holder, self) }
      try check(reader, log)
    }
  }

  private func check(_ reader: SimulatedReader, _ log: RedisContent) throws {
    var last: Push?
    var received: Set<Int> = []
    for event in reader.events {
      guard case .push(let content) = event else {
        last = nil
        continue
      }
      received.insert(content)
      let push = pushes[content]
      if let last, push.number != last.number + 1 {
        throw Violation(description: "push \(push.number) follows \(last.number) without a gap")
      }
      last = push
    }
    for entry in log.pushes {
      if let content = entry.content, !received.contains(content) {
        guard !waits else { throw Violation(description: "push \(entry.id.push) of the log was not delivered") }
        // Without WAIT, Redis may lose several acquisitions in a row. Then it is not known from which push on the
        // reader and the log differ.
        try checkLost(pushes[content].term, pushes[content].number, reader)
      }
    }
    for (key, content) in revealed where !received.contains(content) && !pushes[content].isSplit {
      try checkLost(key.term, key.number, reader)
    }
  }

  /// Checks that the gap after a lost push has the reason `store`.
  private func checkLost(_ term: UInt64, _ number: UInt64, _ reader: SimulatedReader) throws {
    let next = reader.events.firstIndex {
      guard case .push(let content) = $0 else { return false }
      let push = pushes[content]
      return push.term == term ? push.number > number : push.term >> 32 >= term >> 32
    }
    guard let next, next > 0 else { return }
    let gaps = reader.events[..<next].reversed().prefix { if case .gap = $0 { true } else { false } }
    guard gaps.count < next, !gaps.contains(.gap(isStore: true)) else { return }
    throw Violation(description: "push \(number) was lost without a gap of the store")
  }
}
