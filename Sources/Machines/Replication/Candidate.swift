import ByteStreams

/// This gateway as a candidate for one session: it is not the holder, but may become the holder. It decides when to
/// acquire the session.
///
/// The driver calls `next` after each report and at each heartbeat, right after a check of the heartbeat. It executes
/// one command at a time, and reports the outcome. If a reply is lost, the record is read to find the outcome.
package struct Candidate: Sendable {
  package enum Command: Hashable, Sendable {
    case none
    /// Read the whole record atomically, then report `observed`.
    case read
    /// Run the script and load the journal, then report `acquired` or `failed`.
    case acquire(Acquisition)
    /// The session could be acquired, but this gateway is busy. Call `next` again when it is no longer busy.
    case wait
  }

  /// Whether this gateway may be the holder. If not, it only reads which gateway is the holder.
  package var mayAcquire = true
  private let session: String
  /// The record as it was read last; nil if it is not known, or has changed since.
  private var record: SharedRecord?
  private var pending: Acquisition?
  /// `Heartbeat.lapses` at the time of the pending acquisition.
  private var lapses: UInt64 = 0
  private var isReading = false
  /// Whether the record has changed since the read was sent.
  private var isStale = false
  /// When the session became free to acquire, and `HistoryWatch.readings` at that time.
  private var free: (since: MonotonicTime, readings: UInt64)?
  private var notBefore = MonotonicTime.zero
  /// The greatest counter of the session's terms that this process has seen. Redis may have lost that term.
  private var counter: UInt32

  /// - Parameter counter: the counter of the last term in which this process was the holder.
  package init(session: String, counter: UInt32 = 0) {
    self.session = session
    self.counter = counter
  }

  /// The delay between two ranks in the order in which gateways try to acquire. It is longer than the script takes.
  private static let step = TimeSpan.milliseconds(100)
  /// The pause before a refused command is repeated.
  static let pause = TimeSpan.milliseconds(250)
  /// How long the other gateways leave a released session to its successor.
  static let successorTime = TimeSpan.milliseconds(500)

  // MARK: Reports

  package mutating func observed(_ record: SharedRecord) {
    isReading = false
    counter = max(counter, record.counter)
    self.record = isStale ? nil : record
    isStale = false
    if self.record == nil { free = nil }
  }

  /// Called when another gateway has changed the record. A command in progress continues.
  package mutating func changed() {
    record = nil
    isStale = isReading
    free = nil
  }

  /// Called when the connection was lost, or the history has changed. The outcome of a command in progress stays
  /// unknown.
  package mutating func disconnected() {
    pending = nil
    isReading = false
    changed()
  }

  /// Called when the script has refused the acquisition, or the journal could not be loaded.
  package mutating func failed(now: MonotonicTime) {
    disconnected()
    notBefore = now + Self.pause
  }

  /// Called when the script has succeeded and the journal is loaded. Returns nil if the connection was lost after the
  /// acquisition.
  package mutating func acquired() -> Tenure? {
    guard let acquisition = pending else { return nil }
    disconnected()
    return Tenure(acquisition, lapses: lapses)
  }

  // MARK: Decision

  /// - Parameters:
  ///   - isDraining: whether this gateway is about to end, and only reads which gateway is the holder. If a reply was
  ///     lost, the record may name this gateway as the holder. In this case this gateway acquires the session again, so
  ///     that it can release the session.
  ///   - isBusy: whether this gateway already acquires as many sessions as it can at a time.
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
    // A new session that names this gateway as its successor was created by a client of this gateway, after any loss of
    // data. So it is not a lost session.
    if record.isNew { return record.successor == watch.own || !watch.mayHaveLostSessions(now: now) }
    // The record is not stamped with the present history. A gateway that has newer entries than Redis must be able to
    // acquire the session first.
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
