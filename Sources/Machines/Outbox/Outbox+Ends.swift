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

  /// Ends a waiting message whose sender has given up, as if its time to live had ended. A message that a connection
  /// has taken stays. A message with time to live 0 stays, too: it is sent in the next turn or ends by itself.
  package mutating func withdraw(_ sequence: UInt64) {
    guard let position = position(of: sequence), position >= takenEnd, !ring[position].isImmediate else { return }
    end(position, as: .expired, because: .ttl)
    trimExpiry()
  }

  /// Ends a message that the connection has taken and cannot send. No byte of it was sent.
  package mutating func reject(_ sequence: UInt64, because reason: DeliveryReason) {
    guard let position = position(of: sequence), position >= writtenEnd, position < takenEnd else { return }
    ring[position].attempts &-= 1
    finish(position, as: .rejected, because: reason)
    popFront()
  }

  /// Records that the upstream has replied to a message. The reply shows that the message has arrived, so the message
  /// is confirmed without a pong, and is not sent again. If the message is already in the buffer of a new connection,
  /// it cannot be taken back. In this case it is confirmed when it leaves the buffer.
  package mutating func replied(to sequence: UInt64) {
    if ledger.state(of: sequence) == .written, ledger.isConfirmable(sequence) { ledger.confirm(sequence) }
    guard keepsWritten, let position = position(of: sequence) else { return }
    if position < writtenEnd {
      release(position)
      popFront()
    } else if position < takenEnd {
      ring[position].hasReply = true
    } else {
      // The message was returned to the queue when its connection stopped sending.
      end(position, as: .confirmed)
      trimExpiry()
    }
  }

  /// Confirms the messages with a reply among the messages that were just written, from the position `start` on.
  mutating func confirmReplied(from start: Int) {
    for position in start..<writtenEnd where ring[position].hasReply && ring[position].payload != nil {
      ledger.confirm(ring[position].sequence)
      release(position)
    }
  }

  /// The position of a message that has not ended and was not released.
  private func position(of sequence: UInt64) -> Int? {
    // A binary search: the numbers in the ring increase.
    var (low, high) = (ring.front, ring.end)
    while low < high {
      let middle = low + (high - low) / 2
      if ring[middle].sequence < sequence { low = middle + 1 } else { high = middle }
    }
    return low < ring.end && ring[low].sequence == sequence && ring[low].payload != nil ? low : nil
  }

  /// The position of a waiting message.
  func waitingPosition(of sequence: UInt64) -> Int? { position(of: sequence).flatMap { $0 >= takenEnd ? $0 : nil } }

  /// Removes the deadlines of messages that have left the queue, once these deadlines outnumber the others. A deadline
  /// is not removed at the moment when its message leaves.
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
      // Ending a message removes the empty positions at the front, which may include this position.
      guard position >= ring.front, ring[position].payload != nil, condition(ring[position]) else { continue }
      end(position, as: state, because: reason)
    }
  }

  /// Ends a message that is not written. Its position stays in the ring, without a payload.
  mutating func finish(_ position: Int, as state: DeliveryState, because reason: DeliveryReason?) {
    // A message with `attempts` was written to a connection that was lost, so it may have arrived. Unless it is
    // confirmed, it ends as `unknown`, whatever `state` is.
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

  /// Frees the payload of a message. The position stays in the ring, and the message is no longer counted for its
  /// client.
  mutating func discardPayload(_ position: Int) {
    guard let size = ring[position].payload?.count else { return }
    bytes &-= size
    clientTotals.remove(size, by: ring[position].client)
    ring[position].payload = nil
  }

  /// Removes the empty positions at the front.
  mutating func popFront() {
    while !ring.isEmpty, ring[ring.front].payload == nil { ring.removeFirst() }
    writtenEnd = max(writtenEnd, ring.front)
    takenEnd = max(takenEnd, ring.front)
  }

  /// Removes empty positions between waiting messages, so that many replacements behind one old message do not make the
  /// ring grow.
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

  /// Indexes the deadlines and replacement keys of the waiting messages again, after positions have changed or messages
  /// have returned.
  mutating func reindexWaiting() {
    expiry.removeAll()
    topics.removeAll(keepingCapacity: true)
    for position in takenEnd..<ring.end where ring[position].payload != nil { index(position) }
  }

  /// Records the deadline of a waiting message, and its replacement key unless a newer message has the same key.
  mutating func index(_ position: Int) {
    let entry = ring[position]
    if entry.deadline < .distantFuture { expiry.insert(position, at: entry.deadline) }
    if let topic = entry.topic, topics[topic] ?? -1 < position { topics[topic] = position }
  }
}
