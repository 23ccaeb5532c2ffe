import ByteStreams

/// This gateway's tenure of one session. It decides the next command, so that all entries become stored.
///
/// The driver calls `next` after each report and at each heartbeat, executes one command at a time, and reports the
/// outcome. The decision depends only on the record in Redis and the state of this gateway. So it needs no record of
/// past events, such as a lost reply, a failover or a stop of the process.
///
/// A *write* is a batch of entries or a whole state. Its number is greater than all earlier numbers. A write that is
/// sent again has the same number and the same content, since the first attempt may still arrive.
package struct Tenure: Sendable {
  package enum Command: Hashable, Sendable {
    case none
    /// Read the record, then WAIT; report `observed`.
    case read
    /// Append the entries of write `number`; report `stored` or `failed`.
    case append(number: UInt64, expected: UInt64, history: String)
    /// Append the pushes that Redis lacks, and replace the stored state by the whole present state, as write `number`;
    /// report `stored` or `failed`. The state includes all entries that are submitted by then.
    case replace(number: UInt64, over: SharedRecord)
    /// Run the script; report `acquired` or `failed`. If the token is new, submit the beginning of a term.
    case acquire(Acquisition)
    /// Stamp the session with the present history; report `stamped` or `failed`.
    case stamp(from: String, to: String, counter: UInt32)
    /// Give the session up and name the next holder; report `released` or `failed`.
    case release(history: String, expected: UInt64, to: GatewayID?)
    /// Close the socket and forget the session.
    case giveUp(GiveUpReason)
  }

  /// Why a tenure ends without a release.
  package enum GiveUpReason: Hashable, Sendable {
    /// Another gateway has acquired the session.
    case anotherHolder
    /// Redis names no holder: it has executed a release whose reply was lost, or the session was removed.
    case noHolder
    /// The deadline has passed, and Redis may have lost the last writes. The next holder records that as a gap.
    case mayLackWrites
  }

  /// The identity of the tenure. Every script compares it with the record.
  package private(set) var token: HolderToken
  private var terms: HolderTerms
  private let epoch: UInt64
  /// The number of the last stored write.
  package private(set) var sequence: UInt64
  /// The number of the last write that a failover cannot lose.
  package private(set) var confirmed: UInt64 = 0
  /// The number of the last write.
  private var newest: UInt64
  /// The number of a write whose outcome is not known.
  private var uncertain: UInt64?
  /// Whether the next write must be the whole state. This is the case if Redis has lost this gateway's own acquisition,
  /// so that its write with the number `sequence` may be another write. It is also the case if the stored changes are
  /// much larger than the state.
  private var mustReplace = false
  /// The record in Redis; nil if it is not known.
  private var record: SharedRecord?
  private var pending: Command?
  private var notBefore = MonotonicTime.zero
  /// `Heartbeat.lapses` when the token was stored.
  private var lapses: UInt64
  /// `Heartbeat.lapses` when the pending command was decided.
  private var lapsesThen: UInt64 = 0
  /// The number of the write that begins the term; nil if it was not sent.
  private var opening: UInt64?
  /// Whether the session was stamped, and the beginning of its term confirmed, since the token was stored.
  private var hasBegun = false
  private var release: (to: GatewayID?, isWanted: Bool) = (nil, false)

  /// - Parameter lapses: `Heartbeat.lapses` when the acquisition was decided.
  init(_ acquisition: Acquisition, lapses: UInt64) {
    token = acquisition.token
    terms = acquisition.terms
    epoch = acquisition.epoch
    sequence = acquisition.expected.sequence
    newest = sequence
    self.lapses = lapses
    record = acquisition.result
  }

  // MARK: Reports

  /// - Parameter isConfirmed: whether a WAIT after the read has succeeded. Such a WAIT confirms all earlier writes.
  package mutating func observed(_ record: SharedRecord, isConfirmed: Bool) {
    pending = nil
    self.record = record
    guard record.token == token else { return }
    if record.sequence == uncertain {
      sequence = record.sequence
      uncertain = nil
    }
    if isConfirmed, record.sequence == sequence { confirm() }
  }

  /// Called when the write has succeeded.
  ///
  /// - Parameter last: the last entry of the stream `p` after the write (`SharedRecord.last`).
  package mutating func stored(isConfirmed: Bool, last: PushEntryID) {
    switch pending {
    case .append(let number, _, _), .replace(let number, _): sequence = number
    default: return
    }
    pending = nil
    uncertain = nil
    mustReplace = false
    record?.sequence = sequence
    record?.last = last
    if isConfirmed { confirm() }
  }

  package mutating func acquired() {
    guard case .acquire(let acquisition) = pending else { return }
    pending = nil
    record = acquisition.result
    guard acquisition.token != token else {
      mustReplace = true
      return
    }
    token = acquisition.token
    terms = acquisition.terms
    lapses = lapsesThen
    opening = nil
    hasBegun = false
  }

  package mutating func stamped() {
    guard case .stamp(_, let history, let counter) = pending else { return }
    pending = nil
    record?.history = history
    record?.counter = counter
    noteBeginning()
  }

  /// Called when the script has refused, or Redis is full. The record is read next.
  package mutating func failed(now: MonotonicTime) {
    disconnected()
    notBefore = now + Candidate.pause
  }

  /// Called when the connection was lost, or the history has changed. The outcome of the pending command is not known
  /// until the record is read.
  package mutating func disconnected() {
    pending = nil
    record = nil
  }

  /// Called when the gateway is about to end and has closed the socket. The session is released as soon as all entries
  /// are stored.
  package mutating func releaseSoon(to successor: GatewayID?) { release = (successor, true) }

  /// Called when the stored changes are much larger than the state. So the next write is the whole state.
  package mutating func replaceSoon() { mustReplace = true }

  private mutating func confirm() {
    confirmed = sequence
    noteBeginning()
  }

  private mutating func noteBeginning() {
    guard let opening, let record, confirmed >= opening, isStamped(record) else { return }
    hasBegun = true
  }

  // MARK: State

  /// The history at the last call of `next`.
  private var history = ""

  private func isStamped(_ record: SharedRecord) -> Bool { record.history == history }

  /// Whether the deadline has passed since the token was stored. If so, the session must be acquired again before
  /// further writes.
  package func hasLapsed(_ heartbeat: Heartbeat) -> Bool { heartbeat.lapses != lapses }

  /// Whether this gateway may now have a connection to the upstream, and write to it.
  package func mayWrite(_ heartbeat: Heartbeat, now: MonotonicTime) -> Bool {
    hasBegun && !release.isWanted && !hasLapsed(heartbeat) && heartbeat.isValid(now: now)
  }

  /// Whether this session is settled in the present history. A gateway publishes a history in its entry when all of its
  /// sessions are settled.
  package func isSettled(_ watch: HistoryWatch, _ heartbeat: Heartbeat) -> Bool {
    guard let record, record.token == token else { return false }
    return record.history == watch.history || hasLapsed(heartbeat)
  }

  // MARK: Decision

  /// - Parameter hasEntries: whether there are submitted entries that no write contains yet.
  package mutating func next(
    hasEntries: Bool, _ watch: HistoryWatch, _ heartbeat: Heartbeat, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator
  ) -> Command {
    guard pending == nil else { return .none }
    history = watch.history
    let command = decide(hasEntries: hasEntries, watch, heartbeat, now: now, using: &generator)
    switch command {
    case .none, .giveUp: return command
    case .append(let number, _, _), .replace(let number, _):
      newest = max(newest, number)
      uncertain = number
      if opening == nil { opening = number }
    default: break
    }
    // If the WAIT after this read finds too few replicas, the next read comes after a pause.
    if command == .read { notBefore = now + Candidate.pause }
    pending = command
    lapsesThen = heartbeat.lapses
    return command
  }

  private func decide(
    hasEntries: Bool, _ watch: HistoryWatch, _ heartbeat: Heartbeat, now: MonotonicTime,
    using generator: inout some RandomNumberGenerator
  ) -> Command {
    guard let record else { return now >= notBefore ? .read : .none }
    guard record.token == token else {
      // Redis may have lost this gateway's own acquisition.
      guard !isStamped(record), terms.extend(record.terms, endingAt: record.last.push) else {
        return .giveUp(reason(for: record))
      }
      return .acquire(adoption(of: record))
    }
    let isLapsed = hasLapsed(heartbeat)
    if isLapsed, !isStamped(record) {
      // Since the deadline, another gateway may have been the holder, and Redis may have lost the writes of that
      // gateway.
      guard watch.haveOthersSettled(now: now) else { return .none }
      guard watch.haveOthersReported else {
        return release.isWanted
          ? .release(history: record.history, expected: record.sequence, to: nil) : .giveUp(.mayLackWrites)
      }
    }
    if mustReplace || record.sequence != sequence { return .replace(number: newest + 1, over: record) }
    if let uncertain { return .append(number: uncertain, expected: sequence, history: record.history) }
    let append = Command.append(number: newest + 1, expected: sequence, history: record.history)
    if isLapsed {
      // The entries of the present term are stored first.
      if hasEntries { return append }
      guard heartbeat.isValid(now: now) else { return .none }
      return .acquire(renewal(of: record, watch, using: &generator))
    }
    if opening == nil { return hasEntries ? append : .none }
    if !isStamped(record) {
      return .stamp(
        from: record.history, to: history, counter: record.counter &+ SharedRecord.counterDistance)
    }
    if hasEntries { return append }
    if release.isWanted { return .release(history: history, expected: sequence, to: release.to) }
    return confirmed < sequence && now >= notBefore ? .read : .none
  }

  /// Why this gateway is not the holder in `record`. A later holder may have released the session again.
  private func reason(for record: SharedRecord) -> GiveUpReason {
    record.token == nil && record.terms.last?.term == token.term ? .noHolder : .anotherHolder
  }

  /// Acquires the session again with the same token and the same terms.
  private func adoption(of record: SharedRecord) -> Acquisition {
    Acquisition(
      expected: record, owner: nil, entry: nil, token: token, terms: terms, epoch: epoch, history: record.history,
      mayHaveLostEntries: false)
  }

  /// Acquires the session for a new term of this gateway.
  private func renewal(
    of record: SharedRecord, _ watch: HistoryWatch, using generator: inout some RandomNumberGenerator
  ) -> Acquisition {
    let term = record.nextTerm(in: watch.history, after: token.term.counter, random: generator.next())
    return Acquisition(
      expected: record, owner: nil, entry: nil,
      token: HolderToken(term: term, gateway: token.gateway, bits: generator.next()),
      terms: terms.appending(term, firstPush: record.last.push + 1), epoch: epoch, history: record.history,
      mayHaveLostEntries: false)
  }
}
