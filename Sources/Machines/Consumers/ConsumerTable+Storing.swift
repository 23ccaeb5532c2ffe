import ByteStreams
import Inbox
import JournalCoding
import Totals

/// The consumers of a session with a store. After each call that changes them, the owner calls `takeChanges` and
/// submits the changes in order.
extension ConsumerTable {
  struct Unstored: Sendable {
    let epoch: Epoch
    /// Settings and removals.
    var entries: [(name: String, change: ConsumerChange)] = []
    /// The consumers that may have other changes.
    var names: Set<String> = []
  }

  /// After a start, a consumer is not removed within this time, or within its `idle` if that is shorter. So its clients
  /// can return to it.
  static var graceTime: TimeSpan { .minutes(1) }

  /// Restores stored consumers. Leases continue until their deadlines. The time for which a consumer was unused
  /// continues from the stored value. It does not include the time in which no process had the session: only a wall
  /// clock could measure that time, and a step of that clock would remove consumers.
  package init(restoring restored: StoredConsumers, from source: some PushSource, at clock: JournalClock) {
    self.init()
    unstored = Unstored(epoch: source.latest.epoch)
    for (name, stored) in restored.byName.sorted(by: { $0.key < $1.key }).prefix(Self.maximumRestored) {
      let settings = stored.settings.withinLimits
      lastID += 1
      let queue =
        settings.isWorkSharing ? LeaseQueue(restoring: stored, settings, from: source, at: clock) : nil
      recordCount += queue?.records.count ?? 0
      var consumer = Consumer(
        id: lastID, settings: settings, position: Self.position(of: stored, source), queue: queue,
        lastUse: clock.now,
        unusedBefore: .milliseconds(min(stored.progress.unused, settings.idle.nanoseconds / 1_000_000)))
      consumer.stored = stored.progress
      consumers[name] = consumer
      owners.add(by: 0)
      settingsBytes += settings.memory + name.utf8.count
    }
  }

  /// The position of a consumer that is not work-sharing. If its reader started at a cursor with another epoch and has
  /// acknowledged nothing since, the reader gets the gap `restart` again.
  private static func position(of stored: StoredConsumer, _ source: some PushSource) -> Cursor {
    guard stored.progress.reasons.contains(.restart) else {
      return source.cursor(restoring: stored.progress.position)
    }
    return Cursor(epoch: Epoch(~source.latest.epoch.value), sequence: 0)
  }

  // MARK: Changes

  mutating func noteChange(of name: String) { unstored?.names.insert(name) }

  mutating func noteSettings(of name: String) {
    guard let unstored, let consumer = consumers[name] else { return }
    let start = consumer.queue?.frontier ?? consumer.position
    let position = start.epoch == unstored.epoch ? start.position : 0
    var settings = consumer.settings
    settings.isWebhook = false
    self.unstored?.entries.append((name, .put(settings, position: position)))
    noteChange(of: name)
  }

  mutating func noteRemoval(of name: String) {
    unstored?.names.remove(name)
    unstored?.entries.append((name, .removed))
  }

  /// The changes since the last call, in the order in which they must be stored.
  package mutating func takeChanges(at clock: JournalClock) -> [(name: String, change: ConsumerChange)] {
    guard let taken = unstored else { return [] }
    unstored?.entries = []
    unstored?.names.removeAll(keepingCapacity: true)
    var changes = taken.entries
    for name in taken.names {
      for change in consumers[name]?.takeChanges(taken.epoch, at: clock) ?? [] { changes.append((name, change)) }
    }
    return changes
  }
}

extension ConsumerTable.Consumer {
  /// When the time without use must be stored or the consumer removed, unless the consumer is used before then.
  func nextStoring() -> MonotonicTime {
    let end = idleEnd()
    guard end != .distantFuture else { return end }
    return min(end, lastUse + (.milliseconds(stored?.unused ?? 0) + settings.unusedStep - unusedBefore))
  }

  fileprivate mutating func takeChanges(_ epoch: Epoch, at clock: JournalClock) -> [ConsumerChange] {
    let changes = queue?.takeChanges(at: clock) ?? []
    let unused = unused(at: clock.now).nanoseconds / 1_000_000
    let storedUnused = stored?.unused ?? 0
    var present = progress(epoch)
    present.unused = storedUnused
    let isMoved = stored != present
    // A use since the last stored change is stored at once: with the old value, the consumer would be removed too early
    // after a restart.
    let isDue = unused < storedUnused || .milliseconds(unused - storedUnused) >= settings.unusedStep
    guard isMoved || isDue else { return changes }
    present.unused = unused
    stored = present
    // The position comes first, since settled pushes before the position need not be kept.
    return [isMoved ? .moved(present) : .unused(unused)] + changes
  }

  private func progress(_ epoch: Epoch) -> ConsumerProgress {
    let frontier = queue?.frontier ?? position
    guard frontier.epoch == epoch else {
      var progress = ConsumerProgress(position: 0, frontier: 0)
      progress.reasons = .restart
      return progress
    }
    guard let queue else { return ConsumerProgress(position: position.position, frontier: position.position) }
    var progress = ConsumerProgress(position: queue.position.position, frontier: frontier.position)
    (progress.missed, progress.missedTotal) = (queue.missed, queue.missedTotal)
    progress.reasons = queue.gapReasons
    progress.droppedDead = queue.dead.dropped
    return progress
  }
}

extension ConsumerSettings {
  /// The time without use is stored when it has grown by this much, so that unused consumers do not cost many entries.
  /// A step below `graceTime` would gain nothing, since each consumer is kept for `graceTime` after a restart anyway. A
  /// restart loses the time without use since the last stored value, so a larger step would lose more.
  package var unusedStep: TimeSpan { min(max(idle / 16, ConsumerTable.graceTime), .minutes(60), idle) }

  /// The stored settings may come from a version with other limits.
  fileprivate var withinLimits: ConsumerSettings {
    var settings = self
    settings.visibility = visibility.clamped(to: Self.visibilities)
    settings.maximumDeliveries = min(max(maximumDeliveries, Self.deliveries.lowerBound), Self.deliveries.upperBound)
    settings.idle = idle.clamped(to: Self.idleTimes)
    return settings
  }
}

extension TimeSpan {
  fileprivate func clamped(to range: ClosedRange<TimeSpan>) -> TimeSpan {
    min(max(self, range.lowerBound), range.upperBound)
  }
}
