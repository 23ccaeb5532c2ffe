import ByteStreams
import UpstreamSession

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
    var kind = MessageKind.text
    /// Time to live 0: may not outlive the connection it was meant for.
    var isImmediate = false
    /// Connections that it was written to as a whole, this one included.
    var attempts: UInt8 = 0
    /// Connections that were lost in the midst of it.
    var interruptions: UInt8 = 0
  }

  /// What one connection has taken and nobody has confirmed yet.
  struct Flight: Sendable {
    let connection: Generation
    var first: UInt64
    var last: UInt64
    /// Pings that stand behind messages: each confirms all up to `through`.
    var barriers = RingDeque(filler: Barrier(counter: 0, through: 0))
    /// The last message that a barrier stands behind.
    var guarded: UInt64
    /// Of the messages written and not confirmed those that have no larger one behind them: the first is the largest of all.
    var largest = RingDeque(filler: Sent(sequence: 0, size: 0))

    init(_ connection: Generation, first: UInt64) {
      self.connection = connection
      self.first = first
      last = first - 1
      guarded = first - 1
    }
  }

  struct Barrier: Sendable {
    let counter: UInt64
    var through: UInt64
  }

  struct Sent: Sendable {
    let sequence: UInt64
    let size: Int
  }

  let settings: OutboxSettings
  var ring = RingDeque(filler: Entry())
  var writtenEnd = 0
  var takenEnd = 0
  /// No message waits before this place, so that a drop need not look at every empty place again.
  var passed = 0
  /// No message with time to live 0 waits behind this place, so that a blocked flush need not look at the whole queue.
  var immediateEnd = 0
  var expiry = ExpiryHeap()
  var topics: [String: Int] = [:]
  var flight: Flight?
  var retiring: Flight?
  package internal(set) var ledger: DeliveryLedger
  /// Messages that are not yet written, and their bytes.
  package internal(set) var messages = 0
  package internal(set) var bytes = 0
  /// Written messages that are kept until they are confirmed.
  var kept = 0
  /// Live messages behind `takenEnd`, and their bytes.
  var waiting = 0
  var waitingBytes = 0
  /// nil where no pace is kept.
  var bucket: TokenBucket?
  /// Whether the kernel took less than the connection had for it; nothing more is written before it has room again.
  var isBlocked = false
  /// A hand-over is in progress: nothing is taken.
  private(set) var isPaused = false
  private var isClosed = false

  package init(_ settings: OutboxSettings) {
    precondition((1...255).contains(settings.maximumAttempts), "attempts are counted in a byte")
    self.settings = settings
    ledger = DeliveryLedger(settings)
    bucket = settings.pace.map { TokenBucket($0) }
  }

  /// Whether a connection takes messages now.
  package var isFlowing: Bool { flight != nil }
  /// Whether every message has been written.
  package var isEmpty: Bool { messages == 0 }
  /// Messages that the kernel has and of which a pong is awaited.
  package var unconfirmed: Int { settings.confirms ? ledger.present(.written) : 0 }
  /// Whether a connection would find something to take.
  package var hasWaiting: Bool { waiting > 0 }

  // MARK: In

  /// Queues a message. `timeToLive`: 0 for 'now or never'; nil for as long as it takes.
  package mutating func enqueue(
    _ payload: SharedBytes, kind: MessageKind, timeToLive: TimeSpan?, topic: String? = nil, now: MonotonicTime
  ) -> EnqueueResult {
    guard !isClosed else { return .closed }
    let isImmediate = timeToLive == .zero
    if isImmediate, let hindrance = hindrance(now: now) { return .notReady(hindrance) }
    var isFirstLoss = false
    while let limit = exceededLimit(for: payload.count, replacing: topic) {
      isFirstLoss = isFirstLoss || ledger.losses.isEmpty
      guard settings.overflow == .dropOldest, canMakeRoom(for: payload.count), dropOldest() else { return .full(limit) }
    }
    if let topic, let place = topics[topic] { end(place, as: .replaced) }

    let sequence = ledger.open()
    var entry = Entry(sequence: sequence, payload: payload, topic: topic, kind: kind, isImmediate: isImmediate)
    if let timeToLive, !isImmediate { entry.deadline = now + timeToLive }
    let place = ring.end
    let mostUrgent = expiry.first?.deadline ?? .distantFuture
    ring.append(entry)
    messages &+= 1
    waiting &+= 1
    waitingBytes &+= payload.count
    bytes &+= payload.count
    if let topic { topics[topic] = place }
    if entry.deadline < .distantFuture { expiry.insert(.init(deadline: entry.deadline, place: place)) }
    if isImmediate { immediateEnd = ring.end }
    closeGaps()
    return .queued(sequence: sequence, wakes: isFirstLoss || waiting == 1 || entry.deadline < mostUrgent)
  }

  /// What would keep a message from being written in the next turn; nil for nothing.
  private func hindrance(now: MonotonicTime) -> EnqueueResult.Hindrance? {
    guard isOpenForTaking else { return .notConnected }
    if isBlocked { return .blocked }
    guard let bucket, bucket.available(now: now) <= waiting else { return nil }
    return .pace(until: bucket.nextToken(now: now))
  }

  /// The limit that one more message of this size would exceed. What it replaces makes room for it.
  private func exceededLimit(for size: Int, replacing topic: String?) -> QueueLimit? {
    var others = messages + kept
    var held = bytes
    if let topic, let place = topics[topic] {
      others -= 1
      held -= ring[place].payload?.count ?? 0
    }
    guard others < settings.maximumMessages else { return .messages }
    return others == 0 || held + size <= settings.maximumBytes ? nil : .bytes
  }

  /// Whether there is room once all that waits is dropped: nothing is dropped for a message that is refused nevertheless.
  private func canMakeRoom(for size: Int) -> Bool {
    let others = messages + kept - waiting
    return others < settings.maximumMessages && (others == 0 || bytes - waitingBytes + size <= settings.maximumBytes)
  }

  private mutating func dropOldest() -> Bool {
    passed = max(passed, takenEnd)
    while passed < ring.end, ring[passed].payload == nil { passed &+= 1 }
    guard passed < ring.end else { return false }
    end(passed, as: .rejected)
    return true
  }

  // MARK: Out

  /// Moves waiting messages to `batch`, whose connection sends them in this order: at most `maximumMessages`, and no more
  /// once `maximumBytes` are reached.
  package mutating func takeBatch(
    maximumMessages: Int, maximumBytes: Int, now: MonotonicTime, into batch: inout [OutboxMessage]
  ) {
    isBlocked = false
    guard isOpenForTaking else { return }
    let most = min(maximumMessages, bucket?.available(now: now) ?? .max)
    var taken = 0
    var size = 0
    while takenEnd < ring.end, taken < most, size < maximumBytes {
      let place = takenEnd
      takenEnd &+= 1
      guard let payload = ring[place].payload else { continue }
      let sequence = ring[place].sequence
      if let topic = ring[place].topic, topics[topic] == place { topics[topic] = nil }
      waiting &-= 1
      waitingBytes &-= payload.count
      if ring[place].deadline <= now {
        finish(place, as: .expired)
        continue
      }
      ring[place].attempts &+= 1
      batch.append(OutboxMessage(sequence: sequence, kind: ring[place].kind, payload: payload))
      taken &+= 1
      size &+= payload.count
      flight?.last = sequence
    }
    bucket?.take(taken, now: now)
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
      noteSent(Sent(sequence: ring[place].sequence, size: size))
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

  /// Whether a connection may take messages now, as far as order goes.
  var isOpenForTaking: Bool { flight != nil && !isPaused && !mayComeBack }

  /// Whether messages of the retiring connection are left, which may have to go again ahead of all others.
  private var mayComeBack: Bool {
    guard let retiring, !ring.isEmpty else { return false }
    return ring[ring.front].sequence <= retiring.last
  }

  /// How long a message with time to live 0 that was accepted right before a hand-over waits for the successor. Usually it
  /// sends after two round trips; what comes later than this is no longer 'now'.
  static var immediateDelay: TimeSpan { .milliseconds(100) }

  /// Lets no message be taken until a successor starts sending, or `resume()`.
  package mutating func pause(now: MonotonicTime) {
    guard flight != nil else { return }
    isPaused = true
    for place in takenEnd..<max(takenEnd, min(immediateEnd, ring.end))
    where ring[place].isImmediate && ring[place].payload != nil {
      ring[place].deadline = now + Self.immediateDelay
      index(place)
    }
  }

  /// The hand-over has come to nothing, or to its end.
  package mutating func resume() { isPaused = false }

  /// Messages that ended since the last call and may not have arrived.
  package mutating func takeLosses() -> DeliveryLosses { ledger.takeLosses() }

  /// Takes no more messages, and ends those that wait.
  package mutating func close() {
    isClosed = true
    endWaiting(as: .rejected, before: ring.end) { _ in true }
  }
}
