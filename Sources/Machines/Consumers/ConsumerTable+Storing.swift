import ByteStreams
import Inbox
import Journal
import JournalCoding
import Totals

/// The consumers of a session that is stored. Each call that changes them is followed by `takeEntries`, and the entries are submitted in order.
extension ConsumerTable {
  struct Unstored: Sendable {
    let epoch: Epoch
    /// Settings and removals.
    var entries: [JournalEntry] = []
    /// The consumers that may have other changes.
    var names: Set<String> = []
  }

  /// What was submitted last of a consumer, and when it had been used.
  struct StoredProgress: Sendable {
    let progress: JournalConsumerProgress
    let use: MonotonicTime
  }

  /// The last use of a consumer by an earlier process, and when it is idle unless it is used again. The clock of this process may have started
  /// after that use.
  struct Restored: Sendable {
    let use: MonotonicTime
    let idleEnd: MonotonicTime

    fileprivate init(
      _ stored: RestoredConsumer, _ settings: ConsumerSettings, use: MonotonicTime, at clock: JournalClock
    ) {
      self.use = use
      // A clock that was set back does not make it longer.
      let unused = max(0, clock.wallClock.subtractingReportingOverflow(stored.progress.time).partialValue)
      idleEnd = clock.now + max(settings.idle - .milliseconds(unused), min(settings.idle, ConsumerTable.graceTime))
    }
  }

  /// A use is stored if the last stored one is older than this part of `idle`, so that receives without messages cost few entries.
  fileprivate static var useFraction: Int64 { 16 }
  /// After a start, clients have this time to come back to a consumer that would have been removed meanwhile; its `idle` if that is shorter.
  fileprivate static var graceTime: TimeSpan { .minutes(1) }

  /// The consumers as they were stored. Leases continue until their deadlines, and so does the time until idle consumers are removed.
  package init(restoring restored: [String: RestoredConsumer], from source: some PushSource, at clock: JournalClock) {
    self.init()
    unstored = Unstored(epoch: source.latest.epoch)
    for (name, stored) in restored.sorted(by: { $0.key < $1.key }).prefix(Self.maximumRestored) {
      let settings = ConsumerSettings(stored.settings)
      lastID += 1
      let queue =
        settings.isShared ? LeaseQueue(restoring: stored, settings, from: source, at: clock) : nil
      recordCount += queue?.records.count ?? 0
      var consumer = Consumer(
        id: lastID, settings: settings, position: Self.position(of: stored, source), queue: queue,
        lastUse: clock.time(of: stored.progress.time))
      consumer.restored = Restored(stored, settings, use: consumer.lastUse, at: clock)
      consumer.stored = StoredProgress(progress: stored.progress, use: consumer.lastUse)
      consumers[name] = consumer
      owners.add(by: 0)
      settingsBytes += settings.memory + name.utf8.count
    }
  }

  /// Of a consumer that is not shared. A reader that has acknowledged nothing since it started at a foreign position gets that gap again.
  private static func position(of stored: RestoredConsumer, _ source: some PushSource) -> Cursor {
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
    self.unstored?.entries.append(
      .consumer(name: name, .put(JournalConsumerSettings(consumer.settings), position: position)))
    noteChange(of: name)
  }

  mutating func noteRemoval(of name: String) {
    unstored?.names.remove(name)
    unstored?.entries.append(.consumer(name: name, .removed))
  }

  /// The changes since the last call, in the order in which they must be stored.
  package mutating func takeEntries(at clock: JournalClock) -> [JournalEntry] {
    guard let taken = unstored else { return [] }
    unstored?.entries = []
    unstored?.names.removeAll(keepingCapacity: true)
    var entries = taken.entries
    for name in taken.names {
      for change in consumers[name]?.takeChanges(taken.epoch, at: clock) ?? [] {
        entries.append(.consumer(name: name, change))
      }
    }
    return entries
  }
}

extension ConsumerTable.Consumer {
  fileprivate mutating func takeChanges(_ epoch: Epoch, at clock: JournalClock) -> [ConsumerChange] {
    let changes = queue?.takeChanges(at: clock) ?? []
    var present = progress(epoch)
    present.time = stored?.progress.time ?? 0
    let isMoved = stored?.progress != present
    guard isMoved || lastUse > (stored?.use ?? .zero) + settings.idle / ConsumerTable.useFraction else {
      return changes
    }
    present.time = clock.wallClock(of: lastUse)
    stored = ConsumerTable.StoredProgress(progress: present, use: lastUse)
    // First, so that what is settled up to the position need not be kept.
    return [isMoved ? .moved(present) : .used(at: present.time)] + changes
  }

  private func progress(_ epoch: Epoch) -> JournalConsumerProgress {
    let frontier = queue?.frontier ?? position
    guard frontier.epoch == epoch else {
      var progress = JournalConsumerProgress(position: 0, frontier: 0)
      progress.reasons = .restart
      return progress
    }
    guard let queue else { return JournalConsumerProgress(position: position.position, frontier: position.position) }
    var progress = JournalConsumerProgress(position: queue.position.position, frontier: frontier.position)
    (progress.missed, progress.missedTotal) = (queue.missed, queue.missedTotal)
    progress.reasons = JournalGaps(queue.gapReasons)
    progress.droppedDead = queue.dead.dropped
    return progress
  }
}

extension JournalConsumerSettings {
  fileprivate init(_ settings: ConsumerSettings) {
    self.init()
    isShared = settings.isShared
    visibility = settings.visibility
    maximumDeliveries = settings.maximumDeliveries
    order = settings.order?.text
    topics = settings.topics
    idle = settings.idle
  }
}

extension ConsumerSettings {
  /// What the limits of this version do not allow is left out.
  fileprivate init(_ stored: JournalConsumerSettings) {
    self.init()
    isShared = stored.isShared
    visibility = stored.visibility.clamped(to: Self.visibilities)
    maximumDeliveries = min(max(stored.maximumDeliveries, Self.deliveries.lowerBound), Self.deliveries.upperBound)
    order = stored.order.flatMap { ConsumerOrder($0) }
    for topic in stored.topics { _ = add(topic: Array(topic.utf8)) }
    idle = stored.idle.clamped(to: Self.idleTimes)
  }
}

extension TimeSpan {
  fileprivate func clamped(to range: ClosedRange<TimeSpan>) -> TimeSpan {
    min(max(self, range.lowerBound), range.upperBound)
  }
}
