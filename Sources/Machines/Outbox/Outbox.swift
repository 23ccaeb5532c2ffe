import ByteStreams
import Totals
import UpstreamSession

/// The messages on their way to the upstream, first in, first out, each with a time to live, and the record of their
/// states.
///
///     queued ──take──▶ in a connection's buffer ──written──▶ written ──confirm──▶ confirmed
///
/// The ring has three parts. Before `writtenEnd` are messages that the kernel has accepted. They are kept only if they
/// may have to be sent again. Between `writtenEnd` and `takenEnd` are messages whose frames are in a connection's
/// buffer. From `takenEnd` on are the waiting messages. A frame that the kernel accepted in part has not arrived, so
/// its message waits again when its connection is lost.
///
/// The messages that one connection has taken are a `Flight`. When a connection stops sending, its flight is `retiring`
/// until these messages are settled: pongs can still confirm them. While the ring contains messages of a retiring
/// flight, nothing new is taken, since that would break the order.
package struct Outbox: Sendable {
  struct Entry: Sendable {
    var sequence: UInt64 = 0
    /// nil when the message has ended or its payload is no longer needed. The position of such a message is skipped.
    var payload: ByteSlice?
    var topic: String?
    var deadline = MonotonicTime.distantFuture
    /// The client for which the message is counted; 0 if it is unknown, as for a message of an earlier process.
    var client: UInt64 = 0
    var kind = MessageKind.text
    /// Whether the message has time to live 0: it ends if it cannot be written at once.
    var isImmediate = false
    /// Whether the message is stored. A stored message survives the process, and is written only after the intent to
    /// write it is stored.
    var isStored = false
    /// Whether the end of the message is reported in `ended`.
    var reportsEnd = false
    /// Whether the upstream has replied to the message after a new connection had taken it to send it again. Such a
    /// message is confirmed when it leaves the buffer of that connection.
    var hasReply = false
    /// How many connections have taken the message. A connection that ended before it had written the whole message
    /// does not count.
    var attempts: UInt8 = 0
    /// How many connections were lost while the message was partially written.
    var interruptions: UInt8 = 0

    /// Why the message ends at its deadline. A message with time to live 0 has a deadline only during a hand-over.
    var expiryReason: DeliveryReason { isImmediate ? .notSentAtOnce : .ttl }
  }

  /// The messages that one connection has taken and that are not confirmed yet.
  struct Flight: Sendable {
    let connection: Generation
    /// Whether pings confirm its messages.
    let confirms: Bool
    var first: UInt64
    var last: UInt64
    /// Pings that were sent after messages. Each confirms all messages up to its `through`.
    var barriers = RingDeque(filler: Barrier(counter: 0, through: 0, taken: .zero))
    /// The last message that a barrier follows.
    var lastWithBarrier: UInt64
    /// When the first message that no barrier follows was taken.
    var taken: MonotonicTime?
    /// The written, unconfirmed messages that are followed by smaller messages only. The first is the largest of all.
    var largest = RingDeque(filler: Sent(sequence: 0, size: 0))

    init(_ connection: Generation, first: UInt64, confirms: Bool) {
      self.connection = connection
      self.confirms = confirms
      self.first = first
      last = first - 1
      lastWithBarrier = first - 1
    }
  }

  struct Barrier: Sendable {
    let counter: UInt64
    var through: UInt64
    /// When the connection took the first of the messages that no earlier barrier confirms.
    let taken: MonotonicTime
  }

  struct Sent: Sendable {
    let sequence: UInt64
    let size: Int
  }

  let settings: OutboxSettings
  var ring = RingDeque(filler: Entry())
  var writtenEnd = 0
  var takenEnd = 0
  /// No message waits before this position, so that `dropOldest` need not visit every empty position again.
  var waitingStart = 0
  /// No message with time to live 0 waits at or after this position, so that a blocked flush need not visit the whole
  /// queue.
  var immediateEnd = 0
  var expiry = ExpiryHeap()
  var topics: [String: Int] = [:]
  var flight: Flight?
  var retiring: Flight?
  package internal(set) var ledger: DeliveryLedger
  /// The time of the inputs that follow. It is recorded as the time of the state changes that they cause. An input with
  /// a time parameter uses that time for its decisions.
  package var clock: MonotonicTime {
    get { ledger.now }
    set { ledger.now = newValue }
  }
  /// `messages` is the number of messages that are not yet written. `bytes` is the size of their payloads and of the
  /// payloads of written messages that are kept.
  package internal(set) var messages = 0
  package internal(set) var bytes = 0
  /// Written messages that are kept until they are confirmed.
  var kept = 0
  /// How much of `messages`, `kept` and `bytes` each client has.
  var clientTotals = ClientTotals()
  /// Messages that have ended since the last `takeEnded`: messages with `reportsEnd` whose payload was still kept, and
  /// every message that was too large.
  package internal(set) var ended: [UInt64] = []
  /// Waiting messages, and their bytes.
  var waiting = 0
  var waitingBytes = 0
  /// Limits the messages to the pace of `upstream.queue.rate`; nil if there is no limit.
  var bucket: TokenBucket?
  /// Whether nothing more is taken in this turn: the kernel accepted less than the connection had to send, or the next
  /// message is not prepared yet.
  var isBlocked = false
  /// Whether a hand-over is in progress. Until its end, nothing is taken.
  private(set) var isPaused = false
  private(set) var isClosed = false
  /// Whether messages are stored, except messages with time to live 0 or with `reportsEnd`.
  var storesMessages = false
  /// Stored messages up to this number may be written.
  package internal(set) var permitted = UInt64.max
  /// The last message for which storing an intent was requested. `intend` raises it, and the end of a connection lowers
  /// it.
  var intended = UInt64.max
  /// The number of the last message that was queued and is to be stored.
  var lastStored: UInt64 = 0
  /// When the connection took the oldest of the messages that the last `confirm` confirmed; nil if it confirmed none.
  package internal(set) var oldestConfirmed: MonotonicTime?
  /// How many messages have ended because a newer message replaced them or took their place in a full queue.
  package private(set) var displacements: UInt64 = 0
  /// Whether the store does not work.
  package internal(set) var storeHasFailed = false
  /// Whether the end of a connection has lowered `intended` since the last `takeLoweredIntent`.
  var hasLoweredIntent = false

  package init(_ settings: OutboxSettings) {
    precondition((1...255).contains(settings.maximumAttempts), "attempts are counted in a byte")
    self.settings = settings
    ledger = DeliveryLedger(settings)
    bucket = settings.pace.map { TokenBucket($0) }
  }

  /// Whether there is a sending connection, even if it is paused or blocked.
  package var hasSendingConnection: Bool { flight != nil }
  /// Whether every message has been written.
  package var isEmpty: Bool { messages == 0 }
  /// Messages that the kernel has accepted and that await a pong.
  package var unconfirmed: Int { ledger.unconfirmed }
  /// Whether messages are waiting for a connection to take them.
  package var hasWaiting: Bool { waiting > 0 }

  // MARK: In

  /// Queues a message.
  ///
  /// - Parameters:
  ///   - timeToLive: 0 if the message must be sent at once or not at all; nil for no expiry.
  ///   - reportsEnd: `takeEnded` reports the message if it ends in the queue.
  ///   - client: the client for which the message is counted; 0 if clients cannot be distinguished.
  package mutating func enqueue(
    _ payload: ByteSlice, kind: MessageKind, timeToLive: TimeSpan?, topic: String? = nil, reportsEnd: Bool = false,
    by client: UInt64 = 0, now: MonotonicTime
  ) -> EnqueueResult {
    enqueue(
      payload, kind: kind, timeToLive: timeToLive, topic: topic, reportsEnd: reportsEnd, by: client,
      droppingBefore: .max, now: now)
  }

  /// - Parameter first: the first number of a batch that is queued as a whole. No message of the batch is dropped to
  ///   make room for another.
  @inline(__always)
  mutating func enqueue(
    _ payload: ByteSlice, kind: MessageKind, timeToLive: TimeSpan?, topic: String?, reportsEnd: Bool,
    by client: UInt64, droppingBefore first: UInt64, now: MonotonicTime
  ) -> EnqueueResult {
    guard !isClosed else { return .closed }
    let isImmediate = timeToLive?.nanoseconds == 0
    if isImmediate, let reason = notReadyReason(for: 1, now: now) { return .notReady(reason) }
    let size = payload.count
    var isFirstLoss = false
    if messages &+ kept >= settings.maximumMessages || bytes &+ size > settings.maximumBytes {
      let drops = settings.overflow == .dropOldest && exceededLimit(1, size, dropsWaiting: true) == nil
      while let limit = exceededLimit(1, size, replacing: topic, by: drops ? 0 : client) {
        isFirstLoss = isFirstLoss || ledger.losses.isEmpty
        guard drops, dropOldest(before: first) else { return .full(limit) }
        displacements &+= 1
      }
    }
    if let topic, let position = topics[topic] {
      end(position, as: .replaced)
      displacements &+= 1
    }

    let sequence = ledger.open()
    let deadline = isImmediate ? .distantFuture : timeToLive.map { now + $0 } ?? .distantFuture
    let position = ring.end
    let mostUrgent = expiry.first?.deadline ?? .distantFuture
    ring.append(
      Entry(
        sequence: sequence, payload: payload, topic: topic, deadline: deadline, client: client, kind: kind,
        isImmediate: isImmediate, isStored: storesMessages && !isImmediate && !reportsEnd, reportsEnd: reportsEnd))
    clientTotals.add(size, by: client)
    messages &+= 1
    waiting &+= 1
    waitingBytes &+= size
    bytes &+= size
    if let topic { topics[topic] = position }
    if deadline < .distantFuture { expiry.insert(position, at: deadline) }
    if isImmediate { immediateEnd = ring.end }
    compact()
    // The deadline of a message that was replaced or dropped for this message is still in `expiry`.
    trimExpiry()
    return .queued(sequence: sequence, wakes: isFirstLoss || waiting == 1 || deadline < mostUrgent)
  }

  /// Queues messages in their order, each as `enqueue` queues a single message.
  package mutating func enqueue(
    _ payloads: [ByteSlice], kind: MessageKind, timeToLive: TimeSpan?, topic: String? = nil, by client: UInt64 = 0,
    now: MonotonicTime
  ) -> [EnqueueResults] {
    var all: [EnqueueResults] = []
    var last = EnqueueResults(result: .closed, count: 0)
    // The array's own iteration would retain each payload.
    let payloads = payloads.span
    for index in payloads.indices {
      let result = enqueue(payloads[index], kind: kind, timeToLive: timeToLive, topic: topic, by: client, now: now)
      switch (last.result, result) {
      case (.queued(let first, let wakes), .queued(_, let wakesNow)):
        if wakesNow, !wakes { last.result = .queued(sequence: first, wakes: true) }
      case (let before, _):
        if before == result { break }
        if last.count > 0 { all.append(last) }
        last = EnqueueResults(result: result, count: 0)
      }
      last.count &+= 1
    }
    if last.count > 0 { all.append(last) }
    return all
  }

  /// Why this many messages could not be written in the next turn; nil if they could.
  func notReadyReason(for count: Int, now: MonotonicTime) -> EnqueueResult.NotReadyReason? {
    guard isOpenForTaking else { return .notConnected }
    if isBlocked { return .blocked }
    if isStoppedByStore { return .storeFailed }
    guard let bucket, bucket.available(now: now) < waiting + count else { return nil }
    return .pace(until: bucket.nextToken(now: now))
  }

  /// The limit that `count` more messages of `size` bytes would exceed; nil if they would exceed no limit. A message
  /// that they replace does not count.
  ///
  /// - Parameters:
  ///   - client: the client that may use the reserve; 0 if the reserve may not be used.
  ///   - dropsWaiting: whether to leave out the waiting messages, which may be dropped. If there is no room even
  ///     without them, none of them is dropped.
  func exceededLimit(
    _ count: Int, _ size: Int, replacing topic: String? = nil, by client: UInt64 = 0, dropsWaiting: Bool = false
  ) -> QueueLimit? {
    var others = messages + kept
    var held = bytes
    var own = client == 0 ? nil : clientTotals[client]
    if dropsWaiting {
      others -= waiting
      held -= waitingBytes
    } else if let topic, let position = topics[topic] {
      let replaced = ring[position].payload?.count ?? 0
      others -= 1
      held -= replaced
      if ring[position].client == client {
        own?.count -= 1
        own?.bytes -= replaced
      }
    }
    guard settings.messageReserve.admits(count, used: others, own: own?.count) else { return .messages }
    // A single message is accepted if the outbox is empty.
    return others + count == 1 || settings.byteReserve.admits(size, used: held, own: own?.bytes) ? nil : .bytes
  }

  /// How many waiting messages are searched for a message whose client has more than its share.
  private static var dropSearch: Int { 256 }

  /// Drops the oldest waiting message of a client that has more than its share, or the oldest of all.
  private mutating func dropOldest(before first: UInt64) -> Bool {
    waitingStart = max(waitingStart, takenEnd)
    while waitingStart < ring.end, ring[waitingStart].payload == nil { waitingStart &+= 1 }
    guard waitingStart < ring.end else { return false }
    let searched = waitingStart..<min(ring.end, waitingStart + Self.dropSearch)
    let dropped = searched.first { ring[$0].sequence < first && hasMoreThanItsShare($0) } ?? waitingStart
    end(dropped, as: .rejected, because: .queueFull)
    return true
  }

  /// Whether the client of a message has more than its share. An unknown client is assumed to have more.
  private func hasMoreThanItsShare(_ position: Int) -> Bool {
    guard ring[position].payload != nil else { return false }
    let client = ring[position].client
    guard client != 0 else { return true }
    let held = clientTotals[client]
    return held.count > settings.messageReserve.share || held.bytes > settings.byteReserve.share
  }

  // MARK: Out

  /// Moves waiting messages to `batch`, in the order in which the connection sends them: at most `maximumMessages`, and
  /// no more once `maximumBytes` are reached.
  ///
  /// - Parameters:
  ///   - largest: a larger message is not taken before the connection has prepared it (`next`), unless it has time to
  ///     live 0. Messages with time to live 0 behind such a message end.
  ///   - prepared: the number of a larger message that is prepared. This message is taken.
  package mutating func takeBatch(
    maximumMessages: Int, maximumBytes: Int, largest: Int = .max, except prepared: UInt64? = nil, now: MonotonicTime,
    into batch: inout [OutboxMessage]
  ) {
    isBlocked = false
    guard isOpenForTaking else { return }
    let most = min(maximumMessages, bucket?.available(now: now) ?? .max)
    var taken = 0
    var size = 0
    while takenEnd < ring.end, taken < most, size < maximumBytes {
      let position = takenEnd
      if ring[position].sequence > permitted, ring[position].isStored, ring[position].payload != nil { break }
      takenEnd &+= 1
      guard let payload = ring[position].payload else { continue }
      let sequence = ring[position].sequence
      let count = payload.count
      if count > largest, sequence != prepared, !ring[position].isImmediate {
        takenEnd &-= 1
        isBlocked = true
        endImmediate()
        break
      }
      if let topic = ring[position].topic, topics[topic] == position { topics[topic] = nil }
      waiting &-= 1
      waitingBytes &-= count
      if ring[position].deadline <= now {
        finish(position, as: .expired, because: ring[position].expiryReason)
        continue
      }
      ring[position].attempts &+= 1
      batch.append(
        OutboxMessage(
          sequence: sequence, kind: ring[position].kind, payload: payload, reportsEnd: ring[position].reportsEnd,
          client: ring[position].client))
      taken &+= 1
      size &+= count
      flight?.last = sequence
    }
    bucket?.take(taken, now: now)
    if taken > 0, flight?.taken == nil { flight?.taken = now }
    popFront()
    trimExpiry()
  }

  /// The message that is taken next, if it is larger than `size` and its time to live is not 0. The connection can
  /// prepare it in advance.
  package func next(largerThan size: Int) -> OutboxMessage? {
    guard isOpenForTaking else { return nil }
    for position in takenEnd..<ring.end {
      guard let payload = ring[position].payload else { continue }
      guard payload.count > size, !ring[position].isImmediate else { return nil }
      return OutboxMessage(
        sequence: ring[position].sequence, kind: ring[position].kind, payload: payload,
        reportsEnd: ring[position].reportsEnd, client: ring[position].client)
    }
    return nil
  }

  /// Called when the kernel has accepted every message up to `sequence` that a connection has taken.
  package mutating func written(through sequence: UInt64) {
    let start = writtenEnd
    var first: UInt64?
    var last = Sent(sequence: 0, size: 0)
    var hasReplies = false
    while writtenEnd < takenEnd, ring[writtenEnd].sequence <= sequence {
      let position = writtenEnd
      writtenEnd &+= 1
      guard let size = ring[position].payload?.count else { continue }
      let current = Sent(sequence: ring[position].sequence, size: size)
      if first == nil { first = current.sequence }
      // A message need not be recorded in `largest` if the next message is at least as large.
      if last.size > size { recordSent(last) }
      last = current
      if ring[position].hasReply { hasReplies = true }
      messages &-= 1
      if keepsWritten {
        kept &+= 1
      } else {
        discardPayload(position)
      }
    }
    guard let first else { return popFront() }
    recordSent(last)
    ledger.setAll(.queued, from: first, through: last.sequence, to: .written)
    if hasReplies { confirmReplied(from: start) }
    popFront()
  }

  /// Whether written messages stay in the ring until they are confirmed.
  var keepsWritten: Bool { settings.confirms && settings.redelivery == .unconfirmed }

  /// Whether a connection may take messages now, without breaking their order.
  var isOpenForTaking: Bool { flight != nil && !isPaused && !hasRetiringMessages }

  /// Whether messages of the retiring connection are left. They may have to be sent again before all others.
  private var hasRetiringMessages: Bool {
    guard let retiring, !ring.isEmpty else { return false }
    return ring[ring.front].sequence <= retiring.last
  }

  /// How long a message with time to live 0 that was accepted just before a hand-over waits for the successor. A
  /// successor usually sends after two round trips; a later send would no longer count as 'at once'.
  static var immediateDelay: TimeSpan { .milliseconds(100) }

  /// Stops messages from being taken until a successor starts sending or `resume()` is called.
  package mutating func pause(now: MonotonicTime) {
    guard flight != nil else { return }
    isPaused = true
    for position in takenEnd..<max(takenEnd, min(immediateEnd, ring.end))
    where ring[position].isImmediate && ring[position].payload != nil {
      ring[position].deadline = now + Self.immediateDelay
      index(position)
    }
  }

  /// Ends the pause: the hand-over has failed or is complete.
  package mutating func resume() { isPaused = false }

  /// Returns `ended` and empties it.
  package mutating func takeEnded() -> [UInt64] {
    defer { ended = [] }
    return ended
  }

  /// Messages that ended since the last call and may not have arrived.
  package mutating func takeLosses() -> DeliveryLosses { ledger.takeLosses() }

  /// Accepts no more messages, and ends the waiting messages as `rejected`. Stored messages stay queued, for the next
  /// process.
  package mutating func close() {
    isClosed = true
    endWaiting(as: .rejected, because: .sessionClosed, before: ring.end) { !$0.isStored }
  }
}
