/// The state of each of the last messages by its sequence number, a byte each, and how many came into each state.
///
/// It grows with use, so that a session that never sends costs nothing, up to `limit` messages; then it forgets the oldest.
package struct DeliveryLedger: Sendable {
  /// What `GET /v1/deliveries/{id}` can answer for at least: a minute of a busy session, in 64 KiB.
  package static let leastLimit = 65_536

  /// How many of the last messages are remembered: a power of two, and at least twice as many as may wait, so that a
  /// message is not forgotten while it does.
  package let limit: Int
  /// Whether a written message still waits for its end when it is forgotten.
  private let confirms: Bool
  private var states: [UInt8] = []
  /// The last sequence number that was given out; numbers begin at 1.
  package private(set) var last: UInt64 = 0
  /// How many messages came into each state, by its raw value.
  private var totals: [UInt64] = Array(repeating: 0, count: 8)
  /// How many of those that are remembered are in each state now, by its raw value.
  private var present: [Int] = Array(repeating: 0, count: 8)
  /// Messages that went back to the queue after they had been written.
  package private(set) var redeliveries: UInt64 = 0

  package init(_ settings: OutboxSettings) {
    var limit = Self.leastLimit
    while limit < 2 * settings.maximumMessages { limit *= 2 }
    self.limit = limit
    confirms = settings.confirms
  }

  /// Gives out the next number, for a message that is queued now.
  @inline(__always)
  mutating func open() -> UInt64 {
    last &+= 1
    if last > states.count, states.count < limit {
      states.append(contentsOf: repeatElement(0, count: max(64, states.count)))
    }
    let index = index(of: last)
    forget(states[index])
    states[index] = DeliveryState.queued.rawValue
    totals[Int(DeliveryState.queued.rawValue)] &+= 1
    present[Int(DeliveryState.queued.rawValue)] &+= 1
    return last
  }

  /// A message that was never confirmed and now never will be: an upstream that answers no ping.
  @inline(__always)
  private mutating func forget(_ state: UInt8) {
    present[Int(state)] &-= 1
    if state == DeliveryState.written.rawValue, confirms { totals[Int(DeliveryState.unknown.rawValue)] &+= 1 }
  }

  /// nil for a number that was never given out, or is forgotten.
  package func state(of sequence: UInt64) -> DeliveryState? {
    guard remembers(sequence) else { return nil }
    return DeliveryState(rawValue: states[index(of: sequence)])
  }

  mutating func set(_ sequence: UInt64, to state: DeliveryState) {
    totals[Int(state.rawValue)] &+= 1
    replace(sequence, by: state)
  }

  /// A written message waits again.
  mutating func reopen(_ sequence: UInt64) {
    redeliveries &+= 1
    replace(sequence, by: .queued)
  }

  private mutating func replace(_ sequence: UInt64, by state: DeliveryState) {
    guard remembers(sequence) else { return }
    let index = index(of: sequence)
    present[Int(states[index])] &-= 1
    present[Int(state.rawValue)] &+= 1
    states[index] = state.rawValue
  }

  /// Messages that ever came into `state`; one that is sent again is written again.
  package func total(_ state: DeliveryState) -> UInt64 { totals[Int(state.rawValue)] }

  /// Messages that are in `state` now, of those that are remembered.
  package func present(_ state: DeliveryState) -> Int { present[Int(state.rawValue)] }

  /// The oldest number that is remembered.
  var oldest: UInt64 { last < UInt64(states.count) ? 1 : last &- UInt64(states.count) &+ 1 }

  private func remembers(_ sequence: UInt64) -> Bool {
    sequence > 0 && sequence <= last && last &- sequence < UInt64(states.count)
  }

  @inline(__always)
  private func index(of sequence: UInt64) -> Int { Int((sequence &- 1) & UInt64(states.count &- 1)) }
}
