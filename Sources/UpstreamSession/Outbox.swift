import ByteStreams

/// The messages on their way to the upstream: first in, first out, each with a time to live, and the account of what became
/// of every one of them.
///
///     queued ──take──▶ in a connection's buffer ──written──▶ written ──confirm──▶ confirmed
///
/// The queue is one ring with three borders. Before `writtenEnd` stand messages that the kernel has, kept only where they may
/// have to go again; before `takenEnd` those whose frames are in a connection's buffer; behind it those that wait. A frame
/// that the kernel took in part only has not arrived, so its message simply goes back to waiting when its connection dies.
///
/// The frames of one connection are a `Flight`. When a connection ends in order its flight `retires`: pongs can still
/// confirm it. While a retiring flight has messages in the ring nothing new is taken, or order would be lost.
package struct Outbox: Sendable {
  struct Entry: Sendable {
    var sequence: UInt64 = 0
    /// nil once the message has expired or was replaced: its place is passed over.
    var payload: SharedBytes?
    var topic: String?
    var deadline = MonotonicTime.distantFuture
    var isText = false
    /// Time to live 0: may not outlive the connection it was meant for.
    var isImmediate = false
    var attempts: UInt8 = 0
  }

  /// What one connection has taken and nobody has confirmed yet.
  struct Flight: Sendable {
    var first: UInt64
    var last: UInt64
    /// Pings that stand behind messages: each confirms all up to `through`.
    var barriers = RingDeque(filler: Barrier(counter: 0, through: 0))
    /// The last message that a barrier stands behind.
    var guarded: UInt64

    init(first: UInt64) {
      self.first = first
      last = first - 1
      guarded = first - 1
    }
  }

  struct Barrier: Sendable {
    let counter: UInt64
    let through: UInt64
  }

  let settings: OutboxSettings
  var ring = RingDeque(filler: Entry())
  var writtenEnd = 0
  var takenEnd = 0
  private var expiry = ExpiryHeap()
  private var topics: [String: Int] = [:]
  var flight: Flight?
  var retiring: Flight?
  package internal(set) var ledger = DeliveryLedger()
  /// Messages that are not yet written, and their bytes.
  package internal(set) var messages = 0
  package internal(set) var bytes = 0
  /// Written messages that are kept until they are confirmed.
  var kept = 0
  /// Live messages behind `takenEnd`.
  var waiting = 0
  var lastWritten: UInt64 = 0
  private var isClosed = false

  package init(_ settings: OutboxSettings) { self.settings = settings }

  /// Whether a connection takes messages now.
  package var isFlowing: Bool { flight != nil }
  /// Whether every message has been written.
  package var isEmpty: Bool { messages == 0 }
  /// Whether a connection would find something to take.
  package var hasWaiting: Bool { waiting > 0 }

  // MARK: In

  /// Queues a message. `timeToLive`: 0 for 'now or never'; nil for as long as it takes.
  package mutating func enqueue(
    _ payload: SharedBytes, isText: Bool, timeToLive: TimeSpan?, topic: String? = nil, now: MonotonicTime
  ) -> EnqueueResult {
    guard !isClosed else { return .closed }
    let isImmediate = timeToLive == .zero
    if isImmediate, !isFlowing { return .notReady }
    while !hasRoom(for: payload.count, replacing: topic) {
      guard settings.overflow == .dropOldest, dropOldest() else { return .full }
    }
    if let topic, let place = topics[topic] { end(place, as: .replaced) }

    let sequence = ledger.open()
    var entry = Entry(sequence: sequence, payload: payload, topic: topic, isText: isText, isImmediate: isImmediate)
    if let timeToLive, !isImmediate { entry.deadline = now + timeToLive }
    let place = ring.end
    let mostUrgent = expiry.first?.deadline ?? .distantFuture
    ring.append(entry)
    messages &+= 1
    waiting &+= 1
    bytes &+= payload.count
    if let topic { topics[topic] = place }
    if entry.deadline < .distantFuture { expiry.insert(.init(deadline: entry.deadline, place: place)) }
    closeGaps()
    return .queued(sequence: sequence, wakes: waiting == 1 || entry.deadline < mostUrgent)
  }

  /// What a message replaces makes room for it.
  private func hasRoom(for size: Int, replacing topic: String?) -> Bool {
    var others = messages + kept
    var held = bytes
    if let topic, let place = topics[topic] {
      others -= 1
      held -= ring[place].payload?.count ?? 0
    }
    guard others < settings.maximumMessages else { return false }
    return others == 0 || held + size <= settings.maximumBytes
  }

  private mutating func dropOldest() -> Bool {
    var place = takenEnd
    while place < ring.end {
      if ring[place].payload != nil {
        end(place, as: .rejected)
        return true
      }
      place += 1
    }
    return false
  }

  // MARK: Out

  /// Moves waiting messages to `batch`, whose connection sends them in this order: at most `maximumMessages`, and no more
  /// once `maximumBytes` are reached.
  package mutating func takeBatch(
    maximumMessages: Int, maximumBytes: Int, now: MonotonicTime, into batch: inout [OutboxMessage]
  ) {
    guard flight != nil, !isHeldByRetiring else { return }
    var taken = 0
    var size = 0
    while takenEnd < ring.end, taken < maximumMessages, size < maximumBytes {
      let place = takenEnd
      takenEnd &+= 1
      guard let payload = ring[place].payload else { continue }
      let sequence = ring[place].sequence
      if let topic = ring[place].topic, topics[topic] == place { topics[topic] = nil }
      if ring[place].deadline <= now {
        finish(place, as: .expired)
        waiting &-= 1
        continue
      }
      waiting &-= 1
      ring[place].attempts &+= 1
      batch.append(OutboxMessage(sequence: sequence, isText: ring[place].isText, payload: payload))
      taken &+= 1
      size &+= payload.count
      flight?.last = sequence
    }
    popFront()
    // Deadlines of what has left are not looked for one by one.
    if waiting == 0 { expiry.removeAll() } else if expiry.count > 2 * waiting + 64 { reindexWaiting() }
  }

  /// The kernel has every message up to `sequence` of what this connection took.
  package mutating func written(through sequence: UInt64) {
    while writtenEnd < takenEnd, ring[writtenEnd].sequence <= sequence {
      let place = writtenEnd
      writtenEnd &+= 1
      guard let size = ring[place].payload?.count else { continue }
      ledger.set(ring[place].sequence, to: .written)
      lastWritten = ring[place].sequence
      messages &-= 1
      if keepsWritten {
        kept &+= 1
      } else {
        bytes &-= size
        ring[place].payload = nil
      }
    }
    popFront()
  }

  /// Whether written messages stay in the ring until they are confirmed.
  var keepsWritten: Bool { settings.confirms && settings.redelivery == .unconfirmed }

  private var isHeldByRetiring: Bool { retiring != nil && takenEnd > ring.front }

  // MARK: Time

  /// When the next waiting message expires; nil where none does.
  package mutating func nextExpiry() -> MonotonicTime? {
    while let first = expiry.first {
      if isWaiting(first) { return first.deadline }
      expiry.removeFirst()
    }
    return nil
  }

  /// Ends the messages whose time is over; answers how many.
  @discardableResult
  package mutating func expire(now: MonotonicTime) -> Int {
    var count = 0
    while let first = expiry.first, first.deadline <= now {
      expiry.removeFirst()
      guard isWaiting(first) else { continue }
      end(first.place, as: .expired)
      count += 1
    }
    return count
  }

  private func isWaiting(_ entry: ExpiryHeap.Entry) -> Bool {
    entry.place >= takenEnd && entry.place < ring.end && ring[entry.place].payload != nil
      && ring[entry.place].deadline == entry.deadline
  }

  // MARK: Ends

  /// Takes no more messages, and ends those that wait.
  package mutating func close() {
    isClosed = true
    endWaiting(as: .rejected) { _ in true }
  }

  /// A waiting message comes to its end.
  mutating func end(_ place: Int, as state: DeliveryState) {
    if let topic = ring[place].topic, topics[topic] == place { topics[topic] = nil }
    waiting &-= 1
    finish(place, as: state)
    popFront()
  }

  /// Ends those waiting messages of which `condition` is true.
  mutating func endWaiting(as state: DeliveryState, where condition: (Entry) -> Bool) {
    for place in takenEnd..<ring.end {
      // Ending one lets go of empty places at the front, and some of them may be ahead of us.
      guard place >= ring.front, ring[place].payload != nil, condition(ring[place]) else { continue }
      end(place, as: state)
    }
  }

  /// A message that is not written comes to its end; its place stays, empty.
  mutating func finish(_ place: Int, as state: DeliveryState) {
    // Written once already, to a connection that was lost: whatever ends it now, it may have arrived.
    ledger.set(ring[place].sequence, to: ring[place].attempts > 0 ? .unknown : state)
    messages &-= 1
    bytes &-= ring[place].payload?.count ?? 0
    ring[place].payload = nil
    ring[place].topic = nil
  }

  /// Lets go of the empty places at the front.
  mutating func popFront() {
    while !ring.isEmpty, ring[ring.front].payload == nil { ring.removeFirst() }
    writtenEnd = max(writtenEnd, ring.front)
    takenEnd = max(takenEnd, ring.front)
  }

  /// Closes the gaps among waiting messages: many replacements behind one old message must not make the ring grow.
  private mutating func closeGaps() {
    guard ring.end - takenEnd > 2 * waiting + 64 else { return }
    var live: [Entry] = []
    live.reserveCapacity(waiting)
    for place in takenEnd..<ring.end where ring[place].payload != nil { live.append(ring[place]) }
    while ring.end > takenEnd { ring.removeLast() }
    for entry in live { ring.append(entry) }
    reindexWaiting()
  }

  /// Lets go of a written message that need not go again.
  mutating func release(_ place: Int) {
    guard let size = ring[place].payload?.count else { return }
    kept &-= 1
    bytes &-= size
    ring[place].payload = nil
  }

  /// Finds the deadlines and topics of the waiting messages anew, after places have changed or messages have come back.
  mutating func reindexWaiting() {
    expiry.removeAll()
    topics.removeAll(keepingCapacity: true)
    for place in takenEnd..<ring.end where ring[place].payload != nil {
      let entry = ring[place]
      if entry.deadline < .distantFuture { expiry.insert(.init(deadline: entry.deadline, place: place)) }
      if let topic = entry.topic { topics[topic] = place }
    }
  }
}
