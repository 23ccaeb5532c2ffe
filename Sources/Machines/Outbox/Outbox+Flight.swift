import ByteStreams
import UpstreamSession

/// Connections as the outbox sees them: they begin, are confirmed by pongs, and end.
extension Outbox {
  /// A connection is ready: it may take messages.
  package mutating func startSending(on connection: Generation) {
    precondition(flight == nil, "two connections send at once")
    flight = Flight(connection, first: firstUntaken)
    isBlocked = false
    resume()
  }

  private var firstUntaken: UInt64 { takenEnd < ring.end ? ring[takenEnd].sequence : ledger.last + 1 }

  /// The connection takes nothing more. What it has is on its way, or lost: `settle` will tell.
  ///
  /// - Parameters:
  ///   - lastIsPoison: the upstream closed with 1009, 'message too big'.
  ///   - begun: the message of which the kernel has a part, and not the whole.
  package mutating func stopSending(lastIsPoison: Bool = false, begun: UInt64? = nil) {
    guard let ended = flight else { return }
    settle()
    flight = nil
    retiring = ended
    if lastIsPoison { rejectLargest(begun: begun) }
    if !isPaused { endImmediate() }
  }

  /// The kernel takes nothing more for now. Messages of whose frames it has no byte wait again, in their places and within
  /// their time to live: those from `sequence` on. A message that may not wait ends.
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

  /// Messages of the sending connection that no barrier stands behind, as far as another may be sent.
  package var unguarded: UInt64 {
    guard settings.confirms, let flight, flight.barriers.count < settings.maximumBarriers else { return 0 }
    return flight.last - flight.guarded
  }

  /// A ping with this counter goes out behind everything that the connection has taken: the one that sends, or the one that
  /// retires and says its goodbye.
  package mutating func barrier(_ counter: UInt64, on connection: Generation) {
    let isRetired = isRetiring(connection)
    guard settings.confirms, var guarded = isRetired ? retiring : flight, guarded.connection == connection,
      guarded.last > guarded.guarded
    else { return }
    // Heartbeats do not ask whether another barrier may be sent; what stands before them, the next one will confirm.
    guard isRetired || isPaused || guarded.barriers.count < settings.maximumBarriers else { return }
    guarded.guarded = guarded.last
    guarded.barriers.append(Barrier(counter: counter, through: guarded.last))
    if isRetired { retiring = guarded } else { flight = guarded }
  }

  /// The connection that sent before, as long as its messages are not settled.
  package var retiringConnection: Generation? { retiring?.connection }

  /// Whether messages of this connection, which sends no more, are not settled yet.
  package func isRetiring(_ connection: Generation) -> Bool { retiring?.connection == connection }

  /// A pong came on this connection: its peer has all that stood before the ping. Returns how many messages that confirms.
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

  /// The connection that stopped sending is gone: what the kernel did not take goes back to its place in the queue, what
  /// nobody confirmed is `unknown`, or goes again. Messages that nobody may wait for any longer end here.
  ///
  /// `begun`: the message of which the kernel has a part, and not the whole. The upstream cannot have it.
  package mutating func settle(begun: UInt64? = nil) {
    guard let ended = retiring else { return }
    retiring = nil
    if settings.confirms, ended.last >= ended.first, !keepsWritten {
      _ = ledger.setWritten(from: ended.first, through: ended.last, to: .unknown)
    }
    // A successor that has taken messages owns the front of the ring: then nothing of the old connection is left there.
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
        // It never reached the kernel as a whole, and so was not written.
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

  /// What has taken down as many connections as it may is not tried on another.
  private func mayTryAgain(_ place: Int) -> Bool {
    Int(ring[place].attempts) + Int(ring[place].interruptions) < settings.maximumAttempts
  }

  /// Of those that came back, ends the ones that a newer waiting message with the same topic replaces.
  private mutating func replaceOlder(from start: Int, before end: Int) {
    for place in start..<max(start, end) {
      guard place >= ring.front, ring[place].payload != nil, let topic = ring[place].topic, topics[topic] != place
      else { continue }
      self.end(place, as: .replaced)
    }
  }

  // MARK: Too large

  /// Notes the size of a written message, on the connection that wrote it.
  mutating func noteSent(_ sent: Sent) {
    if let retiring, sent.sequence <= retiring.last, sent.sequence >= retiring.first {
      self.retiring?.noteSent(sent)
    } else {
      flight?.noteSent(sent)
    }
  }

  /// The upstream closed with 1009: of the messages under way the largest, or the last of the largest, is too large for it,
  /// and would end every connection. It never goes again.
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
  /// The messages from `sequence` on are not on their way after all. A ping that went out behind them confirms none of them.
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
