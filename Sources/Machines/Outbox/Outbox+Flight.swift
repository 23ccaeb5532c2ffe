import ByteStreams
import UpstreamSession

/// How connections affect the outbox: they start to send, confirm messages by pongs, and end.
extension Outbox {
  /// Called when a connection is ready: it may take messages from now on.
  package mutating func startSending(on connection: Generation) {
    precondition(flight == nil, "two connections send at once")
    flight = Flight(connection, first: firstUntaken)
    isBlocked = false
    resume()
  }

  private var firstUntaken: UInt64 { takenEnd < ring.end ? ring[takenEnd].sequence : ledger.last + 1 }

  /// The connection takes no more messages. Those that it has may still arrive; `settle` decides.
  ///
  /// - Parameters:
  ///   - lastIsPoison: the upstream closed with 1009, 'message too big'.
  ///   - begun: the message of which the kernel has taken a part, but not the whole.
  package mutating func stopSending(lastIsPoison: Bool = false, begun: UInt64? = nil) {
    guard let ended = flight else { return }
    settle()
    flight = nil
    retiring = ended
    if lastIsPoison { rejectLargest(begun: begun) }
    if !isPaused { endImmediate() }
  }

  /// The kernel takes nothing more for now. Messages from `sequence` on, of which it has taken no byte, return to their places in
  /// the queue and keep their TTL. A message that may not be queued ends.
  package mutating func block(returning sequence: UInt64?) {
    isBlocked = true
    if let sequence { takeBack(from: sequence) }
    endImmediate()
  }

  private mutating func takeBack(from sequence: UInt64) {
    let end = takenEnd
    var count = 0
    while takenEnd > writtenEnd, ring[takenEnd - 1].sequence >= sequence {
      takenEnd &-= 1
      guard let payload = ring[takenEnd].payload else { continue }
      ring[takenEnd].attempts &-= 1
      waiting &+= 1
      waitingBytes &+= payload.count
      count += 1
      index(takenEnd)
    }
    bucket?.giveBack(count)
    flight?.takeBack(from: sequence)
    passed = takenEnd
    replaceOlder(from: takenEnd, before: end)
  }

  // MARK: Barriers

  /// How many messages of the sending connection no barrier follows yet; 0 if no further barrier may be sent.
  package var unguarded: UInt64 {
    guard settings.confirms, let flight, flight.barriers.count < settings.maximumBarriers else { return 0 }
    return flight.last - flight.guarded
  }

  /// A ping with this counter is sent after everything that the connection has taken: the sending connection, or the retiring one
  /// before its close frame.
  package mutating func barrier(_ counter: UInt64, on connection: Generation) {
    let isRetired = isRetiring(connection)
    guard settings.confirms, var guarded = isRetired ? retiring : flight, guarded.connection == connection,
      guarded.last > guarded.guarded
    else { return }
    // Heartbeats are sent whether or not another barrier is allowed. The next barrier confirms the messages before them.
    guard isRetired || isPaused || guarded.barriers.count < settings.maximumBarriers else { return }
    guarded.guarded = guarded.last
    guarded.barriers.append(Barrier(counter: counter, through: guarded.last))
    if isRetired { retiring = guarded } else { flight = guarded }
  }

  /// The connection that sent before, until its messages are settled.
  package var retiringConnection: Generation? { retiring?.connection }

  /// Whether this connection has stopped sending and its messages are not settled yet.
  package func isRetiring(_ connection: Generation) -> Bool { retiring?.connection == connection }

  /// A pong arrived on this connection: the peer has received everything before the ping. Returns how many messages that confirms.
  @discardableResult
  package mutating func confirm(_ counter: UInt64, on connection: Generation) -> Int {
    let isRetired = isRetiring(connection)
    guard var answered = isRetired ? retiring : flight, answered.connection == connection else { return 0 }
    var through: UInt64 = 0
    while !answered.barriers.isEmpty, answered.barriers[answered.barriers.front].counter <= counter {
      through = answered.barriers[answered.barriers.front].through
      answered.barriers.removeFirst()
    }
    var count = 0
    if through >= answered.first {
      count = ledger.setWritten(from: answered.first, through: through, to: .confirmed)
      answered.first = through + 1
      while !answered.largest.isEmpty, answered.largest[answered.largest.front].sequence <= through {
        answered.largest.removeFirst()
      }
    }
    if isRetired { retiring = answered } else { flight = answered }
    if keepsWritten, count > 0 { releaseConfirmed(through: through) }
    return count
  }

  private mutating func releaseConfirmed(through sequence: UInt64) {
    for place in ring.front..<writtenEnd where ring[place].sequence <= sequence { release(place) }
    popFront()
  }

  // MARK: Ends of connections

  /// Called when the connection that stopped sending has ended. Messages that the kernel did not take return to their places in the
  /// queue. Unconfirmed messages become `unknown`, or are queued again. Messages that may not be queued any longer end.
  ///
  /// `begun`: the message of which the kernel has taken a part, but not the whole. The upstream cannot have received it.
  package mutating func settle(begun: UInt64? = nil) {
    guard let ended = retiring else { return }
    retiring = nil
    if settings.confirms, ended.last >= ended.first, !keepsWritten {
      _ = ledger.setWritten(from: ended.first, through: ended.last, to: .unknown)
    }
    // If a successor has taken messages, it owns the front of the ring, and nothing of the old connection is left there.
    if let successor = flight, successor.last >= successor.first { return }
    putBack(begun: begun)
    flight = flight.map { Flight($0.connection, first: firstUntaken) }
  }

  private mutating func putBack(begun: UInt64?) {
    let end = takenEnd
    for place in ring.front..<end where ring[place].payload != nil {
      if place < writtenEnd {
        kept &-= 1
        messages &+= 1
        guard mayTryAgain(place), !ring[place].isImmediate else {
          finish(place, as: .unknown)
          continue
        }
        ledger.reopen(ring[place].sequence)
      } else {
        // The kernel never took the whole message, so it was not written.
        ring[place].attempts &-= 1
        if ring[place].sequence == begun { ring[place].interruptions &+= 1 }
        if ring[place].isImmediate || !mayTryAgain(place) {
          finish(place, as: ring[place].isImmediate ? .expired : .rejected)
          continue
        }
      }
      waiting &+= 1
      waitingBytes &+= ring[place].payload?.count ?? 0
    }
    writtenEnd = ring.front
    takenEnd = ring.front
    passed = takenEnd
    popFront()
    reindexWaiting()
    replaceOlder(from: ring.front, before: end)
  }

  /// A message is not sent again once `maximumAttempts` connections have ended with it.
  private func mayTryAgain(_ place: Int) -> Bool {
    Int(ring[place].attempts) + Int(ring[place].interruptions) < settings.maximumAttempts
  }

  /// Ends returned messages that a newer queued message with the same topic replaces.
  private mutating func replaceOlder(from start: Int, before end: Int) {
    for place in start..<max(start, end) {
      guard place >= ring.front, ring[place].payload != nil, let topic = ring[place].topic, topics[topic] != place
      else { continue }
      self.end(place, as: .replaced)
    }
  }

  // MARK: Too large

  /// Records the size of a written message for the connection that wrote it.
  mutating func noteSent(_ sent: Sent) {
    if let retiring, sent.sequence <= retiring.last, sent.sequence >= retiring.first {
      self.retiring?.noteSent(sent)
    } else {
      flight?.noteSent(sent)
    }
  }

  /// The upstream closed with 1009. The largest message in flight, or the last of the largest, is too large for it and would end
  /// every connection, so it is never sent again.
  private mutating func rejectLargest(begun: UInt64?) {
    var culprit = retiring.flatMap { $0.largest.isEmpty ? nil : $0.largest[$0.largest.front] }
    for place in writtenEnd..<takenEnd where ring[place].sequence == begun {
      guard let size = ring[place].payload?.count, size >= culprit?.size ?? 0 else { continue }
      culprit = nil
      ledger.set(ring[place].sequence, to: .rejected)
      messages &-= 1
      bytes &-= size
      ring[place].payload = nil
    }
    if let culprit, ledger.state(of: culprit.sequence) == .written {
      ledger.set(culprit.sequence, to: .rejected)
      for place in ring.front..<writtenEnd where ring[place].sequence == culprit.sequence { release(place) }
    }
    popFront()
  }
}

extension Outbox.Flight {
  /// Takes the messages from `sequence` on out of the flight. A ping that was sent after them confirms none of them.
  fileprivate mutating func takeBack(from sequence: UInt64) {
    last = sequence - 1
    guarded = min(guarded, last)
    for place in barriers.front..<barriers.end where barriers[place].through > last { barriers[place].through = last }
  }

  fileprivate mutating func noteSent(_ sent: Outbox.Sent) {
    while !largest.isEmpty, largest[largest.end - 1].size <= sent.size { largest.removeLast() }
    largest.append(sent)
  }
}
