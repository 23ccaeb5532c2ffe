import ByteStreams

/// How messages leave the outbox, and what becomes of their places.
extension Outbox {
  /// A waiting message comes to its end.
  mutating func end(_ place: Int, as state: DeliveryState) {
    if let topic = ring[place].topic, topics[topic] == place { topics[topic] = nil }
    waiting &-= 1
    waitingBytes &-= ring[place].payload?.count ?? 0
    finish(place, as: state)
    popFront()
  }

  /// Ends the waiting messages that may not wait.
  mutating func endImmediate() {
    endWaiting(as: .expired, before: min(immediateEnd, ring.end)) { $0.isImmediate }
    immediateEnd = takenEnd
  }

  /// Ends those waiting messages before the place `border` of which `condition` is true.
  mutating func endWaiting(as state: DeliveryState, before border: Int, where condition: (Entry) -> Bool) {
    for place in takenEnd..<max(takenEnd, border) {
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
    for place in takenEnd..<ring.end where ring[place].payload != nil { index(place) }
  }

  /// Notes the deadline of a waiting message, and its topic unless a newer one has it.
  mutating func index(_ place: Int) {
    let entry = ring[place]
    if entry.deadline < .distantFuture { expiry.insert(.init(deadline: entry.deadline, place: place)) }
    if let topic = entry.topic, topics[topic] ?? -1 < place { topics[topic] = place }
  }
}
