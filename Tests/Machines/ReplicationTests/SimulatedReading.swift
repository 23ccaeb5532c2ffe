import ByteStreams
import Inbox
import JournalCoding

@testable import Replication

/// The pushes that readers see at a gateway: the copy of a follower, or the stored pushes of the holder.
extension SimulatedGateway {
  /// Reads new entries after a notification.
  func load(_ connection: RedisConnection) {
    guard needsLoad, !isLoading, tenure == nil || view == nil else { return }
    guard bug == .loadBeforeSubscribe || connection.isSubscribed else { return }
    needsLoad = false
    isLoading = true
    let history = watch.history
    let known = (viewEpoch, viewTerms)
    let last = copy.last?.id ?? .none
    let bug = bug
    send(
      connection,
      { server in
        let record = server.content.record
        // In Redis, the record and XRANGE are one transaction. The range is read again if the copy has entries that the
        // log has lost.
        let start = Self.shared(record, known, last, bug)
        return .pushes(record, server.pushes(after: start))
      }
    ) { [unowned self] reply, isConfirmed in
      self.isLoading = false
      // A failover may lose the entries.
      guard isConfirmed || bug == .unconfirmedFollowed else {
        self.needsLoad = true
        return
      }
      self.loads += 1
      guard self.tenure == nil, case .pushes(let record, let entries) = reply else { return }
      if bug == .loadBeforeSubscribe, !connection.isSubscribed {
        self.send(connection, { _ in .ok }) { _, _ in connection.isSubscribed = true }
      }
      // A session that is not stamped may be replaced by a gateway with newer entries.
      guard record.history == history, !record.isNew else { return }
      let start = Self.shared(record, known, last, bug)
      do {
        if start == last, record.terms == known.1, record.epoch == known.0, self.view != nil {
          try self.show(more: entries)
        } else {
          try self.show(self.copy.filter { $0.id <= start } + entries, record.terms, record.epoch)
        }
      } catch { self.world.problem = error as? Violation }
    }
  }

  /// The last entry up to which a copy equals the log.
  private static func shared(
    _ record: SharedRecord, _ known: (epoch: UInt64, terms: HolderTerms), _ last: PushEntryID, _ bug: PlantedBug?
  ) -> PushEntryID {
    if record.epoch != known.epoch { return .none }
    if record.terms == known.terms { return last }
    guard let term = known.terms.last?.term,
      let index = record.terms.begins.firstIndex(where: { $0.term == term })
    else { return .none }
    guard index + 1 < record.terms.begins.count else { return last }
    let end = record.terms.begins[index + 1].firstPush - 1
    if last.push > end { return .none }
    // The log may have lost the gaps after the last push.
    if bug == .gapsAtEndKept { return last }
    return PushEntryID(push: last.push, count: 0)
  }

  /// Shows exactly these entries.
  func show(_ entries: [PushEntry], _ terms: HolderTerms, _ epoch: UInt64) throws {
    (viewTerms, viewEpoch, copy) = (terms, epoch, [])
    view = PushLog(
      restoring: StoredLog(), epoch: Epoch(epoch),
      terms: terms.begins.map { Term($0.term.value, firstMessage: $0.firstPush) },
      retention: Retention(count: .max, bytes: .max, age: .hours(1000)), at: JournalClock(now: .zero, wallClock: 0))
    try show(more: entries)
  }

  func show(more entries: [PushEntry]) throws {
    copy += entries
    var dropped: [RetainedMessage] = []
    for entry in entries {
      if let content = entry.content {
        guard let view, entry.id.push == view.last.sequence + 1 else {
          throw Violation(description: "push \(entry.id.push) does not follow \(view?.last.sequence ?? 0)")
        }
        try world.reveal(entry.id.push, content, viewTerms, viewEpoch)
        self.view?.append(world.messages[content], dropping: &dropped)
      } else {
        view?.recordGap(entry.marks)
      }
    }
  }
}

/// A client that reads from any gateway.
final class SimulatedReader {
  enum Event: Equatable {
    case gap(isStore: Bool)
    case push(content: Int)
  }

  private var start = StartingPoint.earliest
  private(set) var events: [Event] = []
  /// For each gateway that did not know the cursor, its number of loads when the reader asked it first.
  private var awaited: [GatewayID: Int] = [:]

  func read(_ gateway: SimulatedGateway, _ world: ReplicationWorld) {
    guard let view = gateway.view else { return }
    if case .cursor(let cursor) = start, !view.isKnown(cursor), gateway.tenure == nil {
      // The copy may be outdated, so it is read again first.
      guard let since = awaited[gateway.id], gateway.loads > since + 1 else {
        awaited[gateway.id] = awaited[gateway.id] ?? gateway.loads
        gateway.needsLoad = true
        return
      }
    }
    awaited = [:]
    // If the cursor is ahead of the log, the gateway would hold the request.
    guard let start = try? view.resolve(start, now: gateway.now) else { return }
    let result = view.read(after: start, limit: 20, maxBytes: .max)
    guard result.hasContent else { return }
    if let gap = result.gap {
      events.append(.gap(isStore: gap.reasons.contains(.store) || gap.reasons.contains(.restart)))
    }
    for message in result.messages {
      events.append(.push(content: Int(message.arrival.nanoseconds)))
    }
    self.start = .cursor(result.cursor)
  }
}
