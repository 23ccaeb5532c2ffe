import ByteStreams
import Totals

/// How messages leave the outbox, and how their positions are freed.
extension Outbox {
  /// Ends a waiting message.
  mutating func end(_ position: Int, as state: DeliveryState, because reason: DeliveryReason? = nil) {
    if let topic = ring[position].topic, topics[topic] == position { topics[topic] = nil }
    waiting &-= 1
    waitingBytes &-= ring[position].payload?.count ?? 0
    finish(position, as: state, because: reason)
    popFront()
  }

  /// Ends a waiting message whose sender has given up, as if its time to live were over. A message that a connection has taken stays, and so
  /// does one with time to live 0, which is sent in the next turn or ends by itself.
  package mutating func withdraw(_ sequence: UInt64) {
    guard let position = position(of: sequence), position >= takenEnd, !ring[position].isImmediate else { return }
    end(position, as: .expired, because: .ttl)
    trimExpiry()
  }

  /// Ends a message that the connection has taken and cannot carry. No byte of it was sent.
  package mutating func reject(_ sequence: UInt64, because reason: DeliveryReason) {
    guard let position = position(of: sequence), position >= writtenEnd, position < takenEnd else { return }
    ring[position].attempts &-= 1
    finish(position, as: .rejected, because: reason)
    popFront()
  }

  /// The upstream has replied to a message, so it has arrived: it is confirmed without a pong, and not sent again. A message that a new
  /// connection has in its buffer meanwhile cannot be stopped. It is confirmed when it leaves the buffer, and not sent once more.
  package mutating func replied(to sequence: UInt64) {
    if ledger.state(of: sequence) == .written, ledger.isConfirmable(sequence) { ledger.confirm(sequence) }
    guard keepsWritten, let position = position(of: sequence) else { return }
    if position < writtenEnd {
      release(position)
      popFront()
    } else if position < takenEnd {
      ring[position].hasReply = true
    } else {
      // It was returned to the queue when its connection stopped sending.
      end(position, as: .confirmed)
      trimExpiry()
    }
  }

  /// Confirms the messages with a reply among those that were written just now, from the position `start` on.
  mutating func confirmReplied(from start: Int) {
    for position in start..<writtenEnd where ring[position].hasReply && ring[position].payload != nil {
      ledger.confirm(ring[position].sequence)
      release(position)
    }
  }

  /// The position of a message that has not ended and was not released.
  private func position(of sequence: UInt64) -> Int? {
    // The numbers in the ring increase.
    var (low, high) = (ring.front, ring.end)
    while low < high {
      let middle = low + (high - low) / 2
      if ring[middle].sequence < sequence { low = middle + 1 } else { high = middle }
    }
    return low < ring.end && ring[low].sequence == sequence && ring[low].payload != nil ? low : nil
  }

  /// The position of a message that waits.
  func waitingPosition(of sequence: UInt64) -> Int? { position(of: sequence).flatMap { $0 >= takenEnd ? $0 : nil } }

  /// Removes the deadlines of messages that have left, once they are the most. They are not removed one by one.
  mutating func trimExpiry() {
    if waiting == 0 { expiry.removeAll() } else if expiry.count > 2 * waiting + 64 { reindexWaiting() }
  }

  /// Ends the waiting messages with time to live 0.
  mutating func endImmediate() {
    endWaiting(as: .expired, because: .notSentAtOnce, before: min(immediateEnd, ring.end)) { $0.isImmediate }
    immediateEnd = takenEnd
  }

  /// Ends the waiting messages before the position `limit` that meet `condition`.
  mutating func endWaiting(
    as state: DeliveryState, because reason: DeliveryReason, before limit: Int, where condition: (Entry) -> Bool
  ) {
    for position in takenEnd..<max(takenEnd, limit) {
      // Ending a message removes empty positions at the front, and some of them may be ahead of this one.
      guard position >= ring.front, ring[position].payload != nil, condition(ring[position]) else { continue }
      end(position, as: state, because: reason)
    }
  }

  /// Ends a message that is not written. Its position stays, empty.
  mutating func finish(_ position: Int, as state: DeliveryState, because reason: DeliveryReason?) {
    // It was written once, to a connection that was lost. However it ends now, it may have arrived.
    if state == .confirmed {
      ledger.confirm(ring[position].sequence)
    } else if ring[position].attempts > 0 {
      ledger.set(ring[position].sequence, to: .unknown, because: .connectionLost)
    } else {
      ledger.set(ring[position].sequence, to: state, because: reason)
    }
    if ring[position].reportsEnd { ended.append(ring[position].sequence) }
    messages &-= 1
    discardPayload(position)
    ring[position].topic = nil
  }

  /// The message leaves: its position stays, empty, and its client has less.
  mutating func discardPayload(_ position: Int) {
    guard let size = ring[position].payload?.count else { return }
    bytes &-= size
    holdings.remove(size, by: ring[position].client)
    ring[position].payload = nil
  }

  /// Removes the empty positions at the front.
  mutating func popFront() {
    while !ring.isEmpty, ring[ring.front].payload == nil { ring.removeFirst() }
    writtenEnd = max(writtenEnd, ring.front)
    takenEnd = max(takenEnd, ring.front)
  }

  /// Removes empty positions between waiting messages: many replacements behind one old message must not make the ring grow.
  mutating func compact() {
    guard ring.end - takenEnd > 2 * waiting + 64 else { return }
    var live: [Entry] = []
    live.reserveCapacity(waiting)
    for position in takenEnd..<ring.end where ring[position].payload != nil { live.append(ring[position]) }
    while ring.end > takenEnd { ring.removeLast() }
    waitingStart = takenEnd
    for entry in live { ring.append(entry) }
    immediateEnd = min(immediateEnd, ring.end)
    reindexWaiting()
  }

  /// Releases a written message that need not be sent again.
  mutating func release(_ position: Int) {
    guard ring[position].payload != nil else { return }
    kept &-= 1
    discardPayload(position)
  }

  /// Indexes the deadlines and topics of the waiting messages anew, after positions have changed or messages have returned.
  mutating func reindexWaiting() {
    expiry.removeAll()
    topics.removeAll(keepingCapacity: true)
    for position in takenEnd..<ring.end where ring[position].payload != nil { index(position) }
  }

  /// Records the deadline of a waiting message, and its topic unless a newer message has the same.
  mutating func index(_ position: Int) {
    let entry = ring[position]
    if entry.deadline < .distantFuture { expiry.insert(position, at: entry.deadline) }
    if let topic = entry.topic, topics[topic] ?? -1 < position { topics[topic] = position }
  }
}
