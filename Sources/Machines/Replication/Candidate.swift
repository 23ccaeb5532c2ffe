import ByteStreams

/// A session that this gateway does not hold: when to acquire it.
///
/// The driver calls `next` after each report and at each heartbeat, with a heartbeat that was checked at that time. It carries out one command at a time, and reports its outcome. What a lost
/// reply has done is read.
package struct Candidate: Sendable {
  package enum Command: Hashable, Sendable {
    case none
    /// Read the record, all of it at one moment, and report `observed`.
    case read
    /// Run the script and load the journal, then report `acquired` or `failed`.
    case acquire(Acquisition)
    /// It could be acquired, but this gateway is busy: call `next` when it is not.
    case wait
  }

  /// Whether this gateway may hold the session. If not, it only reads who does.
  package var mayAcquire = true
  private let session: String
  /// nil: not known, or it has changed.
  private var record: SharedRecord?
  private var pending: Acquisition?
  /// `Heartbeat.lapses` when it was decided.
  private var lapses: UInt64 = 0
  private var isReading = false
  /// Whether the record has changed since the read was sent.
  private var isStale = false
  /// Since when the session could be acquired, and `HistoryWatch.readings` then.
  private var free: (since: MonotonicTime, readings: UInt64)?
  private var notBefore = MonotonicTime.zero
  /// The largest counter of a term that this process has seen of the session. Redis may have lost it.
  private var counter: UInt32

  /// - Parameter counter: of a term that this process held before.
  package init(session: String, counter: UInt32 = 0) {
    self.session = session
    self.counter = counter
  }

  /// A step of the order in which gateways try: longer than the script takes.
  private static let step = TimeSpan.milliseconds(100)
  /// Before anything is tried again that was refused.
  static let pause = TimeSpan.milliseconds(250)
  /// How long all others leave a released session to its successor.
  static let successorTime = TimeSpan.milliseconds(500)

  // MARK: Reports

  package mutating func observed(_ record: SharedRecord) {
    isReading = false
    counter = max(counter, record.counter)
    self.record = isStale ? nil : record
    isStale = false
    if self.record == nil { free = nil }
  }

  /// Another gateway has changed the record. What was sent goes on.
  package mutating func changed() {
    record = nil
    isStale = isReading
    free = nil
  }

  /// The connection was lost, or the history is another one. The outcome of what was sent is never known.
  package mutating func disconnected() {
    pending = nil
    isReading = false
    changed()
  }

  /// The script has refused, or loading the journal failed.
  package mutating func failed(now: MonotonicTime) {
    disconnected()
    notBefore = now + Self.pause
  }

  /// The script has succeeded, and the journal is loaded. Returns nil if the connection was lost in between.
  package mutating func acquired() -> Holding? {
    guard let acquisition = pending else { return nil }
    disconnected()
    return Holding(acquisition, lapses: lapses)
  }

  // MARK: Decision

  /// - Parameters:
  ///   - isDraining: whether this gateway ends: it only reads who has the session. What it has itself without knowing it, since a reply was
  ///     lost, it acquires to release it.
  ///   - isBusy: whether this gateway is acquiring as many sessions as it can at a time.
  package mutating func next(
    isDraining: Bool, isBusy: Bool = false, _ watch: HistoryWatch, _ heartbeat: Heartbeat, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator
  ) -> Command {
    guard pending == nil, !isReading else { return .none }
    guard let record else {
      guard now >= notBefore else { return .none }
      isReading = true
      return .read
    }
    guard mayAcquire, !isDraining || record.token?.gateway == watch.own, isFree(record, watch, now: now) else {
      free = nil
      return .none
    }
    let free = free ?? (now, watch.readings)
    self.free = free
    guard heartbeat.isValid(now: now), now >= free.since + delay(record, watch, now: now) else { return .none }
    if record.isNew, record.successor != watch.own, !watch.wereHoldersSeen(since: free.readings) {
      return .none
    }
    if isBusy { return .wait }
    let acquisition = acquisition(of: record, watch, using: &generator)
    pending = acquisition
    lapses = heartbeat.lapses
    return .acquire(acquisition)
  }

  private func isFree(_ record: SharedRecord, _ watch: HistoryWatch, now: MonotonicTime) -> Bool {
    guard record.format <= SharedRecord.newestFormat else { return false }
    // What a client has just created here is not older than the loss.
    if record.isNew { return record.successor == watch.own || !watch.mayHaveLostSessions(now: now) }
    // Not stamped: a gateway that has more of the session than Redis acquires it first.
    if record.history != watch.history, !watch.haveOthersSettled(now: now) { return false }
    guard let owner = record.token?.gateway, owner != watch.own else { return true }
    return watch.isGone(owner, now: now)
  }

  private func delay(_ record: SharedRecord, _ watch: HistoryWatch, now: MonotonicTime) -> TimeSpan {
    if record.successor == watch.own || record.token?.gateway == watch.own { return .zero }
    let rank = watch.rank(for: session, now: now)
    let awaited = record.successor.map { !watch.isGone($0, now: now) } ?? false
    return Self.step * Int64(rank) + (awaited ? Self.successorTime : .zero)
  }

  private func acquisition(
    of record: SharedRecord, _ watch: HistoryWatch, using generator: inout some RandomNumberGenerator
  ) -> Acquisition {
    let term = record.nextTerm(in: watch.history, after: counter, random: generator.next())
    let owner = record.token?.gateway == watch.own ? nil : record.token?.gateway
    return Acquisition(
      expected: record, owner: owner, entry: owner.flatMap { watch.text(of: $0) },
      token: HolderToken(term: term, gateway: watch.own, bits: generator.next()),
      terms: record.terms.appending(term, firstPush: record.last.push + 1),
      epoch: record.isNew ? GatewayID(using: &generator).value : record.epoch,
      history: record.isNew ? watch.history : record.history,
      mayHaveLostEntries: !record.isNew && record.history != watch.history)
  }
}
