import ByteStreams

/// The state of each of the last messages by its sequence number, a byte each, and how many came into each state.
///
/// It grows with use, so that a session that never sends costs nothing, up to `limit` messages; then it forgets the oldest. A message
/// that the outbox still holds is never forgotten, however many newer ones there are.
package struct DeliveryLedger: Sendable {
  /// What `GET /v1/deliveries/{id}` can answer for at least: a minute of a busy session, in 64 KiB.
  package static let leastLimit = 65_536

  /// How many messages older than the last `limit` are remembered after they have left the outbox: a full queue of the default size.
  static let lateLimit = 1_024

  /// How many of the last messages are remembered: a power of two, and at least twice as many as may wait.
  package let limit: Int
  /// Whether a written message still waits for its end when it is forgotten.
  private let confirms: Bool
  /// Whether the outbox keeps written messages until they are confirmed.
  private let keepsWritten: Bool
  /// Messages that are not among the last `limit`: all that the outbox holds, and the last that have left it.
  private var late: [UInt64: DeliveryState] = [:]
  /// Those in `late` that have left the outbox, in that order.
  private var lateDepartures = RingDeque<UInt64>(filler: 0)
  private var states: [UInt8] = []
  /// The last sequence number that was given out; numbers begin at 1.
  package private(set) var last: UInt64 = 0
  /// How many messages came into each state, by its raw value.
  private var totals: [UInt64] = Array(repeating: 0, count: 8)
  /// How many of those that are remembered are in each state now, by its raw value.
  private var present: [Int] = Array(repeating: 0, count: 8)
  /// Messages that went back to the queue after they had been written.
  package private(set) var redeliveries: UInt64 = 0
  private var reported = DeliveryLosses()
  /// How often a message came into a state that is final.
  package private(set) var endings: UInt64 = 0

  package init(_ settings: OutboxSettings) {
    var limit = Self.leastLimit
    while limit < 2 * settings.maximumMessages { limit *= 2 }
    self.limit = limit
    confirms = settings.confirms
    keepsWritten = settings.confirms && settings.redelivery == .unconfirmed
  }

  /// Gives out the next number, for a message that is queued now.
  @inline(__always)
  mutating func open() -> UInt64 {
    last &+= 1
    if last > states.count, states.count < limit {
      states.append(contentsOf: repeatElement(0, count: max(64, states.count)))
    }
    let index = index(of: last)
    if let oldest = DeliveryState(rawValue: states[index]) {
      if isHeld(oldest) { late[last &- UInt64(states.count)] = oldest } else { forget(oldest) }
    }
    states[index] = DeliveryState.queued.rawValue
    totals[Int(DeliveryState.queued.rawValue)] &+= 1
    present[Int(DeliveryState.queued.rawValue)] &+= 1
    return last
  }

  /// A message that was never confirmed and now never will be: an upstream that answers no ping.
  @inline(__always)
  private mutating func forget(_ state: DeliveryState) {
    present[Int(state.rawValue)] &-= 1
    if state == .written, confirms { totals[Int(DeliveryState.unknown.rawValue)] &+= 1 }
    if !isFinal(state) { endings &+= 1 }
  }

  /// Whether a message stays in this state. `written` is final where nothing is confirmed.
  package func isFinal(_ state: DeliveryState) -> Bool {
    switch state {
    case .queued: false
    case .written: !confirms
    case .confirmed, .expired, .replaced, .rejected, .unknown: true
    }
  }

  /// Whether the outbox holds a message in this state.
  private func isHeld(_ state: DeliveryState) -> Bool { state == .queued || state == .written && keepsWritten }

  /// nil for a number that was never given out, or is forgotten.
  package func state(of sequence: UInt64) -> DeliveryState? {
    guard remembers(sequence) else { return late.isEmpty ? nil : late[sequence] }
    return DeliveryState(rawValue: states[index(of: sequence)])
  }

  mutating func set(_ sequence: UInt64, to state: DeliveryState) {
    totals[Int(state.rawValue)] &+= 1
    if isFinal(state) { endings &+= 1 }
    replace(sequence, by: state)
  }

  /// A written message waits again.
  mutating func reopen(_ sequence: UInt64) {
    redeliveries &+= 1
    replace(sequence, by: .queued)
  }

  /// Moves all messages of a connection that are written to their next state; returns how many. A connection may have carried
  /// millions without a pong, of which only those that are remembered are looked at.
  mutating func setWritten(from first: UInt64, through last: UInt64, to state: DeliveryState) -> Int {
    var count = 0
    let start = max(first, oldest)
    for sequence in start..<max(start, last &+ 1) where self.state(of: sequence) == .written {
      set(sequence, to: state)
      count += 1
    }
    for (sequence, before) in late where before == .written && sequence >= first && sequence <= last {
      set(sequence, to: state)
      count += 1
    }
    return count
  }

  private mutating func replaceLate(_ sequence: UInt64, by state: DeliveryState) {
    guard let before = late.updateValue(state, forKey: sequence) else {
      late[sequence] = nil
      return
    }
    present[Int(before.rawValue)] &-= 1
    present[Int(state.rawValue)] &+= 1
    guard isHeld(before), !isHeld(state) else { return }
    lateDepartures.append(sequence)
    guard lateDepartures.count > Self.lateLimit else { return }
    if let forgotten = late.removeValue(forKey: lateDepartures[lateDepartures.front]) { forget(forgotten) }
    lateDepartures.removeFirst()
  }

  private mutating func replace(_ sequence: UInt64, by state: DeliveryState) {
    guard remembers(sequence) else { return replaceLate(sequence, by: state) }
    let index = index(of: sequence)
    present[Int(states[index])] &-= 1
    present[Int(state.rawValue)] &+= 1
    states[index] = state.rawValue
  }

  /// Messages that ever came into `state`; one that is sent again is written again.
  package func total(_ state: DeliveryState) -> UInt64 { totals[Int(state.rawValue)] }

  /// Messages that ended and may not have arrived, since `takeLosses` was last called. (`replaced` is what its sender asked for.)
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

  /// Messages that are in `state` now, of those that are remembered.
  package func present(_ state: DeliveryState) -> Int { present[Int(state.rawValue)] }

  /// The oldest of the last `limit` numbers.
  private var oldest: UInt64 { last < UInt64(states.count) ? 1 : last &- UInt64(states.count) &+ 1 }

  private func remembers(_ sequence: UInt64) -> Bool {
    sequence > 0 && sequence <= last && last &- sequence < UInt64(states.count)
  }

  @inline(__always)
  private func index(of sequence: UInt64) -> Int { Int((sequence &- 1) & UInt64(states.count &- 1)) }
}

/// How many messages ended in a state that their sender did not want.
package struct DeliveryLosses: Equatable, Sendable {
  package var expired: UInt64 = 0
  package var rejected: UInt64 = 0
  package var unknown: UInt64 = 0

  package var isEmpty: Bool { expired | rejected | unknown == 0 }
}
