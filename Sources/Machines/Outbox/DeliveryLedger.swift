import ByteStreams
import JournalCoding

/// The state, reason and time of each of the latest messages, by sequence number, in five bytes per message. The ledger
/// also counts how many messages entered each state.
///
/// Its memory grows with the number of messages, so a session that never sends needs none. From `limit` messages on, it
/// forgets the oldest message for each new message, but never a message that is still in the outbox.
package struct DeliveryLedger: Sendable {
  /// `GET /v1/deliveries/{id}` can respond for at least this many of the latest messages. They cover a minute at a
  /// thousand messages per second, and take 320 KiB.
  package static let minimumLimit = 65_536

  /// Of the messages older than the last `limit` messages, this many are remembered after they have left the outbox.
  /// That is a full queue of the default size.
  static let lateLimit = 1_024

  /// How many of the latest messages are remembered. It is a power of two, and at least twice
  /// `OutboxSettings.maximumMessages`.
  package let limit: Int
  /// The messages that pongs can confirm. For other messages, `written` is final.
  private var confirmable: Range<UInt64>
  /// Number of remembered messages whose final state is `written`.
  private var finallyWritten = 0
  /// Whether the outbox keeps written messages until they are confirmed.
  private let keepsWritten: Bool
  /// The messages older than the last `limit` that are still remembered: all messages in the outbox, and the last
  /// `lateLimit` messages that left it.
  private var late: [UInt64: LateEntry] = [:]
  /// The messages in `late` that have left the outbox, in the order in which they left.
  private var lateDepartures = RingDeque<UInt64>(filler: 0)
  /// For each message, the raw value of its state in the lower four bits, and of its reason in the upper four bits. 0
  /// for a number that was never assigned.
  private var states: [UInt8] = []
  /// When each state was reached, in `timeUnit`s of the clock.
  private var times: [UInt32] = []
  /// The time of the changes that are made now. The driver sets it.
  package var now = MonotonicTime.zero
  /// The last sequence number assigned; numbers begin at 1.
  package private(set) var last: UInt64 = 0
  /// How many messages entered each state, by its raw value.
  private var totals = InlineArray<8, UInt64>(repeating: 0)
  /// How many of the remembered messages are in each state now, by its raw value.
  private var present = InlineArray<8, Int>(repeating: 0)
  /// Messages that returned to the queue after they had been written.
  package private(set) var redeliveries: UInt64 = 0
  private var reported = DeliveryLosses()
  /// How many times a message entered a final state.
  package private(set) var completions: UInt64 = 0

  /// Messages that are shown as `written` until the changes that they caused are stored, even if the upstream has
  /// confirmed the messages.
  private var withheld: [UInt64: Withheld] = [:]

  private struct Withheld {
    /// Number of changes that are not stored yet. Each time the message is sent, a change is added.
    var changes = 0
    /// Whether the upstream has confirmed the message.
    var isConfirmed = false
  }

  /// Whether changes are recorded for a store.
  private(set) var recordsChanges = false
  private var changes: [DeliveryChange] = []

  private struct LateEntry {
    var state: DeliveryState
    var reason: DeliveryReason?
    var time: UInt32
  }

  package init(_ settings: OutboxSettings) {
    var limit = Self.minimumLimit
    while limit < 2 * settings.maximumMessages { limit *= 2 }
    self.limit = limit
    confirmable = settings.confirms ? 0..<UInt64.max : 0..<0
    keepsWritten = settings.confirms && settings.redelivery == .unconfirmed
  }

  /// Assigns the next number to a message that is queued now.
  @inline(__always)
  mutating func open() -> UInt64 {
    last &+= 1
    if last > states.count, states.count < limit {
      let more = max(64, states.count)
      states.append(contentsOf: repeatElement(0, count: more))
      times.append(contentsOf: repeatElement(0, count: more))
    }
    let index = index(of: last)
    if let oldest = Self.state(states[index]) {
      if needsPayload(oldest) {
        late[last &- UInt64(states.count)] = LateEntry(
          state: oldest, reason: Self.reason(states[index]), time: times[index])
      } else {
        forget(oldest, of: last &- UInt64(states.count))
      }
    }
    states[index] = DeliveryState.queued.rawValue
    times[index] = currentTime
    totals[Int(DeliveryState.queued.rawValue)] &+= 1
    present[Int(DeliveryState.queued.rawValue)] &+= 1
    return last
  }

  /// Forgets a message in this state. If the message is `written` and could still be confirmed, it counts as `unknown`.
  /// That happens if the upstream ignores pings.
  @inline(__always)
  private mutating func forget(_ state: DeliveryState, of sequence: UInt64) {
    count(-1, in: state, from: sequence)
    guard !isFinal(state, of: sequence) else { return }
    if state == .written { totals[Int(DeliveryState.unknown.rawValue)] &+= 1 }
    completions &+= 1
  }

  /// Sets whether pongs confirm the messages from `first` on. None of these messages is written yet.
  mutating func setConfirms(_ confirms: Bool, from first: UInt64) {
    let (start, end) = (confirmable.lowerBound, confirmable.upperBound)
    if confirms {
      confirmable = (end == .max ? min(start, first) : first)..<UInt64.max
    } else {
      confirmable = min(start, first)..<min(end, first)
    }
  }

  /// Whether a pong can confirm the message when it is written.
  func isConfirmable(_ sequence: UInt64) -> Bool { confirmable.contains(sequence) }

  /// How many of the remembered messages are `written` and may still be confirmed.
  var unconfirmed: Int { count(in: .written) &- finallyWritten }

  /// Whether this state of the message is final.
  private func isFinal(_ state: DeliveryState, of sequence: UInt64) -> Bool {
    switch state {
    case .queued: false
    case .written: !isConfirmable(sequence)
    case .confirmed, .expired, .replaced, .rejected, .unknown: true
    }
  }

  /// Whether the state of a message is final, or the message is forgotten.
  package func isSettled(_ sequence: UInt64) -> Bool {
    state(of: sequence).map { isFinal($0, of: sequence) && !($0 == .written && isWithheld(sequence)) } ?? true
  }

  /// Whether a message was written, or its state is final, or the message is forgotten.
  package func isWritten(_ sequence: UInt64) -> Bool {
    state(of: sequence).map { $0 == .written && isConfirmable(sequence) || isSettled(sequence) } ?? true
  }

  /// Whether a message in this state is in the outbox.
  private func needsPayload(_ state: DeliveryState) -> Bool { state == .queued || state == .written && keepsWritten }

  /// nil for a number that was never assigned or is forgotten.
  package func state(of sequence: UInt64) -> DeliveryState? {
    guard remembers(sequence) else { return late.isEmpty ? nil : late[sequence]?.state }
    return Self.state(states[index(of: sequence)])
  }

  /// The state with its reason and time. nil for a number that was never assigned or is forgotten.
  package func record(of sequence: UInt64, now: MonotonicTime) -> DeliveryRecord? {
    guard remembers(sequence) else {
      return late[sequence].map {
        DeliveryRecord(state: $0.state, reason: $0.reason, time: Self.unpacked($0.time, now))
      }
    }
    let index = index(of: sequence)
    return Self.state(states[index]).map {
      DeliveryRecord(state: $0, reason: Self.reason(states[index]), time: Self.unpacked(times[index], now))
    }
  }

  // MARK: Packed values

  private static func state(_ packed: UInt8) -> DeliveryState? { DeliveryState(rawValue: packed & 15) }
  private static func reason(_ packed: UInt8) -> DeliveryReason? { DeliveryReason(rawValue: packed >> 4) }
  private static func packed(_ state: DeliveryState, _ reason: DeliveryReason?) -> UInt8 {
    state.rawValue | (reason?.rawValue ?? 0) << 4
  }

  /// The resolution of times. In this unit, 32 bits represent times up to 248 days before and after the present. A time
  /// can be after the present, since the clocks of threads differ slightly.
  private static var timeUnit: TimeSpan { .milliseconds(10) }

  private static func units(_ time: MonotonicTime) -> UInt64 { time.nanoseconds / UInt64(timeUnit.nanoseconds) }

  private var currentTime: UInt32 { UInt32(truncatingIfNeeded: Self.units(now)) }

  private static func unpacked(_ time: UInt32, _ now: MonotonicTime) -> MonotonicTime {
    let units = units(now)
    let age = max(0, Int32(bitPattern: UInt32(truncatingIfNeeded: units) &- time))
    return .zero + timeUnit * Int64(clamping: units - min(units, UInt64(age)))
  }

  // MARK: Changes

  /// Keeps the message `written` and unsettled, even after its confirmation, until `release` was called once for each
  /// call of this function.
  mutating func withhold(_ sequence: UInt64) { withheld[sequence, default: Withheld()].changes += 1 }

  func isWithheld(_ sequence: UInt64) -> Bool { !withheld.isEmpty && withheld[sequence] != nil }

  mutating func release(_ sequence: UInt64) {
    guard var message = withheld[sequence] else { return }
    message.changes -= 1
    withheld[sequence] = message.changes > 0 ? message : nil
    guard message.changes == 0, state(of: sequence) == .written else { return }
    if message.isConfirmed { set(sequence, to: .confirmed) } else if !isConfirmable(sequence) { completions &+= 1 }
  }

  /// Records that a message is confirmed.
  mutating func confirm(_ sequence: UInt64) {
    guard isWithheld(sequence) else { return set(sequence, to: .confirmed) }
    withheld[sequence]?.isConfirmed = true
    if state(of: sequence) != .written { set(sequence, to: .written) }
  }

  /// Moves the written messages from `first` through `last` to `confirmed`; returns how many.
  mutating func confirmAll(from first: UInt64, through last: UInt64) -> Int {
    for sequence in withheld.keys where sequence >= first && sequence <= last && state(of: sequence) == .written {
      withheld[sequence]?.isConfirmed = true
    }
    return setWritten(from: first, through: last, to: .confirmed)
  }

  /// Records that the connection of the messages from `first` through `last` has ended, and that no pong has confirmed
  /// them. Replies may have confirmed some of them.
  mutating func loseAll(from first: UInt64, through last: UInt64) {
    _ = setWritten(from: first, through: last, to: .unknown, because: .connectionLost)
  }

  /// Like `setAll`, for written messages. Confirmed messages whose confirmation is withheld keep their state, but are
  /// part of the returned number.
  private mutating func setWritten(
    from first: UInt64, through last: UInt64, to state: DeliveryState, because reason: DeliveryReason? = nil
  ) -> Int {
    guard !withheld.isEmpty else { return setAll(.written, from: first, through: last, to: state, because: reason) }
    let kept = withheld.filter { sequence, message in
      message.isConfirmed && sequence >= first && sequence <= last && self.state(of: sequence) == .written
    }
    var (count, next) = (kept.count, first)
    for sequence in kept.keys.sorted() {
      if next < sequence {
        count += setAll(.written, from: next, through: sequence - 1, to: state, because: reason)
      }
      next = sequence + 1
    }
    return next <= last ? count + setAll(.written, from: next, through: last, to: state, because: reason) : count
  }

  mutating func set(_ sequence: UInt64, to state: DeliveryState, because reason: DeliveryReason? = nil) {
    if recordsChanges { record(sequence, state, reason) }
    totals[Int(state.rawValue)] &+= 1
    if isFinal(state, of: sequence) { completions &+= 1 }
    replace(sequence, by: state, reason)
  }

  /// Returns a written message to the queue.
  mutating func reopen(_ sequence: UInt64) {
    redeliveries &+= 1
    if recordsChanges { record(sequence, .queued, nil) }
    replace(sequence, by: .queued, nil)
  }

  /// Moves all messages from `first` through `last` that are in the state `before` to `state`; returns how many. All of
  /// them were sent on one connection. Only remembered messages are visited, since a connection may have sent millions
  /// without a pong.
  @discardableResult
  mutating func setAll(
    _ before: DeliveryState, from first: UInt64, through last: UInt64, to state: DeliveryState,
    because reason: DeliveryReason? = nil
  ) -> Int {
    var count = setRemembered(before, from: max(first, oldest), through: min(last, self.last), to: state, reason)
    if late.isEmpty { return count }
    for (sequence, found) in late where found.state == before && sequence >= first && sequence <= last {
      set(sequence, to: state, because: reason)
      count += 1
    }
    return count
  }

  /// Like `setAll`, for numbers that `states` contains.
  private mutating func setRemembered(
    _ before: DeliveryState, from first: UInt64, through last: UInt64, to state: DeliveryState,
    _ reason: DeliveryReason?
  ) -> Int {
    guard first <= last else { return 0 }
    if recordsChanges {
      for sequence in first...last where Self.state(states[index(of: sequence)]) == before {
        record(sequence, state, reason)
      }
    }
    let count = Self.replace(
      before, by: Self.packed(state, reason), at: currentTime, first...last, in: &states, &times)
    self.count(-count, in: before, from: first)
    self.count(count, in: state, from: first)
    totals[Int(state.rawValue)] &+= UInt64(count)
    if isFinal(state, of: first) { completions &+= UInt64(count) }
    return count
  }

  /// Replaces each `before` in `states` by the packed value `new`; returns how many.
  private static func replace(
    _ before: DeliveryState, by new: UInt8, at time: UInt32, _ sequences: ClosedRange<UInt64>,
    in states: inout [UInt8], _ times: inout [UInt32]
  ) -> Int {
    var count = 0
    let mask = UInt64(states.count &- 1)
    var states = states.mutableSpan
    var times = times.mutableSpan
    for sequence in sequences {
      let index = Int((sequence &- 1) & mask)
      guard states[index] & 15 == before.rawValue else { continue }
      states[index] = new
      times[index] = time
      count &+= 1
    }
    return count
  }

  // MARK: Storing

  /// Records a change. Consecutive messages with the same change have one record.
  private mutating func record(_ sequence: UInt64, _ state: DeliveryState, _ reason: DeliveryReason?) {
    if let last = changes.last, last.last + 1 == sequence, last.state == state, last.reason == reason, last.time == now
    {
      changes[changes.count - 1].last = sequence
    } else {
      changes.append(DeliveryChange(first: sequence, last: sequence, state: state, reason: reason, time: now))
    }
  }

  package var hasChanges: Bool { !changes.isEmpty }

  /// The changes since the last call, in order.
  mutating func takeChanges() -> [DeliveryChange] {
    defer { changes.removeAll(keepingCapacity: true) }
    return changes
  }

  /// Whether the payload of a message in this state is no longer needed, since the message will not be sent again.
  func releasesPayload(_ state: DeliveryState) -> Bool { !needsPayload(state) }

  /// Restores the states that an earlier process stored, and records changes from now on.
  mutating func restore(_ stored: StoredOutbox, at clock: JournalClock) {
    recordsChanges = true
    guard stored.nextDelivery > 1 else { return }
    last = stored.nextDelivery - 1
    states = Array(repeating: 0, count: limit)
    times = Array(repeating: 0, count: limit)
    for age in 0..<UInt64(min(stored.deliveries.count, limit)) where age < last {
      guard let delivery = stored.delivery(last - age), let state = DeliveryState(rawValue: delivery.state) else {
        continue
      }
      let index = index(of: last - age)
      states[index] = Self.packed(state, DeliveryReason(rawValue: delivery.reason))
      times[index] = UInt32(truncatingIfNeeded: Self.units(clock.time(of: delivery.time * 10)))
      count(1, in: state, from: last - age)
    }
  }

  /// Restores a queued message of an earlier process. The message is so old that its state is no longer stored.
  mutating func restoreQueued(_ sequence: UInt64) -> DeliveryState? {
    guard sequence > 0, sequence <= last else { return nil }
    if remembers(sequence) {
      let index = index(of: sequence)
      states[index] = DeliveryState.queued.rawValue
      times[index] = currentTime
    } else {
      late[sequence] = LateEntry(state: .queued, reason: nil, time: currentTime)
    }
    present[Int(DeliveryState.queued.rawValue)] += 1
    return .queued
  }

  private mutating func replaceLate(_ sequence: UInt64, by state: DeliveryState, _ reason: DeliveryReason?) {
    let entry = LateEntry(state: state, reason: reason, time: currentTime)
    guard let before = late.updateValue(entry, forKey: sequence)?.state else {
      late[sequence] = nil
      return
    }
    count(-1, in: before, from: sequence)
    count(1, in: state, from: sequence)
    guard needsPayload(before), !needsPayload(state) else { return }
    // Makes room first: appending to a full ring would double it.
    if lateDepartures.count == Self.lateLimit {
      let oldest = lateDepartures[lateDepartures.front]
      if let forgotten = late.removeValue(forKey: oldest) { forget(forgotten.state, of: oldest) }
      lateDepartures.removeFirst()
    }
    lateDepartures.append(sequence)
  }

  private mutating func replace(_ sequence: UInt64, by state: DeliveryState, _ reason: DeliveryReason?) {
    guard remembers(sequence) else { return replaceLate(sequence, by: state, reason) }
    let index = index(of: sequence)
    if let before = Self.state(states[index]) { count(-1, in: before, from: sequence) }
    count(1, in: state, from: sequence)
    states[index] = Self.packed(state, reason)
    times[index] = currentTime
  }

  /// How many messages ever entered `state`. A message that is sent again enters `written` again.
  package func total(_ state: DeliveryState) -> UInt64 { totals[Int(state.rawValue)] }

  /// Messages that ended since the last `takeLosses` and may not have arrived. `replaced` does not count, since the
  /// sender requested it.
  package var losses: DeliveryLosses {
    DeliveryLosses(
      expired: total(.expired) &- reported.expired, rejected: total(.rejected) &- reported.rejected,
      unknown: total(.unknown) &- reported.unknown)
  }

  mutating func takeLosses() -> DeliveryLosses {
    let losses = losses
    reported = DeliveryLosses(expired: total(.expired), rejected: total(.rejected), unknown: total(.unknown))
    return losses
  }

  /// How many of the remembered messages are in `state` now.
  package func count(in state: DeliveryState) -> Int { present[Int(state.rawValue)] }

  /// Adds `change` to the number of messages in `state`. The messages begin with `first`, and all were sent on one
  /// connection.
  @inline(__always)
  private mutating func count(_ change: Int, in state: DeliveryState, from first: UInt64) {
    present[Int(state.rawValue)] &+= change
    if state == .written, !isConfirmable(first) { finallyWritten &+= change }
  }

  /// The oldest of the last `limit` numbers.
  private var oldest: UInt64 { last < UInt64(states.count) ? 1 : last &- UInt64(states.count) &+ 1 }

  private func remembers(_ sequence: UInt64) -> Bool {
    sequence > 0 && sequence <= last && last &- sequence < UInt64(states.count)
  }

  @inline(__always)
  private func index(of sequence: UInt64) -> Int { Int((sequence &- 1) & UInt64(states.count &- 1)) }
}

/// Consecutive messages that reached the same state at the same time.
package struct DeliveryChange: Equatable, Sendable {
  package let first: UInt64
  package internal(set) var last: UInt64
  package let state: DeliveryState
  package let reason: DeliveryReason?
  package let time: MonotonicTime
}

/// How many messages ended in a state that their sender did not request, by state.
package struct DeliveryLosses: Equatable, Sendable {
  package var expired: UInt64 = 0
  package var rejected: UInt64 = 0
  package var unknown: UInt64 = 0

  package var isEmpty: Bool { expired | rejected | unknown == 0 }
}
