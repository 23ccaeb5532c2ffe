import ByteStreams

/// The state of each of the latest messages, a byte each, by sequence number; and how many messages entered each state.
///
/// It grows with use up to `limit` messages, so a session that never sends costs nothing. Then it forgets the oldest, but never a
/// message that the outbox still holds.
package struct DeliveryLedger: Sendable {
  /// Minimum number of messages for which `GET /v1/deliveries/{id}` can respond, in 64 KiB: a minute at a thousand
  /// messages per second.
  package static let minimumLimit = 65_536

  /// How many messages older than the last `limit` are remembered after leaving the outbox: a full queue of the default size.
  static let lateLimit = 1_024

  /// How many of the latest messages are remembered: a power of two, and at least twice as many as may be queued.
  package let limit: Int
  /// Whether `written` is followed by a confirmation, and not final.
  private let confirms: Bool
  /// Whether the outbox keeps written messages until they are confirmed.
  private let keepsWritten: Bool
  /// Messages older than the last `limit`: all that the outbox holds, and the last that have left it.
  private var late: [UInt64: DeliveryState] = [:]
  /// The messages in `late` that have left the outbox, in the order in which they left.
  private var lateDepartures = RingDeque<UInt64>(filler: 0)
  private var states: [UInt8] = []
  /// The last sequence number assigned; numbers begin at 1.
  package private(set) var last: UInt64 = 0
  /// How many messages entered each state, by its raw value.
  private var totals: [UInt64] = Array(repeating: 0, count: 8)
  /// How many of the remembered messages are in each state now, by its raw value.
  private var present: [Int] = Array(repeating: 0, count: 8)
  /// Messages that returned to the queue after they had been written.
  package private(set) var redeliveries: UInt64 = 0
  private var reported = DeliveryLosses()
  /// How many times a message entered a final state.
  package private(set) var completions: UInt64 = 0

  package init(_ settings: OutboxSettings) {
    var limit = Self.minimumLimit
    while limit < 2 * settings.maximumMessages { limit *= 2 }
    self.limit = limit
    confirms = settings.confirms
    keepsWritten = settings.confirms && settings.redelivery == .unconfirmed
  }

  /// Assigns the next number, to a message that is queued now.
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

  /// Forgets a message in this state. A message that was never confirmed counts as `unknown`, as with an upstream that ignores
  /// pings.
  @inline(__always)
  private mutating func forget(_ state: DeliveryState) {
    present[Int(state.rawValue)] &-= 1
    if state == .written, confirms { totals[Int(DeliveryState.unknown.rawValue)] &+= 1 }
    if !isFinal(state) { completions &+= 1 }
  }

  /// Whether a message stays in this state. `written` is final if confirmations are off.
  package func isFinal(_ state: DeliveryState) -> Bool {
    switch state {
    case .queued: false
    case .written: !confirms
    case .confirmed, .expired, .replaced, .rejected, .unknown: true
    }
  }

  /// Whether the outbox holds a message in this state.
  private func isHeld(_ state: DeliveryState) -> Bool { state == .queued || state == .written && keepsWritten }

  /// nil for a number that was never assigned or is forgotten.
  package func state(of sequence: UInt64) -> DeliveryState? {
    guard remembers(sequence) else { return late.isEmpty ? nil : late[sequence] }
    return DeliveryState(rawValue: states[index(of: sequence)])
  }

  mutating func set(_ sequence: UInt64, to state: DeliveryState) {
    totals[Int(state.rawValue)] &+= 1
    if isFinal(state) { completions &+= 1 }
    replace(sequence, by: state)
  }

  /// Returns a written message to the queue.
  mutating func reopen(_ sequence: UInt64) {
    redeliveries &+= 1
    replace(sequence, by: .queued)
  }

  /// Moves all written messages from `first` through `last` to `state`; returns how many. Only remembered messages are visited: a
  /// connection may have carried millions without a pong.
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

  /// How many messages ever entered `state`. A message that is sent again enters `written` again.
  package func total(_ state: DeliveryState) -> UInt64 { totals[Int(state.rawValue)] }

  /// Messages that ended since the last `takeLosses` and may not have arrived. `replaced` does not count: the sender requested
  /// it.
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

  /// The oldest of the last `limit` numbers.
  private var oldest: UInt64 { last < UInt64(states.count) ? 1 : last &- UInt64(states.count) &+ 1 }

  private func remembers(_ sequence: UInt64) -> Bool {
    sequence > 0 && sequence <= last && last &- sequence < UInt64(states.count)
  }

  @inline(__always)
  private func index(of sequence: UInt64) -> Int { Int((sequence &- 1) & UInt64(states.count &- 1)) }
}

/// How many messages ended in a state that their sender did not request, by state.
package struct DeliveryLosses: Equatable, Sendable {
  package var expired: UInt64 = 0
  package var rejected: UInt64 = 0
  package var unknown: UInt64 = 0

  package var isEmpty: Bool { expired | rejected | unknown == 0 }
}
