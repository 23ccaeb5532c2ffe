import ByteStreams

/// How messages leave the outbox, and how their places are freed.
extension Outbox {
  /// Ends a waiting message.
  mutating func end(_ place: Int, as state: DeliveryState) {
    if let topic = ring[place].topic, topics[topic] == place { topics[topic] = nil }
    waiting &-= 1
    waitingBytes &-= ring[place].payload?.count ?? 0
    finish(place, as: state)
    popFront()
  }

  /// Ends the waiting messages with time to live 0.
  mutating func endImmediate() {
    endWaiting(as: .expired, before: min(immediateEnd, ring.end)) { $0.isImmediate }
    immediateEnd = takenEnd
  }

  /// Ends the waiting messages before the place `border` that meet `condition`.
  mutating func endWaiting(as state: DeliveryState, before border: Int, where condition: (Entry) -> Bool) {
    for place in takenEnd..<max(takenEnd, border) {
      // Ending a message removes empty places at the front, and some of them may be ahead of this one.
      guard place >= ring.front, ring[place].payload != nil, condition(ring[place]) else { continue }
      end(place, as: state)
    }
  }

  /// Ends a message that is not written. Its place stays, empty.
  mutating func finish(_ place: Int, as state: DeliveryState) {
    // It was written once, to a connection that was lost. However it ends now, it may have arrived.
    ledger.set(ring[place].sequence, to: ring[place].attempts > 0 ? .unknown : state)
    messages &-= 1
    bytes &-= ring[place].payload?.count ?? 0
    ring[place].payload = nil
    ring[place].topic = nil
  }

  /// Removes the empty places at the front.
  mutating func popFront() {
    while !ring.isEmpty, ring[ring.front].payload == nil { ring.removeFirst() }
    writtenEnd = max(writtenEnd, ring.front)
    takenEnd = max(takenEnd, ring.front)
  }

  /// Removes empty places between waiting messages: many replacements behind one old message must not make the ring grow.
  mutating func closeGaps() {
    guard ring.end - takenEnd > 2 * waiting + 64 else { return }
    var live: [Entry] = []
    live.reserveCapacity(waiting)
    for place in takenEnd..<ring.end where ring[place].payload != nil { live.append(ring[place]) }
    while ring.end > takenEnd { ring.removeLast() }
    passed = takenEnd
    for entry in live { ring.append(entry) }
    immediateEnd = min(immediateEnd, ring.end)
    reindexWaiting()
  }

  /// Releases a written message that need not be sent again.
  mutating func release(_ place: Int) {
    guard let size = ring[place].payload?.count else { return }
    kept &-= 1
    bytes &-= size
    ring[place].payload = nil
  }

  /// Indexes the deadlines and topics of the waiting messages anew, after places have changed or messages have returned.
  mutating func reindexWaiting() {
    expiry.removeAll()
    topics.removeAll(keepingCapacity: true)
    for place in takenEnd..<ring.end where ring[place].payload != nil { index(place) }
  }

  /// Records the deadline of a waiting message, and its topic unless a newer message has the same.
  mutating func index(_ place: Int) {
    let entry = ring[place]
    if entry.deadline < .distantFuture { expiry.insert(.init(deadline: entry.deadline, place: place)) }
    if let topic = entry.topic, topics[topic] ?? -1 < place { topics[topic] = place }
  }
}
